// Pauses end with the time to wait, and errors of several servers become one line.
#include "worker/client/fan_out.h"

#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

TEST(Backoff, EndsAfterTheTimeToWait) {
  const Deadline start = Deadline::In(absl::Seconds(100));
  Backoff backoff(absl::Milliseconds(60), Soon());
  int pauses = 0;
  while (backoff.Pause()) ++pauses;
  EXPECT_GE(absl::Seconds(100) - start.Remaining(), absl::Milliseconds(60));
  EXPECT_GE(pauses, 2);  // 10, 20, 40 ms, each cut by up to half
  EXPECT_LE(pauses, 6);
}

TEST(Backoff, EndsAtTheDeadline) {
  Backoff backoff(absl::Seconds(100), Deadline::In(absl::ZeroDuration()));
  EXPECT_FALSE(backoff.Pause());
  Backoff no_wait(absl::ZeroDuration(), Soon());
  EXPECT_FALSE(no_wait.Pause());
}

TEST(Join, NamesEveryErrorUnderTheFirstCode) {
  EXPECT_OK(Join({absl::OkStatus(), absl::OkStatus()}));
  EXPECT_THAT(Join({absl::OkStatus(), absl::UnavailableError("a"), absl::InternalError("b")}),
              StatusIs(absl::StatusCode::kUnavailable, "a; b"));
}

TEST(Join, KeepsTheReasonOfWhoeverHasOne) {
  const auto fenced =
      WithReason(absl::FailedPreconditionError("fenced"), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({absl::UnavailableError("a"), fenced})), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({fenced, fenced})), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(Join({absl::UnavailableError("a")})), wire::ErrorReason::NONE);
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
  int64_t retries = 0;
  int answered = 0;
  EXPECT_OK(FanOut(&limits).Run(
      both, false, Soon(),
      [&](Exchange&) {
        ++answered;
        return absl::OkStatus();
      },
      &retries));
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(retries, 0);
}

}  // namespace
}  // namespace cairn::test
