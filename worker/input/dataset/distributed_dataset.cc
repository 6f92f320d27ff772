#include "worker/input/dataset/distributed_dataset.h"

#include <algorithm>
#include <utility>

#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/auto_shard.h"
#include "worker/input/dataset/dataset_node.h"
#include "worker/input/dataset/rebatch.h"
#include "worker/input/dataset/rows.h"

namespace cairn {
namespace {

absl::Status CheckStrategy(const InputStrategy& strategy) {
  if (strategy.workers < 1 || strategy.worker < 0 || strategy.worker >= strategy.workers ||
      strategy.local_replicas < 1) {
    return InvalidArgument(
        "distributed input of worker ", strategy.worker, " of ", strategy.workers, " with ",
        strategy.local_replicas,
        " replicas: there must be 1 or more of both, and the worker one of them");
  }
  if (!strategy.devices.empty() &&
      static_cast<int64_t>(strategy.devices.size()) != strategy.local_replicas) {
    return InvalidArgument("distributed input: ", strategy.devices.size(), " devices for ",
                           strategy.local_replicas, " local replicas; name one for each");
  }
  if (strategy.workers > 1 && strategy.partial_steps && strategy.agree == nullptr) {
    return absl::InvalidArgumentError(
        "distributed input: partial steps of several workers need InputStrategy::agree");
  }
  return absl::OkStatus();
}

constexpr int64_t kMaxBufferSize = 1 << 20;

absl::Status CheckOptions(const InputOptions& options) {
  const bool per_replica = options.replication_mode == InputReplicationMode::kPerReplica;
  if (options.place_dataset_on_device && !per_replica) {
    return absl::InvalidArgumentError(
        "place_dataset_on_device is only for replication_mode kPerReplica: a dataset of one "
        "worker feeds several devices");
  }
  if (options.place_dataset_on_device && options.fetch_to_device) {
    return absl::InvalidArgumentError(
        "place_dataset_on_device and fetch_to_device are both set; choose where elements are put: "
        "set fetch_to_device to false");
  }
  if (options.per_replica_buffer_size < 0 || options.per_replica_buffer_size > kMaxBufferSize) {
    return InvalidArgument("per_replica_buffer_size is ", options.per_replica_buffer_size,
                           "; allowed are 0 to ", kMaxBufferSize);
  }
  return absl::OkStatus();
}

// Moves the element's numbers to the memory of `device`; texts stay on the host.
absl::Status Place(const InputStrategy& strategy, Device device, Element* element) {
  for (Tensor& component : *element) {
    if (component.is_text() || component.device() == device) continue;
    if (strategy.copy_to != nullptr) {
      ASSIGN_OR_RETURN(component, strategy.copy_to(component, device));
    } else if (device.is_cpu() && component.device().is_cpu()) {
      component = component.CopyTo(device);
    } else {
      return InvalidArgument("distributed input: elements for ", device.text(),
                             " need InputStrategy::copy_to");
    }
  }
  return absl::OkStatus();
}

bool Places(const InputOptions& options) {
  return options.fetch_to_device || options.place_dataset_on_device;
}

// The elements of `dataset` for the replicas on `devices`, which take turns; prefetched and placed
// on their devices as the options say. Good for one pass, because it counts the elements.
Dataset Feed(const Dataset& dataset, std::vector<Device> devices, const InputStrategy& strategy,
             const InputOptions& options) {
  if (!options.fetch_to_device || options.per_replica_buffer_size == 0) return dataset;
  const int64_t ahead = options.per_replica_buffer_size * static_cast<int64_t>(devices.size());
  return dataset
      .Map([strategy, devices = std::move(devices),
            next = size_t{0}](Element element) mutable -> absl::StatusOr<Element> {
        RETURN_IF_ERROR(Place(strategy, devices[next], &element));
        next = next + 1 == devices.size() ? 0 : next + 1;
        return element;
      })
      .Prefetch(ahead);
}

std::vector<Device> DevicesOf(const InputStrategy& strategy) {
  if (!strategy.devices.empty()) return strategy.devices;
  return std::vector<Device>(static_cast<size_t>(strategy.local_replicas), Cpu(0));
}

class StepIterator : public DistributedIterator {
 public:
  StepIterator(std::vector<std::unique_ptr<DatasetIterator>> feeds, InputStrategy strategy,
               bool places, bool partial, Dataset example)
      : feeds_(std::move(feeds)),
        strategy_(std::move(strategy)),
        devices_(DevicesOf(strategy_)),
        places_(places),
        partial_(partial),
        example_(std::move(example)) {}

  absl::StatusOr<bool> Next(std::vector<Element>* step) override {
    if (strategy_.check != nullptr) RETURN_IF_ERROR(strategy_.check());
    if (ended_) return false;
    step->resize(static_cast<size_t>(strategy_.local_replicas));
    bool any = false;
    bool all = true;
    missing_.assign(step->size(), false);
    // Asks every replica in order: each has its own dataset, or takes the next element.
    for (size_t replica = 0; replica < step->size(); ++replica) {
      DatasetIterator& feed = *feeds_[feeds_.size() == 1 ? 0 : replica];
      ASSIGN_OR_RETURN(const bool more, feed.Next(&(*step)[replica]));
      any = any || more;
      all = all && more;
      missing_[replica] = !more;
      if (more && !spec_.has_value()) spec_ = SpecOf((*step)[replica]);
      if (!more && !partial_) break;
    }
    bool goes_on = partial_ ? any : all;
    if (partial_ && strategy_.workers > 1) {
      ASSIGN_OR_RETURN(goes_on, strategy_.agree(any));
    }
    ended_ = !goes_on;
    if (!goes_on) return false;
    for (size_t replica = 0; replica < step->size(); ++replica) {
      if (missing_[replica]) RETURN_IF_ERROR(MakeEmpty(&(*step)[replica]));
      // A no-op if the element was prefetched to the right device; an error there may have shifted
      // the cycle.
      if (places_) RETURN_IF_ERROR(Place(strategy_, devices_[replica], &(*step)[replica]));
    }
    return true;
  }

 private:
  absl::Status MakeEmpty(Element* element) {
    if (!spec_.has_value()) {
      ASSIGN_OR_RETURN(spec_, LearnSpec());
    }
    ASSIGN_OR_RETURN(*element, NoRows(*spec_, "a replica without data"));
    return absl::OkStatus();
  }

  // The spec of the elements: the known one, or that of the first element of the dataset that all
  // workers read.
  absl::StatusOr<ElementSpec> LearnSpec() const {
    if (example_.spec().has_value()) return *example_.spec();
    ASSIGN_OR_RETURN(auto iterator, example_.MakeIterator());
    Element first;
    ASSIGN_OR_RETURN(const bool any, iterator->Next(&first));
    if (!any) {
      return absl::FailedPreconditionError(
          "this worker's dataset is empty, and nothing is known of its elements, so that no empty "
          "ones can be made; give MapOptions::spec or the generator's spec");
    }
    return SpecOf(first);
  }

  const std::vector<std::unique_ptr<DatasetIterator>> feeds_;
  const InputStrategy strategy_;
  const std::vector<Device> devices_;
  const bool places_;
  const bool partial_;
  const Dataset example_;
  std::optional<ElementSpec> spec_;
  std::vector<bool> missing_;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<Dataset> DatasetOfWorker(const Dataset& dataset, const InputStrategy& strategy) {
  RETURN_IF_ERROR(dataset.status());
  RETURN_IF_ERROR(CheckStrategy(strategy));
  const int64_t replicas = strategy.workers * strategy.local_replicas;
  const bool rebatch = strategy.splits && replicas > 1;
  const AutoShardPolicy policy = dataset.auto_shard_policy();
  // When sharding by element, the sub-batches are divided: every worker cuts all batches alike, one
  // by one, and takes its share. Otherwise each worker cuts the stream that it reads.
  ASSIGN_OR_RETURN(const AutoSharded plain,
                   AutoShard(dataset, policy, strategy.workers, strategy.worker));
  if (!rebatch) return plain.dataset;
  ASSIGN_OR_RETURN(const int64_t batch_size, ComputeBatchSize(dataset));
  if (plain.applied == AutoShardPolicy::kData) {
    ASSIGN_OR_RETURN(AutoSharded divided,
                     AutoShard(dataset.LegacyRebatch(replicas), AutoShardPolicy::kData,
                               strategy.workers, strategy.worker));
    return std::move(divided.dataset);
  }
  if (batch_size < 0) return plain.dataset.LegacyRebatch(replicas);
  ASSIGN_OR_RETURN(
      std::vector<int64_t> sizes,
      BatchSizesForWorker(batch_size, strategy.workers, strategy.local_replicas, strategy.worker));
  return plain.dataset.Rebatch(std::move(sizes));
}

absl::StatusOr<std::unique_ptr<DistributedIterator>> DistributedDataset::MakeIterator() const {
  const std::vector<Device> devices = DevicesOf(strategy_);
  std::vector<std::unique_ptr<DatasetIterator>> feeds;
  bool is_static = true;
  bool infinite = true;
  for (size_t i = 0; i < datasets_.size(); ++i) {
    const std::vector<Device> own =
        datasets_.size() == 1 ? devices : std::vector<Device>{devices[i]};
    const Dataset feed = Feed(datasets_[i], own, strategy_, options_);
    RETURN_IF_ERROR(feed.status());
    // The feed is new in every pass, so the underlying dataset counts the passes.
    const IterationContext context{.pass = datasets_[i].node()->NextPass()};
    ASSIGN_OR_RETURN(feeds.emplace_back(), feed.node()->MakeIterator(context));
    is_static = is_static && IsStatic(datasets_[i].spec());
    infinite = infinite && datasets_[i].cardinality() == kInfiniteCardinality;
  }
  const bool partial =
      strategy_.partial_steps && !infinite && (!is_static || strategy_.workers > 1);
  return std::make_unique<StepIterator>(std::move(feeds), strategy_, Places(options_), partial,
                                        example_);
}

absl::StatusOr<DistributedDataset> DistributeDataset(const Dataset& dataset,
                                                     const InputStrategy& strategy,
                                                     const InputOptions& options) {
  if (options.replication_mode == InputReplicationMode::kPerReplica) {
    return absl::UnimplementedError(
        "replication_mode kPerReplica is for DistributeDatasetsFromFunction: one dataset cannot be "
        "made anew for every replica");
  }
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(Dataset share, DatasetOfWorker(dataset, strategy));
  return DistributedDataset({std::move(share)}, strategy, options, dataset);
}

absl::StatusOr<DistributedDataset> DistributeDatasetsFromFunction(
    const DatasetInputFunction& function, const InputStrategy& strategy,
    const InputOptions& options) {
  if (function == nullptr) {
    return absl::InvalidArgumentError(
        "DistributeDatasetsFromFunction: found no function; give one that can be called");
  }
  RETURN_IF_ERROR(CheckStrategy(strategy));
  bool per_replica = options.replication_mode == InputReplicationMode::kPerReplica;
  if (per_replica && strategy.per_replica == InputStrategy::PerReplica::kRefused) {
    return absl::UnimplementedError(
        "replication_mode kPerReplica is only for MirroredStrategy; use kPerWorker, in which the "
        "replicas of a worker take elements of one dataset in turn");
  }
  RETURN_IF_ERROR(CheckOptions(options));
  per_replica = per_replica && strategy.per_replica == InputStrategy::PerReplica::kSupported;
  const int64_t replicas = strategy.workers * strategy.local_replicas;
  std::vector<Dataset> datasets;
  for (int64_t i = 0; i < (per_replica ? strategy.local_replicas : 1); ++i) {
    const InputContext context =
        per_replica
            ? InputContext(replicas, strategy.worker * strategy.local_replicas + i, replicas)
            : InputContext(strategy.workers, strategy.worker, replicas);
    ASSIGN_OR_RETURN(Dataset made, CatchExceptions("the function of DistributeDatasetsFromFunction",
                                                   [&] { return function(context); }));
    RETURN_IF_ERROR(made.status());
    datasets.push_back(std::move(made));
  }
  const Dataset example = datasets.front();
  return DistributedDataset(std::move(datasets), strategy, options, example);
}

}  // namespace cairn
