#include "worker/collective/nccl_ranks.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/hash.h"
#include "common/status.h"
#include "worker/collective/collective_call.h"
#include "worker/collective/gather_values.h"
#include "worker/collective/nccl_library.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// Looks without a pause first, because NCCL queues work in about 20 us.
constexpr int kLooksWithoutPause = 200;
constexpr absl::Duration kLookPause = absl::Microseconds(20);
// A process that has waited for kFirstRequest asks the others whether they still run, then again
// after every kRequestPause. A request waits at most kRequestTimeout for answers.
constexpr absl::Duration kFirstRequest = absl::Seconds(1);
constexpr absl::Duration kRequestPause = absl::Milliseconds(500);
constexpr absl::Duration kRequestTimeout = absl::Milliseconds(200);
// How long a process looks for the other process that ended its connections.
constexpr absl::Duration kExplanationTimeout = absl::Seconds(2);
constexpr absl::Duration kExplanationPause = absl::Milliseconds(50);

// A rank's wait of at most `limit` for the other ranks: when it may ask the other processes.
struct Wait {
  explicit Wait(absl::Duration limit)
      : end(Deadline::In(limit)),
        first_request(Deadline::In(kFirstRequest)),
        last_request(Deadline::In(limit - std::min(2 * kRequestTimeout, limit / 4))) {}

  Deadline end, first_request, last_request;
};

// State that the ranks of a process share: their failure, and the connection to the other
// processes. Thread safety: any thread.
class Failure {
 public:
  explicit Failure(const NcclPeers& peers) : peers_(peers) {}

  void Set(const absl::Status& why) {
    {
      absl::MutexLock lock(&mutex_);
      if (!why_.ok()) return;
      why_ = Aborted("sums over GPUs were given up: ",
                     why.ToString(absl::StatusToStringMode::kWithNoExtraData));
    }
    if (peers_.workers != nullptr) peers_.workers->Abort(why);
  }
  absl::Status Get() const {
    absl::MutexLock lock(&mutex_);
    return why_;
  }

  // Call repeatedly during a wait. Returns an error if the wait is in vain; Get returns it from
  // then on.
  absl::Status Look(const Wait& wait) {
    absl::MutexLock lock(&peers_mutex_);
    return Note(FindFault(wait));
  }
  // Returns the failure of another process that explains `own`, NCCL's error for a lost connection,
  // which names no process; Get returns it from then on. Returns `own` if no process failed.
  absl::Status Explain(const absl::Status& own) {
    if (peers_.workers == nullptr) return own;
    absl::MutexLock lock(&peers_mutex_);
    const Deadline end = Deadline::In(kExplanationTimeout);
    for (;; absl::SleepFor(kExplanationPause)) {
      const absl::Status fault =
          peers_.workers->FindFault(/*silence_is_fault=*/false, Deadline::In(kRequestTimeout));
      if (!fault.ok()) return Note(fault);
      if (end.Expired()) return own;
    }
  }
  // Like Look, but outside of waits: only failures that another process has reported.
  absl::Status Reported() {
    return Note(peers_.workers == nullptr ? absl::OkStatus() : peers_.workers->usable());
  }

 private:
  absl::Status Note(const absl::Status& fault) {
    absl::MutexLock lock(&mutex_);
    if (why_.ok()) why_ = fault;
    return why_;
  }
  absl::Status FindFault(const Wait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(peers_mutex_) {
    if (peers_.workers == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(peers_.workers->usable());
    if (wait.last_request.Expired()) {
      RETURN_IF_ERROR(peers_.workers->FindFault(
          /*silence_is_fault=*/true,
          Deadline::In(std::max(wait.end.Remaining() / 2, kRequestTimeout / 2))));
      const absl::Status late = absl::DeadlineExceededError(
          "NCCL: a sum over the workers' GPUs was not done in time: all workers answer; is a GPU "
          "busy or hung?");
      peers_.workers->Abort(late);
      return late;
    }
    if (!wait.first_request.Expired() || !next_request_.Expired()) return absl::OkStatus();
    next_request_ = Deadline::In(kRequestPause);
    return peers_.workers->FindFault(
        /*silence_is_fault=*/false,
        Deadline::Earlier(wait.last_request, Deadline::In(kRequestTimeout)));
  }

  const NcclPeers peers_;
  absl::Mutex peers_mutex_;  // held while a rank asks the other processes
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  // One rank asks for all: each request holds up the others.
  Deadline next_request_ ABSL_GUARDED_BY(peers_mutex_) = Deadline::In(absl::ZeroDuration());
};

absl::Status CheckNccl(ncclResult_t result, absl::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return Internal("NCCL: ", what, ": ", Nccl::Get().error_text(result));
}

// A GPU of the communicator. Its bytes are exchanged between processes.
struct Seat {
  int64_t worker;
  int64_t gpu;  // number of the GPU in the worker
  // Equal in two seats exactly if they are one GPU.
  uint64_t host;
  uint64_t address;

  static constexpr size_t kWords = 4;
};
static_assert(sizeof(Seat) == Seat::kWords * sizeof(int64_t), "sent as raw bytes: no padding");

// The communicator does not block, so that a rank always notices that another one gave up. Only the
// rank's own thread uses the communicator.
class NcclRank final : public DeviceRank {
 public:
  NcclRank(Device device, std::shared_ptr<Failure> failure, absl::Duration timeout)
      : device_(device), failure_(std::move(failure)), timeout_(timeout) {}
  ~NcclRank() override { End(); }

  // Makes this device the calling thread's current one.
  absl::Status Select() const { return Named(cudaSetDevice(PhysicalGpu(device_)), "select"); }
  absl::StatusOr<Seat> SeatOf(int worker) const;
  // Starts to connect; Ready waits for the connection. Called for all ranks between NCCL's group
  // calls.
  absl::Status Begin(const ncclUniqueId& id, int rank, int ranks);
  absl::Status Ready(absl::string_view what, absl::Duration limit);

  absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) override;
  absl::Status Check() override { return CheckState(/*waits=*/true); }
  absl::Status Usable() override { return CheckState(/*waits=*/false); }
  absl::Duration limit() const override { return timeout_; }
  void Fail(const absl::Status& why) override { failure_->Set(why); }
  void Abandon(const absl::Status& why) override {
    failure_->Set(why);
    comm_ = nullptr;
  }

 private:
  absl::Status Named(cudaError_t error, absl::string_view what) const;
  absl::Status Named(ncclResult_t result, absl::string_view what) const;
  // The communicator's error, if it has one; the failure of another process that led to it, if
  // there is one. Sets `state`.
  absl::Status AsyncError(absl::string_view what, ncclResult_t* state);
  absl::Status CheckState(bool waits);
  // Aborts the queued work, if any, and the connection.
  void End() {
    if (comm_ != nullptr) Nccl::Get().abort(std::exchange(comm_, nullptr));
  }

  const Device device_;
  const std::shared_ptr<Failure> failure_;
  const absl::Duration timeout_;
  Wait wait_{absl::ZeroDuration()};  // for the sums in progress, or for the connection
  ncclComm_t comm_ = nullptr;
};

absl::Status NcclRank::Named(cudaError_t error, absl::string_view what) const {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return Internal(device_.text(), ": CUDA: ", what, ": ", cudaGetErrorString(error));
}

absl::Status NcclRank::Named(ncclResult_t result, absl::string_view what) const {
  return Annotate(CheckNccl(result, what), device_.text());
}

absl::Status NcclRank::AsyncError(absl::string_view what, ncclResult_t* state) {
  RETURN_IF_ERROR(Named(Nccl::Get().async_error(comm_, state), what));
  const absl::Status error = Named(*state, what);
  const bool lost = *state == ncclRemoteError || *state == ncclSystemError;
  return lost ? failure_->Explain(error) : error;
}

absl::StatusOr<Seat> NcclRank::SeatOf(int worker) const {
  RETURN_IF_ERROR(Select());
  char address[32] = {};
  RETURN_IF_ERROR(
      Named(cudaDeviceGetPCIBusId(address, sizeof(address), PhysicalGpu(device_)), "address"));
  // NCCL takes processes with different NCCL_HOSTID for different hosts, too.
  const char* const host_id = std::getenv("NCCL_HOSTID");
  std::string host = host_id == nullptr ? "" : host_id;
  if (host.empty()) std::ifstream("/proc/sys/kernel/random/boot_id") >> host;
  return Seat{worker, device_.index, HashBytes(host), HashBytes(address)};
}

absl::Status NcclRank::Begin(const ncclUniqueId& id, int rank, int ranks) {
  RETURN_IF_ERROR(Select());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Named(Nccl::Get().init_rank(&comm_, ranks, id, rank, &config), "connect");
}

absl::Status NcclRank::Ready(absl::string_view what, absl::Duration limit) {
  wait_ = Wait(limit);
  for (int polls = 0;; ++polls) {
    RETURN_IF_ERROR(failure_->Get());
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(AsyncError(what, &state));
    if (state != ncclInProgress) return absl::OkStatus();
    if (polls < kLooksWithoutPause) continue;
    RETURN_IF_ERROR(failure_->Look(wait_));
    if (wait_.end.Expired()) {
      return DeadlineExceeded(device_.text(), ": NCCL: ", what, " was not done in ",
                              absl::FormatDuration(limit), ": another GPU hangs, or others use it");
    }
    absl::SleepFor(kLookPause);
  }
}

// NCCL may queue the work from a thread of its own, so this waits until NCCL has queued it: later
// work in the stream must follow it.
absl::Status NcclRank::Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) {
  wait_ = Wait(timeout_);
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
  if (status.ok()) status = Ready("reduce", timeout_);
  if (!status.ok()) failure_->Set(status);
  return status.ok() ? status : Check();
}

absl::Status NcclRank::CheckState(bool waits) {
  absl::Status why = failure_->Get();
  if (why.ok()) {
    ncclResult_t state = ncclSuccess;
    absl::Status own = AsyncError("sum", &state);
    if (own.ok()) own = waits ? failure_->Look(wait_) : failure_->Reported();
    if (own.ok()) return own;
    failure_->Set(own);
    why = failure_->Get();
  }
  End();
  return why;
}

using Ranks = std::vector<std::unique_ptr<NcclRank>>;

// Returns this worker's seats; on the first worker also creates NCCL's id.
absl::StatusOr<std::vector<Seat>> TakeSeats(const Ranks& ranks, int worker, ncclUniqueId* id) {
  RETURN_IF_ERROR(Nccl::Get().library.status());
  std::vector<Seat> seats;
  for (const std::unique_ptr<NcclRank>& rank : ranks) {
    ASSIGN_OR_RETURN(seats.emplace_back(), rank->SeatOf(worker));
  }
  if (worker == 0) RETURN_IF_ERROR(CheckNccl(Nccl::Get().unique_id(id), "unique id"));
  return seats;
}

// Exchanges the seats and returns those of all workers, in worker order. A worker with an error
// sends none, so that no other worker waits for it in NCCL.
absl::StatusOr<std::vector<Seat>> ShareSeats(const absl::StatusOr<std::vector<Seat>>& own,
                                             CollectiveGroup& workers, Deadline deadline) {
  std::vector<int64_t> words(own.ok() ? own->size() * Seat::kWords : 0), all;
  if (own.ok()) std::memcpy(words.data(), own->data(), words.size() * sizeof(int64_t));
  RETURN_IF_ERROR(GatherValues(workers, words, &all, deadline));
  RETURN_IF_ERROR(own.status());
  std::vector<Seat> seats(all.size() / Seat::kWords);
  std::memcpy(seats.data(), all.data(), all.size() * sizeof(int64_t));
  for (int worker = 0; worker < workers.size(); ++worker) {
    if (std::ranges::any_of(seats, [worker](const Seat& seat) { return seat.worker == worker; })) {
      continue;
    }
    return Unavailable("NCCL: ", RankText(worker, workers.peer(worker)),
                       " cannot use its GPUs; its own error says why");
  }
  return seats;
}

// NCCL does not allow two ranks on one GPU.
absl::Status CheckDistinct(absl::Span<const Seat> seats, const CollectiveGroup* workers) {
  const auto text = [workers](const Seat& seat) {
    const auto worker = static_cast<int>(seat.worker);
    return absl::StrCat(
        Gpu(static_cast<int32_t>(seat.gpu)).text(),
        workers == nullptr ? "" : absl::StrCat(" of ", RankText(worker, workers->peer(worker))));
  };
  for (size_t i = 0; i < seats.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (seats[i].host != seats[j].host || seats[i].address != seats[j].address) continue;
      return FailedPrecondition(
          "NCCL: ", text(seats[j]), " and ", text(seats[i]),
          " are the same GPU; give every replica its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES)");
    }
  }
  return absl::OkStatus();
}

absl::Status Connect(const Ranks& ranks, const NcclPeers& peers) {
  const Deadline deadline = Deadline::In(peers.connect_timeout);
  const int worker = peers.workers == nullptr ? 0 : peers.workers->rank();
  ncclUniqueId id = {};
  absl::StatusOr<std::vector<Seat>> seats = TakeSeats(ranks, worker, &id);
  if (peers.workers != nullptr) seats = ShareSeats(seats, *peers.workers, deadline);
  RETURN_IF_ERROR(seats.status());
  RETURN_IF_ERROR(CheckDistinct(*seats, peers.workers));
  if (peers.workers != nullptr) {
    static_assert(sizeof(id) % sizeof(int64_t) == 0);
    constexpr int64_t kWords = sizeof(id) / sizeof(int64_t);
    int64_t words[kWords];
    std::memcpy(words, &id, sizeof(id));
    RETURN_IF_ERROR(peers.workers->Broadcast(0, {DType::kInt64, words, kWords}, deadline));
    std::memcpy(&id, words, sizeof(id));
  }
  const auto first = std::ranges::find(*seats, worker, &Seat::worker);
  const Nccl& nccl = Nccl::Get();
  RETURN_IF_ERROR(CheckNccl(nccl.group_start(), "connect"));
  absl::Status status;
  auto number = static_cast<int>(first - seats->begin());
  for (const std::unique_ptr<NcclRank>& rank : ranks) {
    if (status.ok()) status = rank->Begin(id, number++, static_cast<int>(seats->size()));
  }
  status.Update(CheckNccl(nccl.group_end(), "connect"));
  for (const std::unique_ptr<NcclRank>& rank : ranks) {
    if (status.ok()) status = rank->Ready("connecting", deadline.Remaining());
  }
  return status;
}

}  // namespace

bool HasNccl() { return true; }

absl::Status NcclStatus() { return Nccl::Get().library.status(); }

absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(
    absl::Span<const Device> devices, const NcclPeers& peers) {
  const auto failure = std::make_shared<Failure>(peers);
  Ranks ranks;
  for (const Device device : devices) {
    ranks.push_back(std::make_unique<NcclRank>(device, failure, peers.timeout));
  }
  const KeepCurrentGpu keep;
  RETURN_IF_ERROR(Connect(ranks, peers));
  return std::vector<std::unique_ptr<DeviceRank>>(std::make_move_iterator(ranks.begin()),
                                                  std::make_move_iterator(ranks.end()));
}

}  // namespace cairn
