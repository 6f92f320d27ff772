// The cluster in the environment variable TF_CONFIG
// (tf.distribute.cluster_resolver.TFConfigClusterResolver).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

// Each member reads its own part, so a mistake in one leaves the others readable. A variable that
// is not set, or holds a JSON list, is a cluster of no jobs. kInvalidArgument, of every member but
// environment(): the text is not JSON, or is neither an object nor a list.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  // The variable's value now; later changes are not seen.
  explicit TFConfigClusterResolver(ResolverOverrides overrides = {});
  // The same with a given value, std::nullopt: not set.
  TFConfigClusterResolver(const std::optional<std::string>& tf_config, ResolverOverrides overrides);
  ~TFConfigClusterResolver() override;

  // kInvalidArgument: `cluster` or a job of another type.
  absl::StatusOr<ClusterSpec> cluster_spec() const override;

 protected:
  absl::StatusOr<std::optional<std::string>> SourceTaskType() const override;
  // kInvalidArgument: `index` is no number.
  absl::StatusOr<std::optional<int32_t>> SourceTaskId() const override;
  absl::StatusOr<std::optional<std::string>> SourceRpcLayer() const override;
  // `session_master` where it is given; "" without a cluster, or where there is one task in all.
  absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const override;

 private:
  struct Parsed;
  const std::unique_ptr<const Parsed> parsed_;
};

}  // namespace cairn
