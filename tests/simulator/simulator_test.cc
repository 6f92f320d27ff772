// The real client and server keep their guarantees over a simulated network, disk and clock with
// faults, and the simulator detects it when they do not.
#include "tests/simulator/simulation.h"

#include <glog/logging.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::simulator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Many faults, and long snapshots, so that faults interrupt them.
Options Many() {
  Options options;
  options.fault_level = "many";
  options.faults = Faults::Named("many");
  options.snapshot_interval = kSecond;
  options.disk = {.write = 10 * kMillisecond, .sync = 60 * kMillisecond};
  return options;
}

Options Ssp(int64_t bound) {
  Options options = Many();
  options.consistency = {.mode = ConsistencyMode::kSsp, .staleness_bound_steps = bound};
  return options;
}

Options Sync(int32_t replicas_to_aggregate) {
  Options options = Many();
  options.servers = 5;
  options.workers = 8;
  options.Synchronize(replicas_to_aggregate);
  return options;
}

// `faults`: "starts" is mostly crashes of workers.
Options WhileRowsMove(Options options, const std::string& faults = "many") {
  options.fault_level = faults;
  options.faults = Faults::Named(faults);
  options.servers = 5;
  options.workers = 8;
  options.MoveRows("many");
  return options;
}

Options WhileServersComeAndGo(Options options, const std::string& faults = "many") {
  options = WhileRowsMove(options, faults);
  options.servers = 4;
  options.workers = 6;
  options.MoveRows("many");
  options.ChangeMembers("many");
  return options;
}

void ExpectHolds(Options options, uint64_t seeds) {
  int64_t joins = 0, leaves = 0;
  const uint64_t runs = seeds;
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    const Result result = Simulate(options);
    ASSERT_THAT(result.violation, IsEmpty());
    joins += result.joins;
    leaves += result.leaves;
    const int64_t of_each = options.rows_move() ? 1
                            : options.sync()    ? options.servers * options.stripes
                                                : options.steps;
    ASSERT_GE(result.rows_checked, options.workers * of_each);
  }
  if (options.members.tools == 0) return;
  EXPECT_GT(joins, static_cast<int64_t>(2 * runs));
  EXPECT_GT(2 * leaves, static_cast<int64_t>(runs));
}

TEST(Simulator, EveryPushCountsOnceUnderAsync) { ExpectHolds(Many(), 30); }

TEST(Simulator, EveryPushCountsOnceInLockstep) { ExpectHolds(Ssp(0), 15); }

TEST(Simulator, EveryPushCountsOnceWithABound) { ExpectHolds(Ssp(3), 15); }

TEST(Simulator, EveryPushCountsOnceInSynchronousSteps) { ExpectHolds(Sync(0), 20); }

// Late contributions are dropped, on every server alike.
TEST(Simulator, AStepIsTheSameEverywhereThoughItDoesNotWaitForAll) {
  ExpectHolds(Sync(6), 12);
  ExpectHolds(Sync(3), 6);
}

TEST(Simulator, EveryPushCountsOnceWhileRowsMove) {
  ExpectHolds(WhileRowsMove(Many()), 30);
  ExpectHolds(WhileRowsMove(Many(), "starts"), 15);
}

TEST(Simulator, EveryPushCountsOnceWithABoundWhileRowsMove) {
  ExpectHolds(WhileRowsMove(Ssp(0)), 15);
  ExpectHolds(WhileRowsMove(Ssp(3)), 10);
}

TEST(Simulator, EveryPushCountsOnceInSynchronousStepsWhileRowsMove) {
  ExpectHolds(WhileRowsMove(Sync(0)), 12);
  ExpectHolds(WhileRowsMove(Sync(6)), 8);
}

TEST(Simulator, EveryPushCountsOnceWhileServersComeAndGo) {
  ExpectHolds(WhileServersComeAndGo(Many()), 20);
  ExpectHolds(WhileServersComeAndGo(Many(), "starts"), 10);
}

TEST(Simulator, EveryPushCountsOnceWithABoundWhileServersComeAndGo) {
  ExpectHolds(WhileServersComeAndGo(Ssp(0)), 8);
  ExpectHolds(WhileServersComeAndGo(Ssp(3)), 8);
}

TEST(Simulator, EveryPushCountsOnceInSynchronousStepsWhileServersComeAndGo) {
  ExpectHolds(WhileServersComeAndGo(Sync(0)), 8);
  ExpectHolds(WhileServersComeAndGo(Sync(4)), 6);
}

// Movers run one at a time, and none gives up.
TEST(Simulator, WithoutFaultsEveryMoveEndsWell) {
  Options options = Many();
  options.faults = {};
  options.fault_level = "none";
  options.servers = 5;
  options.MoveRows("some");
  options.moves.killed = 0;
  options.seed = 3;
  const Result result = Simulate(options);
  EXPECT_THAT(result.violation, IsEmpty());
  EXPECT_GT(result.movers, 2);
  EXPECT_EQ(result.moves, result.movers);
}

TEST(Simulator, OneServerIsEnough) {
  Options options = Many();
  options.servers = 1;
  ExpectHolds(options, 5);
  options.Synchronize(0);
  ExpectHolds(options, 5);
}

// Without broken connections, fencing the only start of a worker is a violation.
TEST(Simulator, OnlyBrokenConnectionsFenceAnOnlyStart) {
  Options options = Many();
  options.faults.resets = 0;
  ExpectHolds(options, 10);
}

TEST(Simulator, HundredsOfWorkersOnUnevenServers) {
  Options options = Many();
  options.servers = 40;
  options.workers = 300;
  options.steps = 20;
  options.skew = 1;
  const Result result = Simulate(options);
  EXPECT_THAT(result.violation, IsEmpty());
  EXPECT_GT(result.calls_max_over_mean, 2) << "the hot spot is not detected";
  std::printf("%s\n", result.Json(options).c_str());
}

TEST(Simulator, ARunWithoutFaultsHasNone) {
  const Result result = Simulate(Options());
  EXPECT_THAT(result.violation, IsEmpty());
  EXPECT_EQ(result.server_crashes, 0);
  EXPECT_EQ(result.worker_starts, 16);
  EXPECT_EQ(result.gave_up, 0);
}

TEST(Simulator, TheSameSeedIsTheSameRun) {
  Options options = Many();
  options.seed = 7;
  const Result first = Simulate(options);
  const Result second = Simulate(options);
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_EQ(first.events, second.events);
  options.seed = 8;
  EXPECT_NE(Simulate(options).trace_hash, first.trace_hash);
}

TEST(Simulator, TheSameSeedIsTheSameRunWhileServersComeAndGo) {
  Options options = WhileServersComeAndGo(Many());
  for (options.seed = 1; options.seed <= 5; ++options.seed) {
    EXPECT_EQ(Simulate(options).trace_hash, Simulate(options).trace_hash) << options.seed;
  }
}

TEST(Simulator, ARunThatDoesNotEndSaysWhoWaitsForWhom) {
  Options options = Ssp(0);
  options.mutation = Mutation::kStaysAway;
  const Result result = Simulate(options);
  EXPECT_THAT(result.violation, AllOf(HasSubstr("no end"), HasSubstr("is down"),
                                      HasSubstr("does not answer it"), HasSubstr("--seed=1")));
}

struct LeftOut {
  Mutation mutation;
  const char* what;                    // text in the violation
  int32_t replicas_to_aggregate = -1;  // for sync; -1: async
  const char* faults = nullptr;        // faults while rows move; nullptr: no moves
  bool members = false;                // servers join and leave, too; uses ssp instead of async
  // Seeds to try. Where one seed in 40 detects the mutation, another order of the calls of a server
  // leads to other seeds, and 400 miss it with a probability of 1 in 20,000.
  uint64_t seeds = faults == nullptr ? 40 : 150;
};

class FindsThat : public ::testing::TestWithParam<LeftOut> {};

// A run that leaves out a rule is detected within a few seeds, and the message has the command line
// that reproduces it.
TEST_P(FindsThat, ARuleIsLeftOut) {
  const auto& [mutation, what, aggregate, faults, members, seeds] = GetParam();
  Options options = aggregate >= 0 ? Sync(aggregate) : members ? Ssp(0) : Many();
  if (members) {
    options = WhileServersComeAndGo(options, faults);
  } else if (faults != nullptr) {
    options = WhileRowsMove(options, faults);
  }
  options.mutation = mutation;
  Result result;
  for (options.seed = 1; options.seed <= seeds && result.violation.empty(); ++options.seed) {
    result = Simulate(options);
  }
  ASSERT_THAT(result.violation, Not(IsEmpty())) << "not found with " << seeds << " seeds";
  EXPECT_THAT(result.violation, HasSubstr(what));
  std::printf("%s: seed %d: %s\n", MutationName(mutation), static_cast<int>(options.seed) - 1,
              result.violation.c_str());
  --options.seed;
  EXPECT_EQ(Simulate(options).trace_hash, result.trace_hash);
  EXPECT_THAT(result.violation, HasSubstr(options.CommandLine()));
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, FindsThat,
    ::testing::Values(
        LeftOut{Mutation::kNoAfter, "lost"}, LeftOut{Mutation::kNoFence, "fence"},
        LeftOut{Mutation::kNoIdentity, "doubled"},
        LeftOut{Mutation::kDiskLies, "came back without"}, LeftOut{Mutation::kTornStripes, "lost"},
        LeftOut{Mutation::kNeverSettles, "lost"}, LeftOut{Mutation::kForgetsReplay, "lost"},
        LeftOut{Mutation::kFreesApplied, "came back without"},
        LeftOut{Mutation::kResumesHighest, "lost"}, LeftOut{Mutation::kNoFence, "fence", 0},
        LeftOut{Mutation::kTornStripes, "lost", 0}, LeftOut{Mutation::kForgetsReplay, "lost", 0},
        LeftOut{Mutation::kResumesHighest, "numbers", 0},
        LeftOut{Mutation::kLeavesOutVoid, "numbers", 4},
        LeftOut{Mutation::kMarksNotExact, "lost", -1, "many"},
        LeftOut{Mutation::kNoNumbers, "doubled", -1, "starts"},
        LeftOut{Mutation::kLateLast, "lost", -1, "many"},
        LeftOut{Mutation::kHadItLast, "lost", -1, "starts", false, 400},
        LeftOut{Mutation::kHoldsAtOnce, "lost", -1, "many"},
        LeftOut{Mutation::kNoClaims, "", -1, "many"},
        LeftOut{Mutation::kRaisesStep, "staleness", -1, "many", true},
        LeftOut{Mutation::kLastWordsHigh, "lost", -1, "starts", true}),
    [](const auto& test) {
      return absl::StrCat(MutationName(test.param.mutation),
                          test.param.replicas_to_aggregate < 0 ? "" : "_sync",
                          test.param.faults == nullptr ? "" : "_moves");
    });

}  // namespace
}  // namespace cairn::simulator

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  FLAGS_minloglevel = google::GLOG_FATAL;  // hundreds of servers start and crash
  google::InitGoogleLogging(argv[0]);
  return RUN_ALL_TESTS();
}
