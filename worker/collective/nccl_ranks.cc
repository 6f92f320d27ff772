#include "worker/collective/nccl_ranks.h"

#include <cuda_runtime_api.h>

#include <iterator>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/status.h"
#include "worker/collective/nccl_library.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// Limit of connecting and of a call of Reduce; the first calls of a size open further connections.
constexpr absl::Duration kTimeout = absl::Seconds(60);
// Queueing takes about 20 us.
constexpr int kLooksWithoutPause = 200;
constexpr absl::Duration kLookPause = absl::Microseconds(20);

// The failure that the ranks share. Thread safety: any thread.
class Failure {
 public:
  void Set(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (!why_.ok()) return;
    why_ =
        absl::AbortedError(absl::StrCat("sums over GPUs were given up: ",
                                        why.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  }
  absl::Status Get() const {
    absl::MutexLock lock(&mutex_);
    return why_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

// The communicator does not block, so that a rank always notices that another one gave up. Only the
// rank's own thread uses the communicator.
class NcclRank final : public DeviceRank {
 public:
  NcclRank(Device device, std::shared_ptr<Failure> failure)
      : device_(device), failure_(std::move(failure)) {}
  ~NcclRank() override { End(); }

  // Makes the calling thread work on this device.
  absl::Status Select() const { return Named(cudaSetDevice(PhysicalGpu(device_)), "select"); }
  // Starts to connect; Ready waits for it. Called for all ranks between NCCL's group calls.
  absl::Status Begin(const ncclUniqueId& id, int rank, int ranks);
  absl::Status Ready(absl::string_view what, Deadline deadline);

  absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) override;
  absl::Status Check() override;
  void Fail(const absl::Status& why) override { failure_->Set(why); }
  void Abandon(const absl::Status& why) override {
    failure_->Set(why);
    comm_ = nullptr;
  }

 private:
  absl::Status Named(cudaError_t error, absl::string_view what) const;
  absl::Status Named(ncclResult_t result, absl::string_view what) const;
  // Aborts queued work, if any.
  void End() {
    if (comm_ != nullptr) Nccl::Get().abort(std::exchange(comm_, nullptr));
  }

  const Device device_;
  const std::shared_ptr<Failure> failure_;
  ncclComm_t comm_ = nullptr;
};

absl::Status NcclRank::Named(cudaError_t error, absl::string_view what) const {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return absl::InternalError(
      absl::StrCat(device_.text(), ": CUDA: ", what, ": ", cudaGetErrorString(error)));
}

absl::Status NcclRank::Named(ncclResult_t result, absl::string_view what) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(device_.text(), ": NCCL: ", what, ": ", Nccl::Get().error_text(result)));
}

absl::Status NcclRank::Begin(const ncclUniqueId& id, int rank, int ranks) {
  RETURN_IF_ERROR(Select());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Named(Nccl::Get().init_rank(&comm_, ranks, id, rank, &config), "connect");
}

absl::Status NcclRank::Ready(absl::string_view what, Deadline deadline) {
  for (int looks = 0;; ++looks) {
    RETURN_IF_ERROR(failure_->Get());
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(Named(Nccl::Get().async_error(comm_, &state), what));
    if (state != ncclInProgress) return Named(state, what);
    if (looks < kLooksWithoutPause) continue;
    if (deadline.Expired()) {
      return absl::DeadlineExceededError(
          absl::StrCat(device_.text(), ": NCCL: ", what, " was not done in ",
                       absl::FormatDuration(kTimeout), ": another GPU hangs, or others use it"));
    }
    absl::SleepFor(kLookPause);
  }
}

// NCCL may queue the work from its own thread; later work in the stream is queued when NCCL has
// finished.
absl::Status NcclRank::Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) {
  RETURN_IF_ERROR(Check());
  const Nccl& nccl = Nccl::Get();
  absl::Status status = Named(nccl.group_start(), "reduce");
  for (const RankSum& sum : sums) {
    if (!status.ok()) break;
    const ncclResult_t queued =
        sum.root == RankSum::kAllRanks
            ? nccl.all_reduce(sum.x, sum.x, sum.count, ncclFloat32, ncclSum, comm_, stream)
            : nccl.reduce(sum.x, sum.x, sum.count, ncclFloat32, ncclSum, sum.root, comm_, stream);
    status = Named(queued, "reduce");
  }
  const absl::Status ended = Named(nccl.group_end(), "reduce");
  if (status.ok()) status = ended;
  if (status.ok()) status = Ready("reduce", Deadline::In(kTimeout));
  if (!status.ok()) failure_->Set(status);
  return status.ok() ? status : Check();
}

absl::Status NcclRank::Check() {
  absl::Status why = failure_->Get();
  if (why.ok()) {
    ncclResult_t state = ncclSuccess;
    absl::Status own = Named(Nccl::Get().async_error(comm_, &state), "sum");
    if (own.ok()) own = Named(state, "sum");
    if (own.ok()) return own;
    failure_->Set(own);
    why = failure_->Get();
  }
  End();
  return why;
}

absl::Status Connect(absl::Span<const std::unique_ptr<NcclRank>> ranks) {
  const Nccl& nccl = Nccl::Get();
  const auto named = [&](ncclResult_t result, absl::string_view what) -> absl::Status {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("NCCL: ", what, ": ", nccl.error_text(result)));
  };
  // Before any NCCL call for these ranks.
  for (const std::unique_ptr<NcclRank>& rank : ranks) RETURN_IF_ERROR(rank->Select());
  ncclUniqueId id = {};
  RETURN_IF_ERROR(named(nccl.unique_id(&id), "unique id"));
  RETURN_IF_ERROR(named(nccl.group_start(), "connect"));
  absl::Status status;
  for (size_t r = 0; r < ranks.size() && status.ok(); ++r) {
    status = ranks[r]->Begin(id, static_cast<int>(r), static_cast<int>(ranks.size()));
  }
  status.Update(named(nccl.group_end(), "connect"));
  const Deadline deadline = Deadline::In(kTimeout);
  for (const std::unique_ptr<NcclRank>& rank : ranks) {
    if (status.ok()) status = rank->Ready("connecting", deadline);
  }
  return status;
}

// NCCL refuses two ranks on one GPU.
absl::Status CheckDistinct(absl::Span<const Device> devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (PhysicalGpu(devices[i]) != PhysicalGpu(devices[j])) continue;
      return absl::FailedPreconditionError(absl::StrCat("NCCL: ", devices[j].text(), " and ",
                                                        devices[i].text(), " are the same GPU"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(
    absl::Span<const Device> devices) {
  RETURN_IF_ERROR(Nccl::Get().library.status());
  RETURN_IF_ERROR(CheckDistinct(devices));
  const auto failure = std::make_shared<Failure>();
  std::vector<std::unique_ptr<NcclRank>> ranks;
  ranks.reserve(devices.size());
  for (const Device device : devices) ranks.push_back(std::make_unique<NcclRank>(device, failure));
  const KeepCurrentGpu keep;
  RETURN_IF_ERROR(Connect(ranks));
  return std::vector<std::unique_ptr<DeviceRank>>(std::make_move_iterator(ranks.begin()),
                                                  std::make_move_iterator(ranks.end()));
}

}  // namespace cairn
