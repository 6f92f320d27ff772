// A dataset for each worker of a coordinator, made there by one factory.
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

// Makes worker `worker`'s dataset; it is called outside every scope and must create no variables.
using DatasetFactory = std::function<absl::StatusOr<Dataset>(int32_t worker)>;

class PerWorkerIterator;

// Thread safety: every method may be called from several threads at once.
class PerWorkerDataset : public std::enable_shared_from_this<PerWorkerDataset> {
 public:
  // Use ClusterCoordinator::CreatePerWorkerDataset.
  PerWorkerDataset(DatasetFactory factory, int32_t workers);

  // One pass for each worker, for functions to capture.
  std::shared_ptr<PerWorkerIterator> MakeIterator();

 private:
  friend class ClusterCoordinator;
  friend class PerWorkerIterator;
  struct Made {
    Dataset dataset;
    int64_t version = 0;  // how often the factory made it
  };

  // Calls the factory for `worker`. Its error, or kInvalidArgument: it created a variable.
  absl::Status Make(int32_t worker);
  absl::StatusOr<Made> Of(int32_t worker) const;

  const DatasetFactory factory_;
  mutable absl::Mutex mutex_;
  std::vector<absl::StatusOr<Made>> of_worker_ ABSL_GUARDED_BY(mutex_);
};

// Thread safety: every method may be called from several threads at once; the functions of one
// worker run one after the other.
class PerWorkerIterator {
 public:
  // The next element of the calling function's worker; false at the end of its dataset. A worker
  // that was lost begins anew. kUnimplemented: called outside a scheduled function. kCancelled: the
  // function was cancelled (cancellation.h).
  absl::StatusOr<bool> Next(Element* element);

 private:
  friend class PerWorkerDataset;
  struct Pass {
    int64_t version = 0;
    std::unique_ptr<DatasetIterator> iterator;
  };
  PerWorkerIterator(std::shared_ptr<PerWorkerDataset> dataset, size_t workers)
      : dataset_(std::move(dataset)), passes_(workers) {}

  const std::shared_ptr<PerWorkerDataset> dataset_;
  std::vector<Pass> passes_;  // each touched by its worker's thread alone
};

}  // namespace cairn
