// Variables on parameter servers, computation on workers that do not wait for each other:
// tf.distribute.ParameterServerStrategy (V2).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/config/partitioner.h"
#include "worker/cluster/cluster_spec.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable_host.h"

namespace cairn {

class ClusterCoordinator;
struct VariableTraits;

// How many shards along each axis of a variable: not empty, at least 1 each, 1 for all but the
// first. Called once a variable that is no scalar.
using VariablePartitioner =
    std::function<absl::StatusOr<std::vector<int64_t>>(absl::Span<const int64_t> shape, DType)>;
// One of common/config/partitioner.h.
VariablePartitioner PartitionBy(std::shared_ptr<const Partitioner> partitioner);

struct ParameterServerOptions {
  VariablePartitioner variable_partitioner = {};  // none: variables are whole
  // Of each worker; the same for all.
  std::vector<Device> worker_devices = {Cpu(0)};
  // Of trainable variables with floating numbers; their pushes are gradients (ApplyGradients), and
  // they cannot be added to. Other variables take what is assigned and added.
  OptimizerConfig optimizer = PlainUpdates();
};

// A gradient of what this worker's replicas computed.
struct VariableGradient {
  VariablePtr variable = {};
  Value gradient = {};  // tensor or slices
};

// num_replicas_in_sync is that of one worker: workers are not in sync with each other.
//
// Variables are dealt to the servers in turn, by one counter for variables and shards alike. A
// variable's name is what servers know it by: it is unique in the strategy, and a strategy that is
// made again finds the values that the servers have kept.
class ParameterServerStrategy : public Strategy {
 public:
  // kInvalidArgument: a cluster without workers or without servers, with more than one chief, or
  // with a job that is none of chief, worker, ps, evaluator; another number of servers than the
  // host's; no device, or one twice.
  static absl::StatusOr<std::unique_ptr<ParameterServerStrategy>> Create(
      const ClusterSpec& cluster, std::shared_ptr<VariableHost> host,
      ParameterServerOptions options = {});
  ~ParameterServerStrategy() override;

  std::string name() const override { return "ParameterServerStrategy"; }
  // Tasks of the cluster.
  int32_t worker_count() const { return worker_count_; }
  int32_t server_count() const { return host_->server_count(); }
  // Where values of variables arrive.
  std::vector<Device> parameter_devices() const override { return {Cpu(0)}; }

  // A ServerVariable, a ShardedVariable of them, an AggregatingVariable of one where workers have
  // several replicas, or a PerWorkerVariable. `beside`: on that one's server, not sharded.
  // kInvalidArgument: an unsuitable name or result of the partitioner. kAlreadyExists: the name is
  // taken, or servers have it with another dtype, shape or shards.
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  bool has_per_worker_variables() const override { return true; }

  // Pushes the sum over this worker's replicas of each variable's gradient, once, in one call. In a
  // replica function every replica calls it with the same variables; elsewhere the gradients may be
  // PerReplica.
  absl::Status ApplyGradients(absl::Span<const VariableGradient> gradients);

 private:
  friend class ClusterCoordinator;

  ParameterServerStrategy(std::shared_ptr<VariableHost> host, ParameterServerOptions options,
                          int32_t worker_count);

  absl::StatusOr<int64_t> CountShards(const VariableOptions& options) const;
  // The server of each shard, in turn.
  absl::StatusOr<std::vector<DenseShard>> Place(const VariableOptions& options,
                                                const VariablePtr& beside);
  absl::Status TakeName(const std::string& name);
  absl::StatusOr<VariablePtr> MakeHosted(const VariableOptions& options,
                                         const VariableTraits& traits, const VariablePtr& beside);
  VariablePtr Wrap(VariablePtr variable, const VariableTraits& traits);
  absl::Status PushSum(absl::Span<const VariablePtr> variables, absl::Span<const Value> gradients);

  const std::shared_ptr<VariableHost> host_;
  const ParameterServerOptions options_;
  const int32_t worker_count_;
  absl::Mutex mutex_;
  int64_t placed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<ClusterCoordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
};

// The parameter server of a variable that is on one. kInvalidArgument: it is on none, or on
// several.
absl::StatusOr<int32_t> ServerOf(const VariablePtr& variable);

}  // namespace cairn
