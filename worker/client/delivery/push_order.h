// Numbers a worker's pushes and assigns: one at a time, in order, with what each server must know
// of those before (EXACTLY_ONCE.md: sequence, after, through).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/server_table.h"

namespace cairn {

// Thread safety: TakeTurn and settled may be called from several threads at once; the rest belongs
// to the thread whose turn it is (Reset: before the first turn, or in one).
class PushOrder {
 public:
  // `sessions` outlives this.
  explicit PushOrder(const ServerTable& sessions) : sessions_(sessions) {}

  // A new start, which resumes after `sequence` with the user's `position`.
  void Reset(int64_t sequence, std::string position);

  // The number of the next push. In a turn.
  int64_t next() const { return next_; }
  // Numbers up to this one get no part on any server any more. Known before the sessions are told.
  int64_t settled() const { return settled_.load(); }

  // Waits until no other push is under way. Pair with EndTurn. kDeadlineExceeded says what the
  // other one waits for.
  absl::Status TakeTurn(Deadline deadline);
  void EndTurn();
  // What the push whose turn it is waits for, to be told to those that wait for it. A literal.
  void WaitsFor(absl::string_view what);

  // Gives the calls of `exchanges` that update something the next number.
  //   position  the user's; nullptr: that of the push before (assigns have none of their own).
  // kFailedPrecondition: an earlier push's fate is not known, or it was fenced. kInvalidArgument:
  // position too long.
  absl::Status Number(absl::Span<Exchange* const> exchanges, const absl::string_view* position);
  // The number that they have, all of them, once more: a server that had no part of it has one now.
  // Errors as Number.
  absl::Status NumberAgain(absl::Span<Exchange* const> exchanges);
  // The server has applied its part. False: send it again (ServerSession::PushAnswered).
  bool Answered(const Exchange& exchange);
  // After the last attempt of the numbered calls, which ended with `status`.
  void Settle(absl::Span<Exchange* const> exchanges, const absl::Status& status);

 private:
  const ServerTable& sessions_;
  absl::Mutex mutex_;
  MonotonicCondVar freed_;
  bool free_ ABSL_GUARDED_BY(mutex_) = true;
  absl::string_view waits_for_ ABSL_GUARDED_BY(mutex_);  // a literal
  absl::Time waits_since_ ABSL_GUARDED_BY(mutex_);

  int64_t next_ = 1;
  std::atomic<int64_t> settled_{0};
  std::string position_;            // the user's, of the last push
  std::string numbered_position_;   // that of the push under way
  std::string encoded_;             // scratch
  std::vector<int64_t> last_part_;  // scratch, by server
  absl::Status broken_;             // not OK: no push can follow
};

}  // namespace cairn
