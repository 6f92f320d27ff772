// The system refuses the client's threads, as a limit of processes does: no call ends the program,
// and an acknowledged push is acknowledged to its caller.
#include "tests/support/refusing_threads.h"
#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(RefusedThreads, CallsToSeveralServersAreMadeOneAfterTheOther) {
  Fleet fleet(3, /*remote=*/true);
  const auto client = fleet.Connect();
  ASSERT_OK(client->Create({Dense("a", {2}), Dense("b", {2}), Dense("c", {2})}, Soon()));
  for (const int64_t succeeding : {0, 1}) {
    const NoThreads none(succeeding);
    EXPECT_OK(client->Flush(Soon())) << succeeding;
  }
}

TEST(RefusedThreads, APushIsAcknowledgedWithoutAThreadForSnapshots) {
  Fleet fleet(1, /*remote=*/false);
  fleet.fake(0).KeepOnlyWhatIsFlushed();
  ClientOptions options = Fleet::Options();
  options.retained_bytes = 1 << 20;
  const auto client = fleet.Connect(options);
  const std::vector<float> values((600 << 10) / sizeof(float), 1);
  ASSERT_OK(client->Create({Dense("a", {static_cast<int64_t>(values.size())})}, Soon()));
  {
    const NoThreads none;
    EXPECT_OK(client->Push({Whole("a", values)}, "", Soon()));
  }
  EXPECT_EQ(fleet.fake(0).calls("flush"), 0);
  // The next push asks again, and the thread makes room.
  EXPECT_OK(client->Push({Whole("a", values)}, "", Soon()));
  EXPECT_THAT(PullWhole(*client, "a", values.size()), Each(-2));
}

TEST(RefusedThreads, AWorkerWithoutHeartbeatsDoesNotStart) {
  Fleet fleet(2, /*remote=*/false);
  for (int32_t s = 0; s < 2; ++s) fleet.fake(s).lease_seconds = 10;
  for (const int64_t succeeding : {0, 1}) {
    const NoThreads none(succeeding);
    EXPECT_THAT(fleet.TryConnect(Fleet::Options()),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("heartbeats"), HasSubstr("thread"))))
        << succeeding;
  }
  EXPECT_OK(fleet.TryConnect(Fleet::Options()));
}

}  // namespace
}  // namespace cairn::test
