// Waits of the replicas of one Run for each other, and the errors when one is missing.
#include "worker/strategy/replica_barrier.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/strategy/mirrored_strategy.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<MirroredStrategy> MirroredOver(int32_t replicas) {
  std::vector<Device> devices;
  for (int32_t i = 0; i < replicas; ++i) devices.push_back(Cpu(i));
  return MirroredStrategy::Create(devices).value();
}

absl::StatusOr<Value> Nothing(Strategy&, absl::Span<const Value>) { return Value(); }

// A replica that never arrives is named, and the others continue with the error.
TEST(ReplicaBarrier, WaitEndsAndNamesTheMissingReplica) {
  ReplicaBarrier barrier(2, absl::Milliseconds(50));
  std::thread serving([&barrier] { barrier.Serve(); });
  const ReplicaBarrier::Action action = [](absl::Span<const Value::Sequence>) {
    return std::vector<Value>(2);
  };
  EXPECT_THAT(barrier.Rendezvous(0, {.what = "MergeCall"}, {}, action),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("replica 0 waited 50ms in MergeCall for replica 1"),
                             HasSubstr("still in its replica function"))));
  barrier.Finish(0);
  // A late replica gets the reason why no replica waits.
  EXPECT_THAT(barrier.Rendezvous(1, {.what = "MergeCall"}, {}, action),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("waited")));
  barrier.Finish(1);
  serving.join();
}

// Run returns the replica's own error, not the others' error that the replica was missing.
TEST(ReplicaBarrier, ErrorOfTheReplicaThatFailedComesFirst) {
  const std::unique_ptr<MirroredStrategy> strategy = MirroredOver(3);
  const absl::StatusOr<Value> result =
      strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
        if (GetReplicaContext()->replica_id_in_sync_group() == 2) {
          return absl::FailedPreconditionError("replica 2's own trouble");
        }
        return GetReplicaContext()->MergeCall(Nothing);
      });
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("own trouble")));
  // The strategy is intact: the next Run works.
  EXPECT_OK(strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
    return GetReplicaContext()->MergeCall(Nothing);
  }));
}

// An exception of a user's function is also an error of the Run, wherever the function is called.
TEST(ReplicaBarrier, AnExceptionIsAnErrorAndTheStrategyStaysUsable) {
  for (const int32_t replicas : {1, 3}) {
    const std::unique_ptr<MirroredStrategy> strategy = MirroredOver(replicas);
    const auto throwing = [](absl::Span<const Value>) -> absl::StatusOr<Value> {
      if (GetReplicaContext()->replica_id_in_sync_group() == 0) throw std::out_of_range("row 7");
      return GetReplicaContext()->MergeCall(Nothing);
    };
    EXPECT_THAT(strategy->Run(throwing),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("threw: row 7")));
    const auto number = [](absl::Span<const Value>) -> absl::StatusOr<Value> { throw 7; };
    EXPECT_THAT(strategy->Run(number), StatusIs(absl::StatusCode::kUnknown, HasSubstr("threw")));
    const auto merging = [](absl::Span<const Value>) {
      return GetReplicaContext()->MergeCall(
          [](Strategy&, absl::Span<const Value>) -> absl::StatusOr<Value> {
            throw std::runtime_error("no sum");
          });
    };
    EXPECT_THAT(strategy->Run(merging),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("threw: no sum")));
    EXPECT_OK(strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
      return GetReplicaContext()->MergeCall(Nothing);
    }));
  }
}

TEST(ReplicaBarrier, DifferentCallsAreDistinguished) {
  const std::unique_ptr<MirroredStrategy> strategy = MirroredOver(2);
  const absl::StatusOr<Value> result =
      strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
        const std::shared_ptr<ReplicaContext> context = GetReplicaContext();
        const Value one = Tensor::Vector<float>({1});
        return context->replica_id_in_sync_group() == 0 ? context->AllReduce(ReduceOp::kSum, one)
                                                        : context->AllGather(one, 0);
      });
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("AllReduce"), HasSubstr("AllGather of axis 0"),
                                     HasSubstr("same calls in the same order"))));
}

// Replica functions run concurrently: each waits for the other without a merge call.
TEST(ReplicaBarrier, ReplicaFunctionsRunInParallel) {
  const std::unique_ptr<MirroredStrategy> strategy = MirroredOver(2);
  std::atomic<int> arrived = 0;
  const absl::StatusOr<Value> result =
      strategy->Run([&arrived](absl::Span<const Value>) -> absl::StatusOr<Value> {
        ++arrived;
        const Deadline deadline = Deadline::In(absl::Seconds(30));
        while (arrived < 2 && !deadline.Expired()) std::this_thread::yield();
        return Value(arrived.load());
      });
  ASSERT_OK(result);
  EXPECT_EQ(result->integer(), 2);
}

// Several threads may run steps of one strategy concurrently; a Run inside a merge call also has
// threads.
TEST(ReplicaBarrier, RunsOfSeveralThreadsAndNestedRuns) {
  const std::unique_ptr<MirroredStrategy> strategy = MirroredOver(2);
  const auto step = [&strategy]() -> absl::Status {
    return strategy
        ->Run([&strategy](absl::Span<const Value>) {
          return GetReplicaContext()->MergeCall([&strategy](Strategy&, absl::Span<const Value>) {
            return strategy->Run([](absl::Span<const Value>) {
              return GetReplicaContext()->AllReduce(ReduceOp::kSum, Tensor::Scalar<float>(1));
            });
          });
        })
        .status();
  };
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(4);
  for (absl::Status& status : statuses) {
    threads.emplace_back([&status, &step] {
      for (int i = 0; i < 50 && status.ok(); ++i) status = step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

}  // namespace
}  // namespace cairn
