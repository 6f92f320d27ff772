// The system refuses threads, as a limit of processes does: a command asks the servers one after
// another, or ends with an error.
#include "tests/support/refusing_threads.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/status_matchers.h"
#include "worker/ctl/cluster_commands.h"
#include "worker/ctl/launch_watch.h"
#include "worker/ctl/server_view.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(RefusedThreads, EveryServerIsAsked) {
  const EngineCluster cluster(3);
  Target target;
  target.members.addresses = {cluster.address(0), cluster.address(1), cluster.address(2)};
  target.job = "j";
  target.timeout = absl::Seconds(20);
  for (const int64_t succeeding : {0, 1}) {
    const NoThreads none(succeeding);
    const std::vector<ServerView> views = AskServers(target);
    ASSERT_THAT(views, SizeIs(3));
    for (size_t s = 0; s < views.size(); ++s) {
      EXPECT_OK(views[s].status);
      EXPECT_EQ(views[s].described.server_index, static_cast<int32_t>(s));
    }
  }
}

TEST(RefusedThreads, EveryServerIsDrained) {
  DrainOptions options{.all = true, .wait_seconds = 20};
  options.target.servers = absl::StrCat(NobodysAddress(), ",", NobodysAddress());
  const NoThreads none;
  const absl::StatusOr<Answer> answer = RunDrain(options);
  ASSERT_OK(answer);
  EXPECT_THAT(answer->problem, StatusIs(absl::StatusCode::kUnavailable,
                                        AllOf(HasSubstr("ps:0"), HasSubstr("ps:1"))));
}

// One after another, the servers' rates would not be those of all at once.
TEST(RefusedThreads, ABenchOfServersTogetherFails) {
  const EngineCluster cluster(2);
  BenchOptions options{.mib = 1, .seconds = 0.01};
  options.target.servers = absl::StrCat(cluster.address(0), ",", cluster.address(1));
  for (const int64_t succeeding : {0, 1}) {
    const NoThreads none(succeeding);
    EXPECT_THAT(RunBench(options),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("refuses a thread")));
  }
}

TEST(RefusedThreads, ALaunchThatCannotWatchItsJobFails) {
  const NoThreads none;
  EXPECT_THAT(LaunchWatch::Start(Target(), 1, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("watching the job")));
}

}  // namespace
}  // namespace cairn::test
