#include "worker/coordinator/per_worker_dataset.h"

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/context.h"
#include "worker/strategy/variable.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {

PerWorkerDataset::PerWorkerDataset(DatasetFactory factory, int32_t workers)
    : factory_(std::move(factory)),
      of_worker_(static_cast<size_t>(workers),
                 absl::FailedPreconditionError("the dataset has not been made")) {}

std::shared_ptr<PerWorkerIterator> PerWorkerDataset::MakeIterator() {
  absl::MutexLock lock(&mutex_);
  return std::shared_ptr<PerWorkerIterator>(
      new PerWorkerIterator(shared_from_this(), of_worker_.size()));
}

absl::Status PerWorkerDataset::Make(int32_t worker) {
  absl::StatusOr<Dataset> made = absl::InternalError("the factory was not called");
  std::atomic<bool> creates_variables = false;
  const absl::Status called = OutsideEveryScope([&] {
    const WorkerScope scope(worker);
    const VariableCreatorScope refuse(
        [&creates_variables](const VariableCreatorScope::Next&,
                             const VariableOptions& options) -> absl::StatusOr<VariablePtr> {
          creates_variables = true;
          return InvalidArgument("variable \"", options.name, "\" in a dataset factory");
        });
    made = CatchExceptions("its factory", [&] { return factory_(worker); });
    return made.status();
  });
  absl::Status failed = creates_variables
                            ? absl::InvalidArgumentError(
                                  "its factory creates a variable; create variables before it, in "
                                  "the strategy's scope")
                            : called;
  if (failed.ok()) failed = made->status();
  failed = Annotate(failed, absl::StrCat("dataset of worker ", worker));
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Made>& slot = of_worker_[static_cast<size_t>(worker)];
  if (!failed.ok()) {
    slot = failed;
    return failed;
  }
  static std::atomic<int64_t> versions = 0;
  slot = Made{.dataset = *std::move(made), .version = ++versions};
  return absl::OkStatus();
}

absl::StatusOr<PerWorkerDataset::Made> PerWorkerDataset::Of(int32_t worker) const {
  absl::MutexLock lock(&mutex_);
  return of_worker_[static_cast<size_t>(worker)];
}

absl::StatusOr<bool> PerWorkerIterator::Next(Element* element) {
  const std::optional<int32_t> worker = CurrentWorker();
  if (!worker || static_cast<size_t>(*worker) >= passes_.size()) {
    return absl::UnimplementedError(
        "next element of a per-worker dataset outside a scheduled function: every worker has its "
        "own elements; capture the iterator in a function and schedule that");
  }
  RETURN_IF_ERROR(CurrentCancellation().status());
  if (element == nullptr) {
    return absl::InvalidArgumentError("next element of a per-worker dataset: its place is null");
  }
  Pass& pass = passes_[static_cast<size_t>(*worker)];
  absl::MutexLock lock(&pass.mutex);
  ASSIGN_OR_RETURN(const PerWorkerDataset::Made made, dataset_->Of(*worker));
  if (pass.iterator == nullptr || pass.version != made.version) {
    ASSIGN_OR_RETURN(pass.iterator, made.dataset.MakeIterator());
    pass.version = made.version;
  }
  return pass.iterator->Next(element);
}

}  // namespace cairn
