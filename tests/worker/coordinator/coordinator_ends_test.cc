// The ends of scheduled functions and coordinators: cancelled by another function's failure, by the
// coordinator's destruction, or by exceptions of the program's callbacks.
#include <atomic>
#include <memory>
#include <stdexcept>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/coordinator/cluster_coordinator.h"
#include "worker/strategy/cancellation.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnknown = absl::StatusCode::kUnknown;

Deadline EndDeadline() { return Deadline::In(absl::Seconds(60)); }
bool WaitFor(absl::Notification& what) {
  return what.WaitForNotificationWithTimeout(absl::Seconds(60));
}

class CoordinatorEnds : public ::testing::Test {
 protected:
  void Start(int32_t workers, CoordinatorOptions options = {}, ParameterServerOptions of_ps = {}) {
    strategy_ = ConnectStrategy(servers_, 1, "job", 0, workers, std::move(of_ps));
    coordinator_ = ClusterCoordinator::Of(*strategy_, std::move(options));
  }
  // Schedules a function that fails once `go` is notified.
  void ScheduleFailure(absl::Notification& go) {
    ASSERT_OK(coordinator_->Schedule([&go]() -> absl::Status {
      WaitFor(go);
      return absl::InvalidArgumentError("the other's own");
    }));
  }

  EngineCluster servers_{1, Durability::kOff};
  std::unique_ptr<ParameterServerStrategy> strategy_;
  std::shared_ptr<ClusterCoordinator> coordinator_;
};

// H8: functions that run while another fails are cancelled, and can notice it.
TEST_F(CoordinatorEnds, ARunningFunctionIsAskedToStopWhenAnotherFails) {
  Start(2, {}, {.worker_devices = {Cpu(0), Cpu(1)}});
  absl::Notification running;
  std::atomic<int> stopped = 0;
  const auto wait = [&](absl::Span<const Value>) -> absl::StatusOr<Value> {
    EXPECT_FALSE(CurrentCancellation().is_cancelled());
    running.Notify();
    // Also in the replicas' threads.
    return strategy_->Run([&stopped] {
      if (CurrentCancellation().WaitUntilCancelled(EndDeadline())) ++stopped;
      EXPECT_THAT(CurrentCancellation().status(), StatusIs(kCancelled, HasSubstr("another one")));
      return 2;
    });
  };
  const RemoteValue waiting = coordinator_->Schedule(wait).value();
  ScheduleFailure(running);
  EXPECT_THAT(coordinator_->Join(EndDeadline()), StatusIs(kInvalid, "the other's own"));
  EXPECT_EQ(stopped, 2);
  EXPECT_THAT(waiting.Fetch(EndDeadline()), StatusIs(kCancelled, HasSubstr("schedule it again")));
  EXPECT_OK(coordinator_->Join(EndDeadline()));
  EXPECT_EQ(coordinator_->Schedule([] { return 7; })->Fetch(EndDeadline())->integer(), 7);
}

// A function that ignores its token delays Join no longer than cancel_wait.
TEST_F(CoordinatorEnds, AFunctionThatContinuesDoesNotBlockJoinForever) {
  Start(2, {.cancel_wait = absl::Milliseconds(20)});
  absl::Notification running, go, ended;
  const RemoteValue deaf = coordinator_
                               ->Schedule([&running, &go, &ended] {
                                 running.Notify();
                                 WaitFor(go);
                                 ended.Notify();
                                 return 2;
                               })
                               .value();
  ScheduleFailure(running);
  EXPECT_THAT(coordinator_->Join(EndDeadline()),
              StatusIs(kInvalid, HasSubstr("1 cancelled functions still run")));
  EXPECT_THAT(deaf.Fetch(EndDeadline()), StatusIs(kCancelled, HasSubstr("cancelled while it ran")));
  // The other worker continues.
  EXPECT_EQ(coordinator_->Schedule([] { return 7; })->Fetch(EndDeadline())->integer(), 7);
  EXPECT_OK(coordinator_->Join(EndDeadline()));
  go.Notify();
  EXPECT_TRUE(WaitFor(ended));
  EXPECT_EQ(coordinator_->Schedule([] { return 8; })->Fetch(EndDeadline())->integer(), 8);
}

TEST_F(CoordinatorEnds, TheDestructorLeavesAFunctionThatContinues) {
  Start(1, {.cancel_wait = absl::Milliseconds(20)});
  absl::Notification running, go, ended;
  ASSERT_OK(coordinator_->Schedule([&] {
    running.Notify();
    WaitFor(go);
    EXPECT_TRUE(CurrentCancellation().is_cancelled());
    ended.Notify();
  }));
  ASSERT_TRUE(WaitFor(running));
  coordinator_.reset();
  go.Notify();
  EXPECT_TRUE(WaitFor(ended));
}

TEST_F(CoordinatorEnds, TheLastPointerMayBeReleasedInAFunction) {
  for (const int32_t workers : {1, 3}) {
    Start(workers);
    absl::Notification released, ended;
    auto held = std::make_shared<std::shared_ptr<ClusterCoordinator>>(coordinator_);
    const RemoteValue result = coordinator_
                                   ->Schedule([&released, &ended, held] {
                                     WaitFor(released);
                                     held->reset();
                                     EXPECT_TRUE(CurrentCancellation().is_cancelled());
                                     ended.Notify();
                                   })
                                   .value();
    coordinator_.reset();
    released.Notify();
    EXPECT_TRUE(WaitFor(ended));
    EXPECT_EQ(result.Fetch(EndDeadline()).status().code(), kCancelled);
  }
}

// Held only by a queued function, which a worker's thread drops when another function fails.
TEST_F(CoordinatorEnds, TheLastPointerMayBeInACancelledFunction) {
  struct Held {
    ~Held() {
      coordinator.reset();
      gone.Notify();
    }
    std::shared_ptr<ClusterCoordinator> coordinator;
    absl::Notification& gone;
  };
  Start(1);
  absl::Notification go, gone;
  ScheduleFailure(go);
  ASSERT_OK(
      coordinator_->Schedule([held = std::shared_ptr<Held>(new Held{coordinator_, gone})] {}));
  coordinator_.reset();
  EXPECT_FALSE(gone.HasBeenNotified());
  go.Notify();
  EXPECT_TRUE(WaitFor(gone));
}

TEST_F(CoordinatorEnds, JoinInAFunctionIsRefusedAtOnce) {
  Start(1);
  const RemoteValue joined =
      coordinator_->Schedule([this] { return coordinator_->Join(EndDeadline()); }).value();
  EXPECT_THAT(joined.Fetch(EndDeadline()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("called in a scheduled function")));
}

TEST_F(CoordinatorEnds, ADatasetFactoryThatThrowsIsAnError) {
  Start(1);
  std::atomic<bool> throws = true;
  const auto factory = [&throws](int32_t) -> absl::StatusOr<Dataset> {
    if (throws) throw std::runtime_error("no files");
    return Dataset::Range(3);
  };
  EXPECT_THAT(coordinator_->CreatePerWorkerDataset(factory),
              StatusIs(kUnknown, HasSubstr("threw: no files")));
  EXPECT_THAT(coordinator_->CreatePerWorkerDataset(nullptr),
              StatusIs(kInvalid, HasSubstr("found no function")));
  throws = false;
  const auto dataset = coordinator_->CreatePerWorkerDataset(factory).value();
  // Made again for the lost worker, in the worker's thread.
  throws = true;
  ASSERT_OK(coordinator_->Schedule([&throws, lost = false]() mutable -> absl::Status {
    if (std::exchange(lost, true)) return absl::OkStatus();
    return WorkerLost("killed");
  }));
  absl::Status error;
  const Deadline deadline = EndDeadline();
  while (error.ok() && !deadline.Expired()) error = coordinator_->Done().status();
  EXPECT_THAT(error, StatusIs(kUnknown, HasSubstr("threw: no files")));
}

TEST_F(CoordinatorEnds, AWaitForWorkerThatThrowsLosesTheWorker) {
  Start(1, {.wait_for_worker = [](int32_t) -> absl::Status { throw std::runtime_error("boom"); }});
  ASSERT_OK(coordinator_->Schedule([] { return WorkerLost("killed"); }));
  EXPECT_THAT(coordinator_->Join(EndDeadline()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("threw: boom")));
}

TEST_F(CoordinatorEnds, NullVariablesAndHostsAreRefused) {
  Start(1);
  EXPECT_THAT(ServerOf(nullptr), StatusIs(kInvalid, HasSubstr("the variable is null")));
  EXPECT_THAT(strategy_->ApplyGradients({{{.variable = nullptr, .gradient = 1.0}}}),
              StatusIs(kInvalid, HasSubstr("the variable is null")));
  EXPECT_THAT(ParameterServerStrategy::Create(ClusterOf(1, 1), nullptr),
              StatusIs(kInvalid, HasSubstr("host of its variables is null")));
}

// Variables may outlive the strategy: reads still go to the servers.
TEST_F(CoordinatorEnds, VariablesOutliveTheStrategy) {
  Start(1, {}, {.worker_devices = {Cpu(0), Cpu(1)}});
  VariablePtr variable;
  {
    const Scope scope = strategy_->EnterScope().value();
    variable = CreateVariable({.name = "v",
                               .initial_value = Tensor::Scalar<float>(1),
                               .aggregation = VariableAggregation::kMean})
                   .value();
  }
  coordinator_.reset();
  strategy_.reset();
  EXPECT_THAT(variable->Read(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was destroyed")));
}

TEST(CancellationToken, WithoutASourceIsNeverCancelled) {
  EXPECT_FALSE(CurrentCancellation().is_cancelled());
  EXPECT_FALSE(CancellationToken().WaitUntilCancelled(Deadline::In(absl::Milliseconds(1))));
  CancellationSource source;
  const CancellationToken token = source.token();
  source.Cancel(absl::CancelledError("first"));
  source.Cancel(absl::CancelledError("second"));
  EXPECT_THAT(token.status(), StatusIs(kCancelled, "first"));
  EXPECT_TRUE(token.WaitUntilCancelled(EndDeadline()));
}

}  // namespace
}  // namespace cairn::test
