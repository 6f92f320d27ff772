// Runs calls on several servers at once from one thread, with the retries that are safe.
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

// Pauses between attempts: 10 ms, doubling to 1 s, each cut by up to half at random so that workers
// do not come back in step.
class Backoff {
 public:
  // The time to wait for a server starts with the first pause.
  Backoff(absl::Duration ps_wait, Deadline deadline) : ps_wait_(ps_wait), deadline_(deadline) {}

  // False, at once, where the time is up. `retry_after` above zero: a server has said when it has
  // room again; the pause lasts so long, and up to a quarter more at random, and does not grow.
  // False where there is not so much time.
  bool Pause(absl::Duration retry_after = absl::ZeroDuration());

 private:
  const absl::Duration ps_wait_;
  const Deadline deadline_;
  std::optional<Deadline> give_up_;
  absl::Duration next_ = absl::Milliseconds(10);
};

// A data call to one server. Reused from call to call.
struct Exchange {
  ServerSession* session = nullptr;
  DataCall call;
  bool repeatable = true;  // running it twice does no harm

  // Filled in by FanOut::Run.
  bool sent = false;  // bytes may have left, in some attempt
  bool done = false;
  Outcome outcome;            // of the last attempt; done and OK: call.reply is valid
  absl::Status expired_wait;  // last answer that said for whom the call had waited in vain

  // State of an attempt.
  Channel* channel = nullptr;
  int64_t boot_id = 0;
};

// Whether the call to this server has a push or assign in it.
inline bool Updates(const Exchange& exchange) { return exchange.call.kind != CallKind::kPull; }

// Thread safety: every method may be called from several threads at once.

class FanOut {
 public:
  struct Limits {
    absl::Duration ps_wait;
    absl::Duration rpc_timeout;
  };

  // `limits` outlives this.
  explicit FanOut(const Limits* limits) : limits_(*limits) {}

  // Sends every exchange, then receives every answer; those that failed in a way that may pass are
  // tried again until ps_wait or `deadline`. One exchange a server.
  //   answered   called once for each exchange that the server answered with OK, as soon as the
  //              reply is there. kAborted: the answer is void, try again. Another error ends it.
  // A lasting error of one server ends the attempts on others, unless some of the exchanges update.
  // Then only waits for other workers end: a pull fails with what it waited for (WAIT_EXPIRED), a
  // step goes on as a push.
  // The error: that of the server that failed, or of all of them in one line.
  absl::Status Run(absl::Span<Exchange* const> exchanges, Deadline deadline,
                   absl::FunctionRef<absl::Status(Exchange&)> answered);

  // One other call on one server, in the same manner. `body` gets the caller to send.
  // `may_be_slow`: an answer that takes longer than an attempt may says nothing about the server.
  absl::Status Call(ServerSession& session, absl::string_view method, absl::Duration attempt_limit,
                    absl::Duration ps_wait, Deadline deadline,
                    absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&)> body,
                    bool may_be_slow = false);

  // Attempts that followed another one, of all calls.
  int64_t retries() const { return retries_.load(std::memory_order_relaxed); }
  // Of a call that is made elsewhere.
  void CountRetry() { retries_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Send(Exchange& exchange, Deadline deadline);
  static void StopWaiting(Exchange& exchange);
  // What an attempt's outcomes ask of the next one.
  struct Next {
    bool pause = false;          // it is not to follow at once
    absl::Duration retry_after;  // the longest that a busy server has asked for
  };
  // True where another attempt is to follow; adds to *next.
  bool Receive(Exchange& exchange, Deadline deadline,
               absl::FunctionRef<absl::Status(Exchange&)> answered, Next* next);

  const Limits& limits_;
  std::atomic<int64_t> retries_{0};
};

// One line of all errors, with the code of the first and the first reason that one of them has, but
// FENCED where any has that. OK where none failed.
absl::Status Join(absl::Span<const absl::Status> statuses);

}  // namespace cairn
