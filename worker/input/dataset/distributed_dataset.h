// Distributes a dataset's elements to the replicas of a strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device.h"
#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/input_context.h"

namespace cairn {

// The properties of a strategy, and of this process in it, that distributed input needs.
struct InputStrategy {
  int64_t workers = 1;         // processes that read input, all with the same number of replicas
  int64_t worker = 0;          // this process's index among them
  int64_t local_replicas = 1;  // in this process
  // Input is a global batch that is split for the replicas and divided among the workers; false:
  // elements pass unchanged (Default, OneDevice).
  bool splits = true;
  // A step takes place while any replica of any worker has data (Mirrored, MultiWorkerMirrored).
  // False: the first replica without data ends the dataset, and the other replicas' remaining data
  // is lost.
  bool partial_steps = false;
  // InputReplicationMode::kPerReplica in DistributeDatasetsFromFunction.
  enum class PerReplica { kRefused, kIgnored, kSupported };
  PerReplica per_replica = PerReplica::kRefused;

  // Whether any worker has data, given whether this one has. Called once for each step, in the
  // thread that asks for the step and in the same order by all workers; only with workers > 1 and
  // partial steps. It must not wait without a deadline.
  std::function<absl::StatusOr<bool>(bool local_has_data)> agree = {};
  // Whether a step may be asked for in the calling context; called first by each Next, which
  // returns its error. Null: everywhere.
  std::function<absl::Status()> check = {};
  // The device of each local replica; empty: cpu:0 for all.
  std::vector<Device> devices = {};
  // Copies to a device; called from a prefetching thread. Null: Tensor::CopyTo, for CPUs.
  std::function<absl::StatusOr<Tensor>(const Tensor&, Device)> copy_to = {};
};

using DatasetInputFunction = std::function<absl::StatusOr<Dataset>(const InputContext&)>;

// One worker's pass. Thread safety: none.
class DistributedIterator {
 public:
  virtual ~DistributedIterator() = default;
  // Fills *step with one element for each local replica; false at the end, which all workers reach
  // at the same step. In partial steps, a replica without data gets an element whose components
  // have no rows. Errors: the dataset's, `check`'s and `agree`'s; kFailedPrecondition: the elements
  // have no batch axis, so no empty element can be made. Iterators that a strategy other
  // than the default one distributes refuse calls in replica functions, in another strategy's
  // scope, and after the strategy's destruction (kFailedPrecondition).
  virtual absl::StatusOr<bool> Next(std::vector<Element>* step) = 0;
};

// This worker's part of a distributed dataset. Copies share it.
// Thread safety: const methods may be called from several threads at once.
class DistributedDataset {
 public:
  // Every call begins a new pass, with a new order of shuffles.
  absl::StatusOr<std::unique_ptr<DistributedIterator>> MakeIterator() const;
  // Spec of one replica's element; nullopt: unknown.
  const std::optional<ElementSpec>& element_spec() const { return datasets_.front().spec(); }

 private:
  friend absl::StatusOr<DistributedDataset> DistributeDataset(const Dataset&, const InputStrategy&,
                                                              const InputOptions&);
  friend absl::StatusOr<DistributedDataset> DistributeDatasetsFromFunction(
      const DatasetInputFunction&, const InputStrategy&, const InputOptions&);
  DistributedDataset(std::vector<Dataset> datasets, InputStrategy strategy, InputOptions options,
                     Dataset example)
      : datasets_(std::move(datasets)),
        strategy_(std::move(strategy)),
        options_(options),
        example_(std::move(example)) {}

  std::vector<Dataset> datasets_;  // one, or one for each replica
  InputStrategy strategy_;
  InputOptions options_;
  Dataset example_;  // has elements like those of datasets_ even if this worker has none
};

// The elements for this worker's replicas, before agreement on the end: the batches of `dataset`
// are split for all replicas and divided among the workers by dataset.auto_shard_policy(). See
// README.md for the rules. Errors as DistributeDataset.
absl::StatusOr<Dataset> DatasetOfWorker(const Dataset& dataset, const InputStrategy& strategy);

// Distributes the global batches of `dataset`, by DatasetOfWorker. kInvalidArgument: the elements
// are not batched, or a strategy or options contradict themselves. kUnimplemented: kPerReplica.
// kNotFound: as AutoShard.
absl::StatusOr<DistributedDataset> DistributeDataset(const Dataset& dataset,
                                                     const InputStrategy& strategy,
                                                     const InputOptions& options = {});

// Distributes the datasets that `function` makes: per-replica batches, neither rebatched nor
// divided. It is called with this worker's InputContext: once, or with kPerReplica once for each
// local replica. kUnimplemented: kPerReplica, if the strategy refuses it. Other errors are those of
// `function`.
absl::StatusOr<DistributedDataset> DistributeDatasetsFromFunction(
    const DatasetInputFunction& function, const InputStrategy& strategy,
    const InputOptions& options = {});

}  // namespace cairn
