// The coordinator: conformance cases by id, and its further guarantees.
//
// Cases without a counterpart in C++: H4's function that is not a tf.function (every callable
// runs), H9's dataset element captured on the coordinator (functions run in its process, so
// captures work), H13's warning for run outside a scheduled function (run is allowed there, and
// tested). A RemoteValue as an argument, H4, does not compile.
#include "worker/coordinator/cluster_coordinator.h"

#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "absl/synchronization/notification.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/per_worker_variable.h"
#include "worker/strategy/worker_scope.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

absl::StatusOr<Value> None(absl::Status status) {
  if (!status.ok()) return status;
  return Value();
}

class CoordinatorTest : public ::testing::Test {
 protected:
  void Start(int32_t workers, ParameterServerOptions options = {},
             CoordinatorOptions coordinator = {}) {
    strategy_ = ConnectStrategy(servers_, 1, "job", 0, workers, std::move(options));
    coordinator_ = ClusterCoordinator::Of(*strategy_, std::move(coordinator));
  }
  VariablePtr Make(const VariableOptions& options) {
    const Scope scope = strategy_->EnterScope().value();
    return CreateVariable(options).value();
  }
  VariablePtr Number(const std::string& name, float value,
                     VariableAggregation aggregation = VariableAggregation::kNone) {
    return Make(
        {.name = name, .initial_value = Tensor::Scalar<float>(value), .aggregation = aggregation});
  }
  static float Read(const VariablePtr& variable) {
    return static_cast<float>(variable->Read().value().ToDoubles()[0]);
  }
  // Schedules a function that a worker has started when this returns, and that runs until `go`.
  void ScheduleUntil(absl::Notification& go) {
    const auto started = std::make_shared<absl::Notification>();
    ASSERT_OK(coordinator_->Schedule([started, &go](absl::Span<const Value>) {
      started->Notify();
      go.WaitForNotificationWithTimeout(absl::Seconds(60));
      return Value();
    }));
    ASSERT_TRUE(started->WaitForNotificationWithTimeout(absl::Seconds(60)));
  }
  ScheduledCall::Function Adding(const VariablePtr& variable, double number) {
    return
        [variable, number](absl::Span<const Value>) { return None(variable->AssignAdd(number)); };
  }

  EngineCluster servers_{1, Durability::kOff};
  std::unique_ptr<ParameterServerStrategy> strategy_;
  std::shared_ptr<ClusterCoordinator> coordinator_;
};

TEST_F(CoordinatorTest, H1_AStrategyHasOneCoordinator) {
  Start(2);
  EXPECT_EQ(coordinator_, ClusterCoordinator::Of(*strategy_));
}

TEST_F(CoordinatorTest, H3_ScheduledAdditionsAreAppliedAfterJoin) {
  Start(3);
  const VariablePtr v = Number("v", 0);
  for (const float sum : {10.0F, 20.0F}) {
    for (int i = 0; i < 5; ++i) ASSERT_OK(coordinator_->Schedule(Adding(v, 2)));
    ASSERT_OK(coordinator_->Join(Soon()));
    EXPECT_EQ(Read(v), sum);
    EXPECT_TRUE(coordinator_->Done().value());
  }
  for (int i = 0; i < 3; ++i) ASSERT_OK(coordinator_->Join(Soon()));
}

static_assert(!std::is_convertible_v<RemoteValue, Value>);

TEST_F(CoordinatorTest, H4_AnEmptyFunctionIsRefused) {
  Start(1);
  EXPECT_THAT(coordinator_->Schedule(nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found no function")));
}

TEST_F(CoordinatorTest, AnExceptionOfAScheduledFunctionIsItsError) {
  Start(1);
  ASSERT_OK(coordinator_->Schedule(
      [](absl::Span<const Value>) -> absl::StatusOr<Value> { throw std::out_of_range("row 7"); }));
  EXPECT_THAT(coordinator_->Join(Soon()),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("threw: row 7")));
}

TEST_F(CoordinatorTest, H6_RunAndReduceInAScheduledFunction) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr v = Number("v", 1);
  const auto step = [&](absl::Span<const Value> args) -> absl::StatusOr<Value> {
    const absl::StatusOr<Value> run = strategy_->Run(
        [&](absl::Span<const Value> own) -> absl::StatusOr<Value> {
          const float x = own[0].tensor().values<float>()[0];
          const absl::StatusOr<Tensor> read = v->Read();
          if (!read.ok()) return read.status();
          const float now = read->values<float>()[0];
          return Value::Tuple({Tensor::Scalar<float>(x + now), Tensor::Scalar<float>(x - now)});
        },
        args);
    if (!run.ok()) return run;
    return strategy_->Reduce(ReduceOp::kSum, *run, std::nullopt);
  };
  const RemoteValue sum = coordinator_->Schedule(step, {Tensor::Scalar<float>(3)}).value();
  const Value fetched = sum.Fetch(Soon()).value();
  EXPECT_EQ(fetched.items()[0].tensor().values<float>()[0], 4 * 2);
  EXPECT_EQ(fetched.items()[1].tensor().values<float>()[0], 2 * 2);
  EXPECT_EQ(sum.state(), RemoteValue::State::kReady);
}

TEST_F(CoordinatorTest, H6_RunWithAssignAddOfTheFirstReplica) {
  Start(2, {.worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr v1 = Number("v1", 0, VariableAggregation::kOnlyFirstReplica);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(coordinator_->Schedule([&](absl::Span<const Value>) {
      return strategy_->Run(
          [&](absl::Span<const Value>) { return None(v1->AssignAdd(Tensor::Scalar<float>(3))); });
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(Read(v1), 6);
}

TEST_F(CoordinatorTest, H7_TheFirstErrorIsReturnedOnceAndCancelsTheQueue) {
  Start(1);
  absl::Notification go;
  const RemoteValue failed =
      coordinator_
          ->Schedule([&go](absl::Span<const Value>) -> absl::StatusOr<Value> {
            go.WaitForNotificationWithTimeout(absl::Seconds(60));
            return absl::InvalidArgumentError("the function's own");
          })
          .value();
  const RemoteValue queued =
      coordinator_->Schedule([](absl::Span<const Value>) { return Value(1); }).value();
  EXPECT_EQ(queued.state(), RemoteValue::State::kNotReady);
  go.Notify();
  EXPECT_THAT(coordinator_->Join(Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the function's own")));
  EXPECT_EQ(failed.state(), RemoteValue::State::kAborted);
  EXPECT_THAT(queued.Fetch(Soon()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("schedule it again")));
  EXPECT_OK(coordinator_->Join(Soon()));
  const RemoteValue again =
      coordinator_->Schedule([](absl::Span<const Value>) { return Value(7); }).value();
  EXPECT_EQ(coordinator_->Fetch({again}, Soon()).value()[0].integer(), 7);
}

TEST_F(CoordinatorTest, H7_ScheduleAlsoReturnsTheError) {
  Start(1);
  const RemoteValue failed = coordinator_
                                 ->Schedule([](absl::Span<const Value>) -> absl::StatusOr<Value> {
                                   return absl::InternalError("no");
                                 })
                                 .value();
  EXPECT_FALSE(failed.Fetch(Soon()).ok());
  // The worker's thread records the failure just after it has set the result.
  absl::Status told;
  for (const Deadline deadline = Soon(); told.ok() && !deadline.Expired();) {
    told = coordinator_->Schedule([](absl::Span<const Value>) { return Value(); }).status();
  }
  EXPECT_EQ(told.code(), absl::StatusCode::kInternal);
  EXPECT_OK(coordinator_->Schedule([](absl::Span<const Value>) { return Value(); }));
  EXPECT_OK(coordinator_->Join(Soon()));
}

TEST_F(CoordinatorTest, H9_AFactoryThatFailsOrCreatesVariablesIsRefused) {
  Start(2);
  EXPECT_THAT(coordinator_->CreatePerWorkerDataset([](int32_t) -> absl::StatusOr<Dataset> {
    return absl::NotFoundError("no file");
  }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("dataset of worker 0")));
  EXPECT_THAT(coordinator_->CreatePerWorkerDataset([](int32_t) -> absl::StatusOr<Dataset> {
    (void)CreateVariable({.name = "v", .initial_value = Tensor::Scalar<float>(0)});
    return Dataset::Range(3);
  }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("creates a variable")));
}

// Each worker iterates over the whole dataset: four functions take elements whose sum depends on
// which worker took them, but no worker skips an element.
TEST_F(CoordinatorTest, EveryWorkerHasItsOwnIterator) {
  Start(2);
  std::atomic<int> made = 0;
  const auto dataset = coordinator_
                           ->CreatePerWorkerDataset([&made](int32_t worker) {
                             ++made;
                             return Dataset::Range(100 * worker, 100 * worker + 50);
                           })
                           .value();
  EXPECT_EQ(made, 2);
  const auto iterator = dataset->MakeIterator();
  absl::Mutex mutex;
  std::vector<std::vector<int64_t>> taken(2);
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(coordinator_->Schedule([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
      Element element;
      const absl::StatusOr<bool> next = iterator->Next(&element);
      if (!next.ok()) return next.status();
      const absl::MutexLock lock(&mutex);
      taken[static_cast<size_t>(*CurrentWorker())].push_back(element[0].values<int64_t>()[0]);
      return Value();
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(taken[0].size() + taken[1].size(), 20U);
  for (size_t worker = 0; worker < 2; ++worker) {
    for (size_t i = 0; i < taken[worker].size(); ++i) {
      EXPECT_EQ(taken[worker][i], static_cast<int64_t>(100 * worker + i));
    }
  }
}

// Replicas that ask at the same time wait for each other: an iterator makes one element at a time.
TEST_F(CoordinatorTest, ReplicasOfAFunctionTakeDifferentElements) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  std::atomic<int> inside = 0;
  const auto slow = [&inside](Element element) -> absl::StatusOr<Element> {
    EXPECT_EQ(++inside, 1);
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    --inside;
    return element;
  };
  const auto iterator =
      coordinator_->CreatePerWorkerDataset([&](int32_t) { return Dataset::Range(1000).Map(slow); })
          .value()
          ->MakeIterator();
  absl::Mutex mutex;
  std::set<int64_t> taken;
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(coordinator_->Schedule([&] {
      return strategy_->Run([&]() -> absl::Status {
        Element element;
        RETURN_IF_ERROR(iterator->Next(&element).status());
        const absl::MutexLock lock(&mutex);
        taken.insert(element[0].values<int64_t>()[0]);
        return absl::OkStatus();
      });
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(taken.size(), 100U);
  EXPECT_EQ(*taken.rbegin(), 99);
}

TEST_F(CoordinatorTest, AFunctionRunsInTheStrategysScope) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  VariablePtr made;
  ASSERT_OK(coordinator_->Schedule([&]() -> absl::Status {
    EXPECT_TRUE(HasStrategy());
    EXPECT_TRUE(InCrossReplicaContext());
    EXPECT_EQ(&GetStrategy(), strategy_.get());
    std::atomic<int> replicas = 0;
    RETURN_IF_ERROR(GetStrategy().Run([&replicas] { ++replicas; }).status());
    EXPECT_EQ(replicas, 2);
    EXPECT_THAT(OneDeviceStrategy(Cpu(0)).Run([] {}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("different strategies cannot be mixed")));
    ASSIGN_OR_RETURN(made,
                     CreateVariable({.name = "v", .initial_value = Tensor::Scalar<float>(3)}));
    return absl::OkStatus();
  }));
  ASSERT_OK(coordinator_->Join(Soon()));
  ASSERT_OK(ServerOf(made));
  EXPECT_EQ(Read(made), 3);
}

// A worker that is lost before or during a function: the function runs again.
TEST_F(CoordinatorTest, H10_FunctionsOfALostWorkerRunAgain) {
  std::atomic<int> returned = 0;
  Start(2, {}, {.wait_for_worker = [&returned](int32_t) {
          ++returned;
          return absl::OkStatus();
        }});
  const VariablePtr iterations =
      Make({.name = "iterations", .initial_value = Tensor::Scalar<int64_t>(0), .trainable = false});
  std::atomic<int> losses = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK(coordinator_->Schedule([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
      if (losses.fetch_add(1) % 2 == 0) return WorkerLost("killed before its step");
      return None(iterations->AssignAdd(1));
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(Read(iterations), 4);
  // Lost during the function: completed work remains, so the count is at least that high.
  std::atomic<bool> killed = false;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK(coordinator_->Schedule([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
      const absl::Status added = iterations->AssignAdd(1);
      if (!added.ok()) return added;
      if (!killed.exchange(true)) return WorkerLost("killed after its step");
      return Value();
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(Read(iterations), 4 + 4 + 1);
  // A function may complete on another worker before its own worker is back, so wait for the
  // threads.
  coordinator_.reset();
  EXPECT_EQ(returned, losses - 4 + 1);
}

// The error is not a lost worker of a function that returns it.
TEST_F(CoordinatorTest, AFunctionThatLosesWorkerAfterWorkerFails) {
  Start(1);
  std::atomic<int> losses = 0;
  ASSERT_OK(coordinator_->Schedule([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
    ++losses;
    return WorkerLost("killed");
  }));
  const absl::Status failed = coordinator_->Join(Soon());
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost 100 workers")));
  EXPECT_EQ(losses, 100);
  EXPECT_FALSE(IsWorkerLost(failed));
}

TEST_F(CoordinatorTest, ALostWorkersDatasetIsMadeAgainAndRestarts) {
  Start(1);
  std::atomic<int> made = 0;
  const auto iterator = coordinator_
                            ->CreatePerWorkerDataset([&made](int32_t) {
                              ++made;
                              return Dataset::Range(10);
                            })
                            .value()
                            ->MakeIterator();
  std::vector<int64_t> taken;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(coordinator_->Schedule([&, i](absl::Span<const Value>) -> absl::StatusOr<Value> {
      if (i == 2 && made == 1) return WorkerLost("killed");
      Element element;
      const absl::StatusOr<bool> next = iterator->Next(&element);
      if (!next.ok()) return next.status();
      taken.push_back(element[0].values<int64_t>()[0]);
      return Value();
    }));
  }
  ASSERT_OK(coordinator_->Join(Soon()));
  EXPECT_EQ(made, 2);
  EXPECT_THAT(taken, ElementsAre(0, 1, 0));
}

TEST_F(CoordinatorTest, LosingEveryWorkerIsTheError) {
  Start(2, {}, {.wait_for_worker = [](int32_t) { return absl::UnavailableError("gone"); }});
  ASSERT_OK(coordinator_->Schedule(
      [](absl::Span<const Value>) -> absl::StatusOr<Value> { return WorkerLost("killed"); }));
  EXPECT_THAT(coordinator_->Join(Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("every worker is lost")));
  EXPECT_EQ(coordinator_->Schedule([](absl::Span<const Value>) { return Value(); }).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(CoordinatorTest, H11_ALostServerIsUnavailableAtJoinAndSchedule) {
  Start(2);
  const VariablePtr v = Number("v", 0);
  servers_.Stop(0);
  const auto read = [v](absl::Span<const Value>) -> absl::StatusOr<Value> {
    return None(v->Read().status());
  };
  ASSERT_OK(coordinator_->Schedule(read));
  EXPECT_THAT(coordinator_->Join(Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ps:0")));
  const RemoteValue second = coordinator_->Schedule(read).value();
  EXPECT_FALSE(second.Fetch(Soon()).ok());
  absl::Status told;
  for (const Deadline deadline = Soon(); told.ok() && !deadline.Expired();) {
    told = coordinator_->Schedule(read).status();
  }
  EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
}

TEST_F(CoordinatorTest, H13_RunOutsideAScheduledFunctionRuns) {
  Start(1);
  EXPECT_EQ(strategy_->Run([](absl::Span<const Value>) { return Value(5); })->integer(), 5);
}

TEST_F(CoordinatorTest, H13_APerWorkerIteratorOutsideAScheduledFunctionIsRefused) {
  Start(1);
  const auto iterator =
      coordinator_->CreatePerWorkerDataset([](int32_t) { return Dataset::Range(3); })
          .value()
          ->MakeIterator();
  Element element;
  EXPECT_THAT(iterator->Next(&element), StatusIs(absl::StatusCode::kUnimplemented,
                                                 HasSubstr("outside a scheduled function")));
}

TEST_F(CoordinatorTest, AFullQueueMakesScheduleWaitAndThenRefuse) {
  Start(1, {}, {.queue_limit = 1, .schedule_wait = absl::Milliseconds(50)});
  absl::Notification go;
  ScheduleUntil(go);
  const auto nothing = [](absl::Span<const Value>) { return Value(); };
  ASSERT_OK(coordinator_->Schedule(nothing));
  EXPECT_THAT(coordinator_->Schedule(nothing),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("at most 1")));
  EXPECT_THAT(coordinator_->Join(Deadline::In(absl::ZeroDuration())),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1 functions still run")));
  EXPECT_FALSE(coordinator_->Done().value());
  go.Notify();
  EXPECT_OK(coordinator_->Join(Soon()));
}

// Functions that are queued when the coordinator ends are cancelled, not dropped silently.
TEST_F(CoordinatorTest, EndingCancelsTheQueue) {
  Start(1);
  absl::Notification go;
  ScheduleUntil(go);
  const RemoteValue queued =
      coordinator_->Schedule([](absl::Span<const Value>) { return Value(); }).value();
  std::thread ending([this] { coordinator_.reset(); });
  EXPECT_EQ(queued.Fetch(Soon()).status().code(), absl::StatusCode::kCancelled);
  go.Notify();
  ending.join();
}

}  // namespace
}  // namespace cairn::test
