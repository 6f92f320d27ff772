// Implements the program's clock, condition variables, locks and start numbers in simulated time,
// and the client's threads as fibers. These definitions replace those of common/deadline.cc,
// common/monotonic_cond_var.cc, common/start_number.cc, ps_server/base/wait_board.cc and
// worker/client/delivery/client_thread.cc: the linker finds them first, and leaves the others in
// their libraries.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "common/start_number.h"
#include "common/time_text.h"
#include "ps_server/base/wait_board.h"
#include "tests/simulator/fibers.h"
#include "worker/client/delivery/client_thread.h"

namespace cairn {

using simulator::kMillisecond;
using simulator::Nanos;
using simulator::Scheduler;

absl::Duration MonotonicNow() { return absl::Nanoseconds(Scheduler::Current().ReadClock()); }

int64_t TimedStartNumber() { return Scheduler::Current().ReadClock(); }

Deadline Deadline::In(absl::Duration timeout) {
  const Nanos now = Scheduler::Current().ReadClock();
  const Nanos room = std::numeric_limits<Nanos>::max() - now;
  return Deadline(now + std::clamp<Nanos>(absl::ToInt64Nanoseconds(timeout), 0, room));
}

absl::Duration Deadline::Remaining() const {
  return absl::Nanoseconds(std::max<Nanos>(0, at_ns_ - Scheduler::Current().ReadClock()));
}

absl::Duration Deadline::RemainingInWait() const { return Remaining(); }

void MonotonicCondVar::WaitUntil(absl::Mutex* mutex, Deadline deadline) {
  Scheduler& scheduler = Scheduler::Current();
  const Nanos left = absl::ToInt64Nanoseconds(deadline.Remaining());
  const Nanos read = scheduler.ReadClock();
  mutex->Unlock();
  scheduler.WaitOn(this, read + std::min(left, std::numeric_limits<Nanos>::max() - read));
  mutex->Lock();
}

void MonotonicCondVar::SignalAll() { Scheduler::Current().WakeAll(this); }

ClientThread StartClientThread(std::function<void()> body) {
  auto* const ended = new bool(false);
  Scheduler::Current().Spawn("a client's thread", [ended, body = std::move(body)] {
    body();
    *ended = true;
    Scheduler::Current().WakeAll(ended);
  });
  return std::shared_ptr<bool>(ended, [](const bool* flag) {
    while (!*flag) Scheduler::Current().WaitOn(flag, simulator::kForever);
    delete flag;
  });
}

WaitBoard::Calling::Calling(absl::string_view, int32_t) : worker_before_(-1) {}
WaitBoard::Calling::~Calling() = default;

WaitBoard::Waiting::Waiting(WaitBoard* board, absl::string_view waits_for, absl::string_view what)
    : board_(board) {
  if (board_ == nullptr) return;
  Entry entry{
      .waits_for = std::string(waits_for), .text = std::string(what), .since = MonotonicNow()};
  absl::MutexLock lock(&board_->mutex_);
  entry_ = board_->entries_.insert(board_->entries_.end(), std::move(entry));
}

WaitBoard::Waiting::~Waiting() {
  if (board_ == nullptr) return;
  absl::MutexLock lock(&board_->mutex_);
  board_->entries_.erase(entry_);
}

// A fiber that waits for a mutex must yield to its owner.
TracedLock::TracedLock(absl::Mutex* mutex, WaitBoard* board, absl::string_view waits_for,
                       absl::string_view what)
    : mutex_(mutex) {
  if (mutex_->TryLock()) return;
  const WaitBoard::Waiting waiting(board, waits_for, what);
  while (!mutex_->TryLock()) Scheduler::Current().Sleep(kMillisecond);
}

TracedReaderLock::TracedReaderLock(absl::Mutex* mutex, WaitBoard* board,
                                   absl::string_view waits_for, absl::string_view what)
    : mutex_(mutex) {
  if (mutex_->ReaderTryLock()) return;
  const WaitBoard::Waiting waiting(board, waits_for, what);
  while (!mutex_->ReaderTryLock()) Scheduler::Current().Sleep(kMillisecond);
}

void WaitBoard::Count(std::map<std::string, int64_t>& counts) const {
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) ++counts[entry.waits_for];
}

void WaitBoard::List(absl::string_view, std::vector<wire::WaitingCall>& waiting) const {
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) {
    wire::WaitingCall& call = waiting.emplace_back();
    call.waits_for = entry.waits_for;
    call.text = absl::StrCat("a call waits for ", entry.text, ", since ",
                             DurationText(MonotonicNow() - entry.since));
  }
}

}  // namespace cairn
