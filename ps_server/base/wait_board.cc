#include "ps_server/base/wait_board.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/time_text.h"

namespace cairn {
namespace {

struct Caller {
  absl::string_view job;
  int32_t worker = -1;
};
thread_local Caller caller;

}  // namespace

WaitBoard::Calling::Calling(absl::string_view job, int32_t worker)
    : job_before_(caller.job), worker_before_(caller.worker) {
  caller = {job, worker};
}

WaitBoard::Calling::~Calling() { caller = {job_before_, worker_before_}; }

WaitBoard::Waiting::Waiting(WaitBoard* board, absl::string_view waits_for, absl::string_view what)
    : board_(board) {
  if (board_ == nullptr) return;
  Entry entry{
      .job = std::string(caller.job),
      .worker = caller.worker,
      .waits_for = std::string(waits_for),
      .text = absl::StrCat(caller.worker >= 0
                               ? absl::StrCat("worker ", caller.worker, " of job ", caller.job)
                           : caller.job.empty() ? "a call"
                                                : absl::StrCat("a tool of job ", caller.job),
                           " waits for ", what),
      .since = MonotonicNow()};
  absl::MutexLock lock(&board_->mutex_);
  entry_ = board_->entries_.insert(board_->entries_.end(), std::move(entry));
}

WaitBoard::Waiting::~Waiting() {
  if (board_ == nullptr) return;
  absl::MutexLock lock(&board_->mutex_);
  board_->entries_.erase(entry_);
}

TracedLock::TracedLock(absl::Mutex* mutex, WaitBoard* board, absl::string_view waits_for,
                       absl::string_view what)
    : mutex_(mutex) {
  if (mutex_->TryLock()) return;
  const WaitBoard::Waiting waiting(board, waits_for, what);
  mutex_->Lock();
}

TracedReaderLock::TracedReaderLock(absl::Mutex* mutex, WaitBoard* board,
                                   absl::string_view waits_for, absl::string_view what)
    : mutex_(mutex) {
  if (mutex_->ReaderTryLock()) return;
  const WaitBoard::Waiting waiting(board, waits_for, what);
  mutex_->ReaderLock();
}

void WaitBoard::Count(std::map<std::string, int64_t>& counts) const {
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) ++counts[entry.waits_for];
}

void WaitBoard::List(absl::string_view job, std::vector<wire::WaitingCall>& waiting) const {
  const absl::Duration now = MonotonicNow();
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) {
    if (!entry.job.empty() && entry.job != job) continue;
    wire::WaitingCall call;
    call.worker = entry.worker;
    call.waits_for = entry.waits_for;
    call.seconds = absl::ToDoubleSeconds(now - entry.since);
    call.text = absl::StrCat(entry.text, ", since ", DurationText(now - entry.since), " ago");
    waiting.push_back(std::move(call));
  }
}

}  // namespace cairn
