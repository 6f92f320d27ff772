// Sparse gradients are gathered; the plan of hierarchical sums.
#include "worker/collective/cross_device_ops.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/gather_slices.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CrossDeviceOps, F3_ReduceSparse) {
  Ranks groups(2);
  OnRanks(2, [&](int r) {
    const std::vector<int64_t> ids =
        r == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 2};
    const std::vector<float> rows = r == 0 ? std::vector<float>{1, 2} : std::vector<float>{3, 4};
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const GatheredSlices got = GatherSlices(groups[r], op, Of(ids), Of(rows), 1, Soon()).value();
      EXPECT_THAT(got.ids, ElementsAre(0, 1, 1, 2));
      const auto* values = reinterpret_cast<const float*>(got.rows.data());
      const float divisor = op == ReduceOp::kSum ? 1 : 2;
      for (int i = 0; i < 4; ++i) EXPECT_EQ(values[i], static_cast<float>(i + 1) / divisor);
    }
  });
}

TEST(CrossDeviceOps, InvalidSlicesOfOneRankAreRefusedOnAll) {
  Ranks groups(2);
  OnRanks(2, [&](int r) {
    const std::vector<int64_t> ids = {4};
    const std::vector<float> rows(r == 0 ? 2 : 3);
    EXPECT_THAT(GatherSlices(groups[r], ReduceOp::kSum, Of(ids), Of(rows), 2, Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("1 int64 ids with 3 values"),
                               HasSubstr(r == 1 ? "" : "rank 1 (" + groups[r].peer(1)))));
    EXPECT_OK(groups[r].Barrier(Soon()));
  });
}

TEST(CrossDeviceOps, SlicesThatOneRankSumsAndAnotherAveragesAreRefusedOnAll) {
  Ranks groups(2);
  OnRanks(2, [&](int r) {
    const std::vector<int64_t> ids = {4};
    const std::vector<float> rows = {1, 2};
    const ReduceOp op = r == 0 ? ReduceOp::kSum : ReduceOp::kMean;
    EXPECT_THAT(GatherSlices(groups[r], op, Of(ids), Of(rows), 2, Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("calls all_gather of 1 int64 for a sum"),
                               HasSubstr("calls all_gather of 1 int64 for a mean"))));
    EXPECT_OK(groups[r].Barrier(Soon()));
  });
}

TEST(CrossDeviceOps, HierarchicalPlanHalvesTheDevicesAndSpreadsTheMainDevice) {
  const HierarchicalPlan plan = PlanHierarchicalCopy(8, 13);
  EXPECT_EQ(plan.main, 5);
  EXPECT_THAT(plan.main_half, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(plan.other_half, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(PlanHierarchicalCopy(1, 3).main_half, ElementsAre(0));
}

TEST(CrossDeviceOps, ANegativeNumberOfPacksIsRefused) {
  EXPECT_THAT(CheckNumPacks(CrossDeviceOps::kNccl, -1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_packs is -1")));
}

}  // namespace
}  // namespace cairn::test
