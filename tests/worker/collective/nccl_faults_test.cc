// Faults in the middle of NCCL's collectives, on fake GPUs: what the other ranks do about them.
#include <cuda_runtime_api.h>

#include <atomic>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/nccl_group.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kCount = 1000;

// Memory on `device`, not freed: freeing waits for the device's work.
MutableBuffer MemoryOn(int device) {
  void* memory = nullptr;
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, kCount * sizeof(float)), cudaSuccess);
  return {DType::kFloat32, memory, kCount};
}

// Forwards to a rank's group; its rank's next barrier or exchange of calls is its last: the rank
// agrees to a collective and does not run it.
class Leaving final : public CollectiveGroup {
 public:
  explicit Leaving(CollectiveGroup& group) : group_(group) {}

  void LeaveAfterNextCall() { leaves_ = true; }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& peer(int rank) const override { return group_.peer(rank); }
  absl::Status AllReduce(ReduceOp op, ConstBuffer in, MutableBuffer out,
                         Deadline deadline) override {
    return group_.AllReduce(op, in, out, deadline);
  }
  absl::Status Broadcast(int root, MutableBuffer buffer, Deadline deadline) override {
    return group_.Broadcast(root, buffer, deadline);
  }
  absl::Status AllGatherV(ConstBuffer in, PlaceGathered place, Deadline deadline) override {
    const absl::Status status = group_.AllGatherV(in, place, deadline);
    return leaves_ ? absl::InternalError("this rank leaves") : status;
  }
  absl::Status ReduceScatter(ReduceOp op, ConstBuffer in, MutableBuffer out,
                             Deadline deadline) override {
    return group_.ReduceScatter(op, in, out, deadline);
  }
  absl::Status Barrier(Deadline deadline) override { return group_.Barrier(deadline); }
  void Abort(const absl::Status& why) override { group_.Abort(why); }
  absl::Status usable() const override { return group_.usable(); }
  absl::Status FindFault(bool silence_is_fault, Deadline deadline) override {
    return group_.FindFault(silence_is_fault, deadline);
  }

 private:
  CollectiveGroup& group_;
  bool leaves_ = false;
};

// Rank 1 agrees to a collective, does not run it, and aborts: rank 0, which waits for it in NCCL,
// learns so at once.
TEST(NcclFaults, AnAbortInTheMiddleOfACollectiveEndsTheOthers) {
  Ranks bootstrap(2);
  OnRanks(2, [&](int r) {
    Leaving own(bootstrap[r]);
    const auto group = ConnectNccl(own, {.device = r}, Soon());
    ASSERT_OK(group);
    const MutableBuffer buffer = MemoryOn(r);
    ASSERT_OK((*group)->AllReduce(ReduceOp::kSum, buffer, Soon()));
    if (r == 1) own.LeaveAfterNextCall();
    const absl::Duration begin = MonotonicNow();
    const absl::Status status = (*group)->AllReduce(ReduceOp::kSum, buffer, Soon());
    if (r == 1) {
      EXPECT_FALSE(status.ok());
      (*group)->Abort(absl::InternalError("no more"));
      return;
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("no more")));
    EXPECT_LT(MonotonicNow() - begin, absl::Seconds(20));
    EXPECT_FALSE((*group)->usable().ok());
  });
}

// The network still carries what a rank has sent when its own kernel has ended: leaving must not
// cut it off.
TEST(NcclFaults, ARankThatIsDoneLeavesWithoutBreakingTheOthersCollective) {
  fake::settings().network = true;
  Ranks bootstrap(2);
  OnRanks(2, [&](int r) {
    auto group = ConnectNccl(bootstrap[r], {.device = r}, Soon());
    ASSERT_OK(group);
    const MutableBuffer buffer = MemoryOn(r);
    const auto soon = Deadline::In(absl::Seconds(10));
    EXPECT_OK((*group)->Broadcast(0, buffer, soon)) << "rank " << r;
  });
  fake::settings().network = false;
}

// Each call that a collective makes of CUDA or NCCL fails once on rank 1: no rank hangs, and both
// say that the group is broken, or both have the sum.
TEST(NcclFaults, AnyFailedCallEndsTheCollectiveOnEveryRank) {
  for (int n = 1; n < 12; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n));
    Ranks bootstrap(2);
    std::atomic<int> failed = 0;
    OnRanks(2, [&](int r) {
      const auto group = ConnectNccl(bootstrap[r], {.device = r}, Soon());
      ASSERT_OK(group);
      const MutableBuffer buffer = MemoryOn(r);
      ASSERT_OK(bootstrap[r].Barrier(Soon()));
      if (r == 1) fake::settings().fail_at = n;
      const absl::Status status =
          (*group)->AllReduce(ReduceOp::kSum, buffer, Deadline::In(absl::Seconds(3)));
      if (!status.ok()) {
        ++failed;
        EXPECT_FALSE((*group)->usable().ok()) << status;
      }
    });
    fake::settings().fail_at = 0;
    EXPECT_NE(failed, 1);
  }
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
