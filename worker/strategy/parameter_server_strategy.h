// Variables on parameter servers, computation on workers that do not wait for each other:
// tf.distribute.ParameterServerStrategy (V2).
#pragma once

#include <atomic>
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

// Number of shards along each axis of a variable: not empty, each at least 1, and 1 for every axis
// but the first. Called once for each variable that is not a scalar.
using VariablePartitioner =
    std::function<absl::StatusOr<std::vector<int64_t>>(absl::Span<const int64_t> shape, DType)>;
// Wraps a partitioner of common/config/partitioner.h.
VariablePartitioner PartitionBy(std::shared_ptr<const Partitioner> partitioner);

struct ParameterServerOptions {
  VariablePartitioner variable_partitioner = {};  // none: variables are not sharded
  // Devices of a worker; the same for all workers.
  std::vector<Device> worker_devices = {Cpu(0)};
  // For trainable floating-point variables. Pushes to these are gradients (ApplyGradients), and
  // adding to these is refused. Other variables can be assigned and added to.
  OptimizerConfig optimizer = PlainUpdates();
};

// The gradient that this worker's replicas computed for one variable.
struct VariableGradient {
  VariablePtr variable = {};
  Value gradient = {};  // tensor or slices, or none: the variable is not updated
};

// num_replicas_in_sync counts the replicas of one worker: workers are not in sync with each other.
//
// Variables and shards are placed on the servers round robin; a single counter covers both. Servers
// identify a variable by its name, which is unique in the strategy. A strategy that is created
// again finds the values that the servers have kept, in the shards that they were created with.
class ParameterServerStrategy : public Strategy {
 public:
  // kInvalidArgument: a cluster without workers or without servers, with more than one chief, or
  // with a job other than chief, worker, ps and evaluator; another number of servers than in the
  // client's cluster; no device, or a duplicate device; an optimizer with global_clipnorm.
  static absl::StatusOr<std::unique_ptr<ParameterServerStrategy>> Create(
      const ClusterSpec& cluster, std::shared_ptr<VariableHost> host,
      ParameterServerOptions options = {});
  ~ParameterServerStrategy() override;

  std::string name() const override { return "ParameterServerStrategy"; }
  // Numbers of workers in the cluster, and of its current servers.
  int32_t worker_count() const { return worker_count_; }
  int32_t server_count() const { return static_cast<int32_t>(host_->servers().size()); }
  // The device on which values of variables arrive.
  std::vector<Device> parameter_devices() const override { return {Cpu(0)}; }

  // Returns a ServerVariable, a ShardedVariable of ServerVariables, either of these with each
  // ServerVariable in an AggregatingVariable if workers have several replicas, or a
  // PerWorkerVariable. With `beside`, the variable is on the server of `beside` and not sharded.
  // kInvalidArgument: an unsuitable name, or an invalid result of the partitioner. kAlreadyExists:
  // the name is taken, or the servers have the variable with another dtype, shape or shards.
  absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                           const VariablePtr& beside) override;
  bool has_per_worker_variables() const override { return true; }

  // Sums each variable's gradient over this worker's replicas and pushes all sums once, in one
  // call. In a replica function every replica must call it with the same variables in the same
  // order (kInvalidArgument otherwise); elsewhere the gradients may be PerReplica, or Mirrored,
  // which counts once. kInvalidArgument, and nothing is pushed: no gradient at all, or gradients of
  // only some replicas.
  absl::Status ApplyGradients(absl::Span<const VariableGradient> gradients);

 private:
  friend class ClusterCoordinator;

  ParameterServerStrategy(std::shared_ptr<VariableHost> host, ParameterServerOptions options,
                          int32_t worker_count);

  absl::StatusOr<int64_t> CountShards(const VariableOptions& options) const;
  // The server of each shard, round robin.
  absl::StatusOr<std::vector<DenseShard>> Place(const VariableOptions& options,
                                                const VariablePtr& beside);
  absl::Status TakeName(const std::string& name);
  absl::StatusOr<VariablePtr> MakeHosted(const VariableOptions& options,
                                         const VariableTraits& traits, const VariablePtr& beside);
  VariablePtr Wrap(VariablePtr variable, const VariableTraits& traits);
  // `in_replicas`: every replica gave its gradient, also where all gave the same one.
  absl::Status PushSum(bool in_replicas, absl::Span<const VariablePtr> variables,
                       absl::Span<const Value> gradients);

  const std::shared_ptr<VariableHost> host_;
  const ParameterServerOptions options_;
  const int32_t worker_count_;
  absl::Mutex mutex_;
  size_t placed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<ClusterCoordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> warned_ = false;  // of variables without a gradient
};

// The parameter server that holds `variable`. kInvalidArgument: no server holds it, or several do.
absl::StatusOr<int32_t> ServerOf(const VariablePtr& variable);

}  // namespace cairn
