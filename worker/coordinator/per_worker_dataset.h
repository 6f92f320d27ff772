// A dataset for each worker of a coordinator, made by a single factory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

// Makes the dataset of worker `worker`. Called outside every scope; must not create variables.
using DatasetFactory = std::function<absl::StatusOr<Dataset>(int32_t worker)>;

class PerWorkerIterator;

// Thread safety: every method may be called from several threads at once.
class PerWorkerDataset : public std::enable_shared_from_this<PerWorkerDataset> {
 public:
  // Use ClusterCoordinator::CreatePerWorkerDataset.
  PerWorkerDataset(DatasetFactory factory, int32_t workers);

  // One pass over each worker's dataset, for functions to capture.
  std::shared_ptr<PerWorkerIterator> MakeIterator();

 private:
  friend class ClusterCoordinator;
  friend class PerWorkerIterator;
  struct Made {
    Dataset dataset;
    int64_t version = 0;  // number of times the factory made it
  };

  // Calls the factory for `worker`. Errors: the factory's; kInvalidArgument: it created a variable.
  absl::Status Make(int32_t worker);
  absl::StatusOr<Made> Of(int32_t worker) const;

  const DatasetFactory factory_;
  mutable absl::Mutex mutex_;
  std::vector<absl::StatusOr<Made>> of_worker_ ABSL_GUARDED_BY(mutex_);
};

// Thread safety: every method may be called from several threads at once. The replicas of a
// function get different elements, in no particular order.
class PerWorkerIterator {
 public:
  // The next element for the calling function's worker; false at the end of the worker's dataset. A
  // lost worker starts again from the first element. kUnimplemented: called outside a scheduled
  // function. kCancelled: the function was cancelled (cancellation.h).
  absl::StatusOr<bool> Next(Element* element);

 private:
  friend class PerWorkerDataset;
  struct Pass {
    absl::Mutex mutex;  // a function's replicas take elements at the same time
    int64_t version ABSL_GUARDED_BY(mutex) = 0;
    std::unique_ptr<DatasetIterator> iterator ABSL_GUARDED_BY(mutex);
  };
  PerWorkerIterator(std::shared_ptr<PerWorkerDataset> dataset, size_t workers)
      : dataset_(std::move(dataset)), passes_(workers) {}

  const std::shared_ptr<PerWorkerDataset> dataset_;
  std::vector<Pass> passes_;  // of each worker
};

}  // namespace cairn
