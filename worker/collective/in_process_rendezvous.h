// The rendezvous of ranks in one process: the n-th call of each rank waits for the n-th call of all
// others.
//
// `turn_` holds the number of the current call and how many ranks have arrived at it. The last rank
// to arrive completes the call and opens the next; a rank whose deadline expires earlier closes the
// call as failed and opens the next. A call with a number below the current turn, at which the rank
// was not counted, has failed. A counted rank learns the outcome from `completed_`.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/collective/collective_call.h"

namespace cairn {

class InProcessRendezvous {
 public:
  // Inputs up to this size are copied into the rendezvous, so their owners need not wait until the
  // others have read them.
  static constexpr size_t kSmallBytes = 4096;

  // A rank's contribution to a call. Other ranks may read it after their Meet returned OK.
  struct Part {
    CollectiveCall call;
    const void* in = nullptr;
    void* out = nullptr;
    alignas(64) std::byte small[kSmallBytes];
  };

  InProcessRendezvous(std::vector<std::string> devices, std::string name);

  int size() const { return static_cast<int>(devices_.size()); }
  const std::vector<std::string>& devices() const { return devices_; }

  // Begins call `number` (1, 2, …) of `rank`. Between Begin and End, the memory of a completed call
  // is not reused, even if another rank fails. The rank may fill the part until Meet.
  Part& Begin(int rank, uint64_t number);
  // Waits for all ranks. OK: every rank has arrived with its part, and Agreement may be called.
  absl::Status Meet(int rank, uint64_t number, Deadline deadline);
  void End(int rank);

  const Part& part(int rank, uint64_t number) const {
    return slots_[static_cast<size_t>(rank)].parts[number & 1];
  }
  absl::Status Agreement(uint64_t number) const;

  // Hands out blocks [0, count) of a completed call, each to one caller. False: none is left.
  bool TakeBlock(int64_t count, int64_t* block);
  // Counts a finished piece of the completed call; AwaitPieces returns once `count` are finished.
  void PieceDone(int64_t count);
  void AwaitPieces(int64_t count);

  void Abort(const absl::Status& why);
  absl::Status aborted() const;
  // Clears an Abort. Returns the number of the next call of every rank.
  absl::StatusOr<uint64_t> Reset();

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> inside = 0;  // number of the call that the rank is in; 0: none
    std::atomic<uint64_t> came = 0;    // number of the last call that it arrived at
    Part parts[2];                     // for odd and even calls
  };

  // turn_ = number * kTurn + ranks that have come.
  static constexpr uint64_t kTurn = 1024;

  bool Arrive(int rank, uint64_t number);
  // Closes call `number` unless all ranks have arrived or another rank has closed it.
  void Fail(uint64_t number, absl::StatusCode code, const std::string& why);
  absl::Status Failure(int rank, uint64_t number) const;
  std::string MissingText(uint64_t number) const;
  void Wake();

  template <typename Done>
  bool WaitFor(Done done, Deadline deadline);

  const std::vector<std::string> devices_;
  const std::string name_;
  const int spins_;
  std::vector<Slot> slots_;
  alignas(64) std::atomic<uint64_t> turn_ = kTurn;
  std::atomic<uint64_t> completed_ = 0;
  alignas(64) std::atomic<int64_t> next_block_ = 0;
  alignas(64) std::atomic<int64_t> pieces_done_ = 0;
  alignas(64) std::atomic<int> sleepers_ = 0;
  std::atomic<bool> is_aborted_ = false;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  absl::Status last_failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
