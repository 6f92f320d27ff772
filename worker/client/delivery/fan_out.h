// Makes calls to several servers at once from one thread, and retries where that is safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/links/server_link.h"

namespace cairn {

// Pauses between attempts: 10 ms, doubling to 1 s, each shortened by up to half at random so that
// workers do not retry in step.
class Backoff {
 public:
  // `ps_wait` starts with the first pause.
  Backoff(absl::Duration ps_wait, Deadline deadline) : ps_wait_(ps_wait), deadline_(deadline) {}

  // Pauses before the next attempt. False, without a pause, where the time is up. Also false where
  // the deadline has passed at the end of the pause: another attempt would end unsent, and its
  // error would hide the last answer.
  //   retry_after  above zero: when the server expects to have room again. The pause lasts that
  //                long plus up to a quarter at random, and does not grow. False where less time is
  //                left.
  bool Pause(absl::Duration retry_after = absl::ZeroDuration());

 private:
  const absl::Duration ps_wait_;
  const Deadline deadline_;
  std::optional<Deadline> give_up_;
  absl::Duration next_ = absl::Milliseconds(10);
};

// A data call to one server. Objects are reused between calls.
struct Exchange {
  ServerSession* session = nullptr;
  DataCall call;
  bool repeatable = true;  // running it twice does no harm

  // Filled in by FanOut::Run.
  bool sent = false;  // some attempt may have sent bytes
  bool done = false;
  Outcome outcome;            // of the last attempt; call.reply is valid if `done` and OK
  absl::Status expired_wait;  // last WAIT_EXPIRED answer; names the missing workers
  absl::Status refused_step;  // the error of a step whose push is sent again alone

  // State of an attempt.
  Channel* channel = nullptr;
  int64_t boot_id = 0;
};

// Whether the call contains a push or an assign.
inline bool Updates(const Exchange& exchange) { return exchange.call.kind != CallKind::kPull; }

// Thread safety: every method may be called from several threads at once.

class FanOut {
 public:
  struct Limits {
    absl::Duration ps_wait;
    absl::Duration rpc_timeout;
  };

  // `limits` must outlive this object.
  explicit FanOut(const Limits* limits) : limits_(*limits) {}

  // Sends every exchange, then receives every reply. Retries transient failures until ps_wait or
  // `deadline`. At most one exchange for each server.
  //   answered  called once for each exchange that the server answered with OK, as soon as the
  //             reply arrives. If it returns kAborted the exchange is retried; another error ends
  //             it.
  // A permanent error of one server ends the attempts on the others, unless some exchange is an
  // update. Then only waits for other workers end: a pull fails with its WAIT_EXPIRED error, and a
  // step is sent as a plain push.
  // The error of a step does not say whether its push is applied. A repeatable step is therefore
  // sent again as a plain push, so that `answered` counts a push that is. The step's error stays.
  // Returns the error of the server that failed, or the errors of several servers joined in one
  // line.
  absl::Status Run(absl::Span<Exchange* const> exchanges, Deadline deadline,
                   absl::FunctionRef<absl::Status(Exchange&)> answered);

  // Makes another kind of call on one server, with the same retries. `body` gets the caller to
  // send. `may_be_slow`: a missed attempt limit does not mean that the server is down.
  absl::Status Call(ServerSession& session, absl::string_view method, absl::Duration attempt_limit,
                    absl::Duration ps_wait, Deadline deadline,
                    absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&)> body,
                    bool may_be_slow = false);

  // Number of retries over all calls.
  int64_t retries() const { return retries_.load(std::memory_order_relaxed); }
  // Counts a retry of a call that this class did not make.
  void CountRetry() { retries_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Send(Exchange& exchange, Deadline deadline);
  static void StopWaiting(Exchange& exchange);
  static bool PushAlone(Exchange& exchange);
  // When to make the next attempt.
  struct Next {
    bool pause = false;          // pause first
    absl::Duration retry_after;  // longest delay that a busy server asked for
  };
  // True where the exchange needs another attempt; updates *next.
  bool Receive(Exchange& exchange, Deadline deadline,
               absl::FunctionRef<absl::Status(Exchange&)> answered, Next* next);

  const Limits& limits_;
  std::atomic<int64_t> retries_{0};
};

}  // namespace cairn
