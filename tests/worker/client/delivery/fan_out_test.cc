// Pauses end with the wait's deadline.
#include "worker/client/delivery/fan_out.h"

#include <atomic>
#include <thread>

#include "common/interruption.h"
#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

TEST(Backoff, EndsAfterTheTimeToWait) {
  const Deadline start = Deadline::In(absl::Seconds(100));
  Backoff backoff(absl::Milliseconds(200), Soon());
  int pauses = 0;
  while (backoff.Pause()) ++pauses;
  EXPECT_GE(absl::Seconds(100) - start.Remaining(), absl::Milliseconds(200));
  EXPECT_GE(pauses, 2);  // 10, 20, 40, 80 ms, each shortened by up to half
  EXPECT_LE(pauses, 8);
}

TEST(Backoff, ABusyServerIsWaitedForAsLongAsItSays) {
  Backoff backoff(absl::Seconds(100), Soon());
  for (int i = 0; i < 3; ++i) {
    const absl::Duration start = MonotonicNow();
    ASSERT_TRUE(backoff.Pause(absl::Milliseconds(40)));
    EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(40));
  }
  Backoff short_of_time(absl::Seconds(100), Soon());
  const absl::Duration start = MonotonicNow();
  EXPECT_FALSE(short_of_time.Pause(absl::Hours(1)));
  EXPECT_LT(MonotonicNow() - start, absl::Seconds(10));
}

TEST(Backoff, EndsAtTheDeadline) {
  Backoff backoff(absl::Seconds(100), Deadline::In(absl::ZeroDuration()));
  EXPECT_FALSE(backoff.Pause());
  Backoff no_wait(absl::ZeroDuration(), Soon());
  EXPECT_FALSE(no_wait.Pause());
}

// So the caller keeps the server's last answer: an attempt without time would only time out.
TEST(Backoff, NoAttemptFollowsAPauseThatEndedAfterTheDeadline) {
  const Deadline deadline = Deadline::In(absl::Seconds(2));
  Backoff backoff(absl::Seconds(100), deadline);
  // The pause is planned to end before the deadline; its thread is held up until after it.
  const Interruption delay(
      [](void* until) {
        const Deadline& end = *static_cast<const Deadline*>(until);
        while (!end.Expired()) std::this_thread::yield();
        return false;
      },
      const_cast<Deadline*>(&deadline));
  EXPECT_FALSE(backoff.Pause(absl::Milliseconds(400)));
}

// Also a call that must not run twice: the server refused it unread.
TEST(FanOut, ACallThatABusyServerRefusedIsSentAgainWhenItSays) {
  const FanOut::Limits limits{absl::Seconds(10), absl::Seconds(10)};
  const ClientIdentity identity{.job = "job", .server_count = 1};
  Fleet fleet(1, true);
  ServerSession session(0, "ps:0", RemoteLink("ps:0", fleet.proxy(0).address(), 1 << 20),
                        &identity);
  std::atomic<int> refusals = 2;
  std::atomic<bool> busy_for_long = false;
  fleet.fake(0).before = [&](absl::string_view) {
    if (refusals-- <= 0) return;
    throw ToServerError(BusyError("busy", busy_for_long ? absl::Hours(1) : absl::Milliseconds(50)));
  };
  Exchange exchange;
  exchange.session = &session;
  exchange.repeatable = false;
  Exchange* const one = &exchange;
  FanOut fan_out(&limits);
  absl::Duration start = MonotonicNow();
  EXPECT_OK(fan_out.Run({&one, 1}, Soon(), [](Exchange&) { return absl::OkStatus(); }));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(100));
  EXPECT_EQ(fan_out.retries(), 2);
  // Another kind of call; and a call for which the server is busy too long.
  const auto ask = [](wire::ParameterServerIf& service, const wire::Caller& caller) {
    wire::ServerState state;
    service.heartbeat(state, caller);
  };
  refusals = 1;
  EXPECT_OK(fan_out.Call(session, "heartbeat", absl::Seconds(10), absl::Seconds(10), Soon(), ask));
  EXPECT_EQ(fan_out.retries(), 3);
  refusals = 1;
  busy_for_long = true;
  const absl::Status busy =
      fan_out.Call(session, "heartbeat", absl::Seconds(10), absl::Seconds(10), Soon(), ask);
  EXPECT_THAT(busy, StatusIs(absl::StatusCode::kUnavailable,
                             ::testing::AllOf(::testing::HasSubstr("busy"),
                                              ::testing::HasSubstr("gave up at"))));
}

// The workers for which the other steps wait may need the failed call. So those waits end, but the
// steps' updates are still made, as plain pushes.
TEST(FanOut, NobodyWaitsForOthersOnceACallHasFailed) {
  const FanOut::Limits limits{absl::Seconds(10), absl::Seconds(10)};
  const ClientIdentity identity{.job = "job", .server_count = 3};
  Fleet fleet(3, true);
  fleet.fake(0).before = [](absl::string_view) { throw ToServerError(MovedError("moved", {})); };
  for (int32_t s = 1; s < 3; ++s) {
    fleet.fake(s).before = [](absl::string_view method) {
      if (method == "push") return;
      throw ToServerError(
          WithReason(absl::DeadlineExceededError("others"), wire::ErrorReason::WAIT_EXPIRED));
    };
  }
  std::vector<std::unique_ptr<ServerSession>> sessions;
  std::vector<Exchange> exchanges(3);
  std::vector<Exchange*> all;
  for (int32_t s = 0; s < 3; ++s) {
    const std::string name = absl::StrCat("ps:", s);
    sessions.push_back(std::make_unique<ServerSession>(
        s, name, RemoteLink(name, fleet.proxy(s).address(), 1 << 20), &identity));
    exchanges[s].session = sessions[s].get();
    exchanges[s].call.kind = s < 2 ? CallKind::kStep : CallKind::kPull;
    all.push_back(&exchanges[s]);
  }
  const absl::Status status =
      FanOut(&limits).Run(all, Soon(), [](Exchange&) { return absl::OkStatus(); });
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MOVED);
  EXPECT_OK(exchanges[1].outcome.status);
  EXPECT_EQ(exchanges[1].call.kind, CallKind::kPush);
  EXPECT_TRUE(exchanges[2].done);
  EXPECT_EQ(ReasonOf(exchanges[2].outcome.status), wire::ErrorReason::WAIT_EXPIRED);
}

TEST(FanOut, SendsToAllBeforeItReceives) {
  const FanOut::Limits limits{absl::Seconds(1), absl::Seconds(10)};
  const ClientIdentity identity{.job = "job", .server_count = 2};
  Fleet fleet(2, true);
  std::vector<std::unique_ptr<ServerSession>> sessions;
  std::vector<Exchange> exchanges(2);
  std::vector<Exchange*> both;
  // Server 0 answers only once server 1 has been asked.
  absl::Mutex mutex;
  bool asked = false;
  fleet.fake(0).before = [&](absl::string_view) {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&asked), absl::Seconds(10)));
  };
  fleet.fake(1).before = [&](absl::string_view) {
    absl::MutexLock lock(&mutex);
    asked = true;
  };
  for (int32_t s = 0; s < 2; ++s) {
    const std::string name = absl::StrCat("ps:", s);
    sessions.push_back(std::make_unique<ServerSession>(
        s, name, RemoteLink(name, fleet.proxy(s).address(), 1 << 20), &identity));
    exchanges[s].session = sessions[s].get();
    both.push_back(&exchanges[s]);
  }
  FanOut fan_out(&limits);
  int answered = 0;
  EXPECT_OK(fan_out.Run(both, Soon(), [&](Exchange&) {
    ++answered;
    return absl::OkStatus();
  }));
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(fan_out.retries(), 0);
  // After an exception no reused exchange has the connection of a call that was not answered.
  EXPECT_THROW(fan_out.Run(both, Soon(), [](Exchange&) -> absl::Status { throw std::bad_alloc(); })
                   .IgnoreError(),
               std::bad_alloc);
  EXPECT_EQ(exchanges[1].channel, nullptr);
  EXPECT_OK(fan_out.Run(both, Soon(), [](Exchange&) { return absl::OkStatus(); }));
}

}  // namespace
}  // namespace cairn::test
