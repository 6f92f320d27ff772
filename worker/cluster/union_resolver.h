// Combines several clusters into one (tf.distribute.cluster_resolver.UnionResolver).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

class UnionResolver : public ClusterResolver {
 public:
  // Task, rpc_layer and environment are those of `task`, or of the first resolver if not set there.
  // kInvalidArgument: no resolver, or a null one.
  static absl::StatusOr<std::unique_ptr<UnionResolver>> Create(
      std::vector<std::shared_ptr<const ClusterResolver>> resolvers, ResolverOverrides task = {});

  // Merges jobs of the same name: concatenates their tasks, or, if any of them has gaps, merges
  // tasks by index. kInvalidArgument: two tasks to merge have the same index.
  absl::StatusOr<ClusterSpec> cluster_spec() const override;

 protected:
  absl::StatusOr<std::optional<std::string>> SourceTaskType() const override;
  absl::StatusOr<std::optional<int32_t>> SourceTaskId() const override;
  absl::StatusOr<std::optional<std::string>> SourceRpcLayer() const override;
  absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const override;
  absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const override;

 private:
  UnionResolver(std::vector<std::shared_ptr<const ClusterResolver>> resolvers,
                ResolverOverrides task);

  const std::vector<std::shared_ptr<const ClusterResolver>> resolvers_;
};

}  // namespace cairn
