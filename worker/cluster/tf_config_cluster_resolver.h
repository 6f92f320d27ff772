// The cluster in the environment variable TF_CONFIG
// (tf.distribute.cluster_resolver.TFConfigClusterResolver).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

// Each member reads its own part, so an error in one part leaves the others readable. If the
// variable is unset or holds a JSON list, the cluster has no jobs. Every member except
// environment() returns kInvalidArgument if the text is not JSON, or is neither an object nor a
// list.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  // Reads the variable once; later changes have no effect.
  explicit TFConfigClusterResolver(ResolverOverrides overrides = {});
  // Takes `tf_config` as the variable's value; std::nullopt: not set.
  TFConfigClusterResolver(const std::optional<std::string>& tf_config, ResolverOverrides overrides);
  ~TFConfigClusterResolver() override;

  // kInvalidArgument: `cluster` or one of its jobs has the wrong type.
  absl::StatusOr<ClusterSpec> cluster_spec() const override;

 protected:
  absl::StatusOr<std::optional<std::string>> SourceTaskType() const override;
  // kInvalidArgument: `index` is not a number.
  absl::StatusOr<std::optional<int32_t>> SourceTaskId() const override;
  absl::StatusOr<std::optional<std::string>> SourceRpcLayer() const override;
  // `session_master` if given; "" without a cluster, or if the cluster has a single task.
  absl::StatusOr<std::string> ResolveMaster(const MasterArguments& arguments) const override;

 private:
  struct Parsed;
  const std::unique_ptr<const Parsed> parsed_;
};

}  // namespace cairn
