// Orders and numbers a worker's pushes and assigns, one at a time, and fills in what each server
// must know about earlier ones (EXACTLY_ONCE.md: sequence, after, through).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/call_lock.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/server_table.h"

namespace cairn {

// Thread safety: Acquire and settled may be called from several threads at once. The other methods
// belong to the thread that holds the order; Reset may also be called before the first Acquire.
class PushOrder {
 public:
  // `sessions` must outlive this object.
  explicit PushOrder(const ServerTable& sessions) : sessions_(sessions) {}

  // Starts anew after `sequence`, with the user's `position`.
  void Reset(int64_t sequence, std::string position);

  // The number of the next push.
  int64_t next() const { return next_; }
  // No server gets a further part of numbers up to this one. Updated before the sessions are.
  int64_t settled() const { return settled_.load(); }

  // Waits until no other push is being delivered. Pair with Release, also after an exception.
  // kDeadlineExceeded: names what the other push waits for.
  absl::Status Acquire(Deadline deadline);
  void Release() { lock_.Release(); }
  // Sets what the push that holds the order waits for; Acquire reports it.
  void WaitsFor(absl::string_view what);

  // Gives the updates in `exchanges` the next number.
  //   position  the user's; nullptr or empty: that of the push before. A worker that pushes without
  //             a position, or assigns, after a push with one still resumes there.
  // kFailedPrecondition: an earlier push's outcome is unknown (an exception kept it from Settle),
  // or it was fenced. kInvalidArgument: the position is too long.
  absl::Status Number(absl::Span<Exchange* const> exchanges, const absl::string_view* position);
  // Numbers all of `exchanges` again with the same number, after a server without a part has got
  // one. Errors as Number.
  absl::Status NumberAgain(absl::Span<Exchange* const> exchanges);
  // Records that the server has applied its part. False: send it again
  // (ServerSession::PushAnswered).
  bool Answered(const Exchange& exchange);
  // Call after the last attempt of the numbered calls, which ended with `status`.
  void Settle(absl::Span<Exchange* const> exchanges, const absl::Status& status);

 private:
  const ServerTable& sessions_;
  CallLock lock_;

  int64_t next_ = 1;
  bool unsettled_ = false;  // next_ was given to calls, and Settle has not ended them
  std::atomic<int64_t> settled_{0};
  std::string position_;            // the user's, of the last push
  std::string numbered_position_;   // that of the push under way
  std::string encoded_;             // scratch
  std::vector<int64_t> last_part_;  // scratch, by server
  absl::Status broken_;             // not OK: every later push fails with this
};

}  // namespace cairn
