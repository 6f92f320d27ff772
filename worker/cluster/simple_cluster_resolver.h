// A cluster that the program itself describes
// (tf.distribute.cluster_resolver.SimpleClusterResolver).
#pragma once

#include <optional>
#include <string>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

class SimpleClusterResolver : public StaticClusterResolver {
 public:
  // `master` is the result of Master() if no task is named. Without `accelerators`, tasks have
  // none.
  explicit SimpleClusterResolver(ClusterSpec spec, ResolverOverrides task = {},
                                 std::string master = "", AcceleratorCounts accelerators = {});

 protected:
  absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const override;
  absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const override;

 private:
  const std::string master_;
  const AcceleratorCounts accelerators_;
};

}  // namespace cairn
