// Threads of a process reduce, gather and broadcast to bitwise equal results; disagreements and
// expired waits are errors on every rank, and the group stays usable.
#include "worker/collective/in_process_group.h"

#include <atomic>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

InProcessGroups Groups(int size) {
  return InProcessGroups::Create(CpuDevices(size), "test").value();
}

// The sum in rank order, which the group guarantees.
std::vector<float> SumInRankOrder(int ranks, size_t count) {
  std::vector<float> sum = Values(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> values = Values(r, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

class InProcessGroup : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, InProcessGroup, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(InProcessGroup, AllReduceAddsInRankOrderToTheSameBitsEverywhere) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  // One element, within the small limit, just above it, and many blocks with a ragged end.
  for (const size_t count : {1, 1024, 1025, 300'007}) {
    const std::vector<float> want = SumInRankOrder(ranks, count);
    OnRanks(ranks, [&](int r) {
      const std::vector<float> in = Values(r, count);
      std::vector<float> out(count, -1);
      ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kSum, Of(in), Into(out), Soon()));
      EXPECT_EQ(out, want) << count;
      out = in;
      ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kSum, Into(out), Soon()));
      EXPECT_EQ(out, want) << "in place, " << count;
    });
  }
}

TEST_P(InProcessGroup, MeanDividesTheSumBySize) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  const std::vector<float> sum = SumInRankOrder(ranks, 5000);
  OnRanks(ranks, [&](int r) {
    std::vector<float> values = Values(r, 5000);
    ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kMean, Into(values), Soon()));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], sum[i] / static_cast<float>(ranks)) << i;
    }
  });
}

TEST_P(InProcessGroup, BroadcastReachesEveryRankFromEveryRoot) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  for (const size_t count : {0, 3, 200'000}) {
    for (int root = 0; root < ranks; ++root) {
      OnRanks(ranks, [&](int r) {
        std::vector<float> values = Values(r, count);
        ASSERT_OK(groups.rank(r).Broadcast(root, Into(values), Soon()));
        EXPECT_EQ(values, Values(root, count));
      });
    }
  }
}

TEST_P(InProcessGroup, GatherConcatenatesDifferentLengthsInRankOrder) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  for (const int unit : {0, 1, 50'000}) {
    std::vector<float> want;
    for (int r = 0; r < ranks; ++r) {
      const std::vector<float> part = Values(r, static_cast<size_t>(r * unit));
      want.insert(want.end(), part.begin(), part.end());
    }
    OnRanks(ranks, [&](int r) {
      const std::vector<float> in = Values(r, static_cast<size_t>(r * unit));
      std::vector<float> out;
      const auto place = [&](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
        EXPECT_EQ(counts.size(), static_cast<size_t>(ranks));
        for (int k = 0; k < ranks; ++k) EXPECT_EQ(counts[static_cast<size_t>(k)], k * unit);
        out.resize(want.size());
        return Into(out);
      };
      ASSERT_OK(groups.rank(r).AllGatherV(Of(in), place, Soon()));
      EXPECT_EQ(out, want);
    });
  }
}

TEST_P(InProcessGroup, ReduceScatterGivesEachRankItsPartOfTheSum) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  for (const size_t part : {1, 30'000}) {
    const std::vector<float> sum = SumInRankOrder(ranks, part * static_cast<size_t>(ranks));
    OnRanks(ranks, [&](int r) {
      const std::vector<float> in = Values(r, sum.size());
      std::vector<float> out(part);
      ASSERT_OK(groups.rank(r).ReduceScatter(ReduceOp::kSum, Of(in), Into(out), Soon()));
      const auto from = sum.begin() + static_cast<int64_t>(part) * r;
      EXPECT_EQ(out, std::vector<float>(from, from + static_cast<int64_t>(part)));
    });
  }
}

TEST_P(InProcessGroup, NoRankLeavesABarrierBeforeAllHaveArrived) {
  const int ranks = GetParam();
  InProcessGroups groups = Groups(ranks);
  std::atomic<int> came = 0;
  OnRanks(ranks, [&](int r) {
    for (int round = 1; round <= 200; ++round) {
      ++came;
      ASSERT_OK(groups.rank(r).Barrier(Soon()));
      ASSERT_GE(came.load(), round * ranks);
      ASSERT_OK(groups.rank(r).Barrier(Soon()));
    }
  });
}

template <typename T>
void ExpectSumOfIntegersOrDoubles() {
  InProcessGroups groups = Groups(3);
  OnRanks(3, [&](int r) {
    std::vector<T> values(3001);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i) * (r + 1);
    ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), Soon()));
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<T>(i) * 6);
  });
}

TEST(InProcessGroupTypes, Float64AndIntegersAreAdded) {
  ExpectSumOfIntegersOrDoubles<double>();
  ExpectSumOfIntegersOrDoubles<int32_t>();
  ExpectSumOfIntegersOrDoubles<int64_t>();
}

TEST(InProcessGroupTypes, HalvesAreAddedInFloat32AndRoundedOnce) {
  constexpr size_t kCount = 5003;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    InProcessGroups groups = Groups(3);
    std::vector<std::vector<uint16_t>> in(3, std::vector<uint16_t>(kCount));
    std::vector<float> sum(kCount);
    for (size_t r = 0; r < 3; ++r) {
      std::vector<float> values = Values(static_cast<int>(r), kCount);
      FromFloat32(dtype, values.data(), kCount, in[r].data());
      ToFloat32(dtype, in[r].data(), kCount, values.data());
      for (size_t i = 0; i < kCount; ++i) sum[i] = r == 0 ? values[i] : sum[i] + values[i];
    }
    for (float& value : sum) value /= 3;
    std::vector<uint16_t> want(kCount);
    FromFloat32(dtype, sum.data(), kCount, want.data());
    OnRanks(3, [&](int r) {
      std::vector<uint16_t>& values = in[static_cast<size_t>(r)];
      ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kMean, {dtype, values.data(), kCount}, Soon()));
      EXPECT_EQ(values, want) << DTypeName(dtype);
    });
  }
}

TEST(InProcessGroupErrors, DifferentCountsAreRefusedOnEveryRankAndTheGroupStaysUsable) {
  InProcessGroups groups = Groups(3);
  OnRanks(3, [&](int r) {
    std::vector<float> values(r == 2 ? 7 : 8, 1.0F);
    EXPECT_THAT(groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("all_reduce #1 on rank ", r)),
                               HasSubstr("rank 0 (cpu:0) calls all_reduce sum of 8 float32"),
                               HasSubstr("rank 2 (cpu:2) calls all_reduce sum of 7 float32"))));
    EXPECT_EQ(values[0], 1.0F);
    values.resize(8, 1.0F);
    ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), Soon()));
    EXPECT_EQ(values[7], 3.0F);
  });
}

TEST(InProcessGroupErrors, DifferentOperationsAndDtypesAreRefusedOnEveryRank) {
  InProcessGroups groups = Groups(2);
  OnRanks(2, [&](int r) {
    std::vector<float> floats(4);
    std::vector<int32_t> ints(4);
    CollectiveGroup& group = groups.rank(r);
    EXPECT_THAT(r == 0 ? group.Barrier(Soon()) : group.Broadcast(1, Into(floats), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 1 (cpu:1) calls broadcast of 4 float32 from rank 1")));
    EXPECT_THAT(group.AllReduce(ReduceOp::kSum, r == 0 ? Into(floats) : Into(ints), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 int32")));
    EXPECT_THAT(group.Broadcast(r, Into(floats), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from rank 1")));
  });
}

TEST(InProcessGroupErrors, ARankThatRefusesItsOwnArgumentsDoesNotLeaveTheOthersWaiting) {
  InProcessGroups groups = Groups(2);
  OnRanks(2, [&](int r) {
    std::vector<int32_t> ints(4);
    EXPECT_THAT(
        groups.rank(r).AllReduce(r == 0 ? ReduceOp::kSum : ReduceOp::kMean, Into(ints), Soon()),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 r == 1 ? HasSubstr("mean of int32") : HasSubstr("rank 1 (cpu:1) refused")));
    EXPECT_OK(groups.rank(r).Barrier(Soon()));
  });
}

TEST(InProcessGroupErrors, GatherIntoTooLittleMemoryFailsOnlyOnThatRank) {
  InProcessGroups groups = Groups(2);
  OnRanks(2, [&](int r) {
    const std::vector<float> in(3000, static_cast<float>(r));
    std::vector<float> out(r == 0 ? 6000 : 5999);
    const absl::Status status = groups.rank(r).AllGather(Of(in), Into(out), Soon());
    if (r == 0) {
      EXPECT_OK(status);
      EXPECT_EQ(out[2999], 0.0F);
      EXPECT_EQ(out[3000], 1.0F);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("the output is 5999 float32, the ranks bring 6000")));
    }
  });
}

TEST(InProcessGroupErrors, ALateRankIsNamedAndGetsTheErrorWhenItArrives) {
  InProcessGroups groups = Groups(3);
  std::atomic<int> gave_up = 0;
  OnRanks(3, [&](int r) {
    std::vector<float> values(2000, 1.0F);
    if (r == 2) {
      while (gave_up.load() < 2) std::this_thread::yield();
    }
    const Deadline deadline = r == 2 ? Soon() : Deadline::In(absl::Milliseconds(30));
    EXPECT_THAT(groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), deadline),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr(absl::StrCat("all_reduce #1 on rank ", r, " (cpu:", r)),
                               HasSubstr("rank 2 (cpu:2) did not come within"))));
    ++gave_up;
    // The second call of each rank matches the second call of the others.
    values.assign(2000, 1.0F);
    ASSERT_OK(groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), Soon()));
    EXPECT_EQ(values[1999], 3.0F);
  });
}

// With deadlines near the duration of a collective a call may succeed or fail, but it ends the same
// way for all ranks that were in it, and successful results are correct.
TEST(InProcessGroupErrors, TightDeadlinesNeverGiveWrongSums) {
  InProcessGroups groups = Groups(4);
  std::atomic<int> succeeded = 0;
  OnRanks(4, [&](int r) {
    for (int call = 1; call <= 2000; ++call) {
      std::vector<float> values(call % 2 == 0 ? 16 : 3000, static_cast<float>(call));
      const Deadline deadline = Deadline::In(absl::Microseconds((call * 7 + r * 13) % 200));
      const absl::Status status = groups.rank(r).AllReduce(ReduceOp::kSum, Into(values), deadline);
      if (!status.ok()) continue;
      ++succeeded;
      ASSERT_EQ(values.front(), 4.0F * static_cast<float>(call));
      ASSERT_EQ(values.back(), 4.0F * static_cast<float>(call));
    }
    ASSERT_OK(groups.rank(r).Barrier(Soon()));
  });
  EXPECT_EQ(succeeded.load() % 4, 0);
}

TEST(InProcessGroupErrors, AbortWakesTheOthersAndHoldsUntilReset) {
  InProcessGroups groups = Groups(3);
  OnRanks(3, [&](int r) {
    if (r == 1) {
      groups.rank(r).Abort(absl::InternalError("the replica function failed"));
      return;
    }
    for (int call = 0; call < 1 + r; ++call) {
      EXPECT_THAT(groups.rank(r).Barrier(Soon()),
                  StatusIs(absl::StatusCode::kAborted,
                           AllOf(HasSubstr("barrier"), HasSubstr("the replica function failed"))));
    }
  });
  EXPECT_THAT(groups.rank(0).usable(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("InProcessGroups::Reset")));
  ASSERT_OK(groups.Reset());
  EXPECT_OK(groups.rank(0).usable());
  OnRanks(3, [&](int r) { EXPECT_OK(groups.rank(r).Barrier(Soon())); });
}

TEST(InProcessGroupErrors, ResetWhileARankWaitsIsRefused) {
  InProcessGroups groups = Groups(2);
  std::thread waiting([&] {
    EXPECT_THAT(groups.rank(0).Barrier(Soon()),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("over")));
  });
  while (groups.Reset().ok()) std::this_thread::yield();
  EXPECT_THAT(groups.Reset(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("rank 0 (cpu:0) is in a collective")));
  groups.Abort(absl::CancelledError("over"));
  waiting.join();
}

TEST(InProcessGroupErrors, GroupsOfNoDeviceAreRefused) {
  EXPECT_THAT(InProcessGroups::Create({}, "empty"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'empty' of 0 devices")));
}

}  // namespace
}  // namespace cairn::test
