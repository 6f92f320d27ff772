// Faults in the middle of NCCL's sums, on fake GPUs: what the other ranks do about them.
#include <atomic>
#include <memory>
#include <vector>

#include "common/monotonic_cond_var.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kCount = 1000;

// A worker with one GPU, and a tensor there.
class Worker {
 public:
  Worker(CollectiveGroup& group, Device gpu, absl::Duration timeout = absl::Seconds(20))
      : queue_(OpenGpuQueue(gpu).value()),
        ranks_(JoinByNccl({gpu}, {.workers = &group, .timeout = timeout})) {
    x_ = static_cast<float*>(queue_->AllocateDevice(kCount * sizeof(float)).value());
  }
  ~Worker() { queue_->FreeDevice(x_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  absl::Status joined() const { return ranks_.status(); }
  absl::Status usable() const { return ranks_->front()->Usable(); }
  absl::Status Sum() {
    const RankSum sum = {x_, kCount, RankSum::kAllRanks};
    queue_->ops().Zero(x_, kCount);
    queue_->Reduce(*ranks_->front(), {&sum, 1});
    return queue_->Finish();
  }

 private:
  const std::unique_ptr<DeviceQueue> queue_;
  const absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> ranks_;
  float* x_ = nullptr;
};

// Worker 1 does not come to a sum, and aborts: worker 0, which waits for it in NCCL, learns so at
// once.
TEST(NcclFaults, AnAbortInTheMiddleOfASumEndsTheOthers) {
  Ranks group(2), others(2);
  OnRanks(2, [&](int r) {
    Worker worker(group[r], Gpu(r));
    ASSERT_OK(worker.joined());
    ASSERT_OK(worker.Sum());
    ASSERT_OK(others[r].Barrier(Soon()));
    if (r == 1) return group[r].Abort(absl::InternalError("no more"));
    const absl::Duration begin = MonotonicNow();
    EXPECT_THAT(worker.Sum(), StatusIs(absl::StatusCode::kAborted,
                                       AllOf(HasSubstr("no more"), HasSubstr(group[r].peer(1)))));
    EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
    EXPECT_FALSE(group[r].usable().ok());
    EXPECT_FALSE(worker.Sum().ok()) << "the ranks stay broken";
  });
}

// A process's second GPU may wait for another process while the first one has no sums.
TEST(NcclFaults, EveryGpuOfAProcessLearnsOfAnAbort) {
  Ranks group(2), others(2);
  OnRanks(2, [&](int r) {
    const std::vector<Device> gpus = r == 0 ? std::vector{Gpu(0), Gpu(1)} : std::vector{Gpu(2)};
    const auto ranks = JoinByNccl(gpus, {.workers = &group[r]});
    ASSERT_OK(ranks);
    ASSERT_OK(others[r].Barrier(Soon()));
    if (r == 1) return group[r].Abort(absl::InternalError("no more"));
    DeviceRank& second = *(*ranks)[1];
    const Deadline deadline = Deadline::In(absl::Seconds(10));
    while (second.Check().ok() && !deadline.Expired()) fake::Pause(1000);
    EXPECT_THAT(second.Check(), StatusIs(absl::StatusCode::kAborted,
                                         AllOf(HasSubstr("no more"), HasSubstr(group[r].peer(1)))));
  });
}

// Between sums, ranks may be silent for longer than a sum may take: an evaluation, a checkpoint.
TEST(NcclFaults, APauseLongerThanTheTimeoutIsNoFault) {
  Ranks group(2);
  OnRanks(2, [&](int r) {
    Worker worker(group[r], Gpu(r), absl::Milliseconds(1500));
    ASSERT_OK(worker.joined());
    ASSERT_OK(worker.Sum());
    StopFlag().WaitFor(absl::Seconds(2));  // the pause
    EXPECT_OK(worker.usable());
    EXPECT_OK(worker.Sum());
  });
}

// A worker that is alive and does not come to a sum is no fault: the sum's limit ends it.
TEST(NcclFaults, AWorkerThatDoesNotComeIsWaitedForUntilTheTimeout) {
  Ranks group(2), others(2);
  OnRanks(2, [&](int r) {
    Worker worker(group[r], Gpu(r), absl::Seconds(8));
    ASSERT_OK(worker.joined());
    if (r == 0) {
      EXPECT_THAT(worker.Sum(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         HasSubstr("not done in time: all workers answer")));
    }
    EXPECT_OK(others[r].Barrier(Soon()));
    if (r == 1) {
      EXPECT_THAT(worker.Sum(), StatusIs(absl::StatusCode::kAborted, HasSubstr(group[r].peer(0))));
    }
  });
}

TEST(NcclFaults, WorkersOnOneGpuAreRefusedByName) {
  Ranks group(2);
  OnRanks(2, [&](int r) {
    const absl::Status status = JoinByNccl({Gpu(2)}, {.workers = &group[r]}).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("gpu:2 of rank 0 (" + group[r].peer(0)),
                                       HasSubstr("gpu:2 of rank 1 (" + group[r].peer(1)),
                                       HasSubstr("are the same GPU"))));
    EXPECT_OK(group[r].Barrier(Soon()));
  });
}

TEST(NcclFaults, AWorkerThatCannotUseItsGpuIsNamedByTheOthers) {
  Ranks group(3);
  OnRanks(3, [&](int r) {
    const absl::Status status = JoinByNccl({Gpu(r == 1 ? 77 : r)}, {.workers = &group[r]}).status();
    EXPECT_THAT(status.message(),
                HasSubstr(r == 1 ? "gpu:77: CUDA" : "rank 1 (" + group[r].peer(1)));
    EXPECT_OK(group[r].Barrier(Soon()));
  });
}

// The network still carries what a rank has sent when its own kernel has ended: a worker that waits
// for the others before it leaves does not cut it off.
TEST(NcclFaults, AWorkerThatIsDoneLeavesWithoutBreakingTheOthersSum) {
  fake::settings().network = true;
  Ranks group(2);
  OnRanks(2, [&](int r) {
    Worker worker(group[r], Gpu(r));
    ASSERT_OK(worker.joined());
    EXPECT_OK(worker.Sum()) << "rank " << r;
    EXPECT_OK(group[r].Barrier(Soon()));
  });
  fake::settings().network = false;
}

// Each call that a sum makes of CUDA or NCCL fails once on worker 1: no worker hangs, and an error
// of worker 1 reaches worker 0, at the latest in its next collective.
TEST(NcclFaults, AnyFailedCallEndsTheSumOnEveryWorker) {
  int failures = 0;
  for (int n = 1; n < 16; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n));
    Ranks group(2);
    std::atomic<bool> failed = false, broken = false;
    OnRanks(2, [&](int r) {
      Worker worker(group[r], Gpu(r), absl::Seconds(3));
      ASSERT_OK(worker.joined());
      ASSERT_OK(group[r].Barrier(Soon()));
      if (r == 1) fake::settings().fail_at = n;
      const absl::Status status = worker.Sum();
      group[r].Abort(status);
      if (!status.ok()) failed = true;
      if (!group[r].Barrier(Soon()).ok() && r == 0) broken = true;
    });
    fake::settings().fail_at = 0;
    EXPECT_EQ(failed, broken);
    failures += failed ? 1 : 0;
  }
  EXPECT_GT(failures, 5);
}

// Replicas of one process: a queue whose sums another replica gives up ends its step, and new ranks
// serve the next one.
TEST(NcclFaults, SumsThatAreGivenUpEndAndNewRanksServeTheNextStep) {
  for (int step = 0; step < 3; ++step) {
    const auto ranks = JoinByNccl({Gpu(0), Gpu(1)});
    ASSERT_OK(ranks);
    OnRanks(2, [&](int r) {
      const auto queue = OpenGpuQueue(Gpu(r)).value();
      DeviceRank& rank = *(*ranks)[static_cast<size_t>(r)];
      auto* const x = static_cast<float*>(queue->AllocateDevice(kCount * sizeof(float)).value());
      queue->ops().Zero(x, kCount);
      const RankSum sum = {x, kCount, 0};
      if (r == 0 || step == 2) {
        queue->Reduce(rank, {&sum, 1});
      } else {
        rank.Fail(absl::InternalError("no more"));
      }
      const absl::Status status = queue->Finish();
      if (step == 2) {
        EXPECT_OK(status);
      } else if (r == 0) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("no more")));
      }
      queue->FreeDevice(x);
    });
  }
}

}  // namespace
}  // namespace cairn::test
