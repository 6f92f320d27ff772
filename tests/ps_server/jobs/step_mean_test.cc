// The mean of contributions: weights, order, every floating-point dtype, and workers that push
// different parts of a variable.
#include "ps_server/jobs/step_mean.h"

#include "gmock/gmock.h"
#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

std::vector<absl::Span<const std::byte>> ValuesOf(const std::vector<wire::PushItem>& items) {
  std::vector<absl::Span<const std::byte>> values;
  for (const wire::PushItem& item : items) {
    values.emplace_back(item.values.data(), item.values.size());
  }
  return values;
}

class StepMeanTest : public ::testing::Test {
 protected:
  void Contribute(int64_t rows, const std::vector<wire::PushItem>& items) {
    PendingContribution contribution;
    contribution.name.rows = rows;
    contribution.parts = *KeepParts(budget_, "ps:0", items, ValuesOf(items));
    contributions_.push_back(std::move(contribution));
  }
  StepMean Mean(SyncMean mean) {
    auto result = MeanOf(budget_, variables_, contributions_, rows_elsewhere_, mean);
    EXPECT_OK(result);
    return *std::move(result);
  }
  template <typename T>
  wire::PushItem Whole(wire::DType::type dtype, const std::vector<T>& values) {
    wire::PushItem item;
    item.variable = "w";
    item.dtype = dtype;
    item.values = PayloadOf(values);
    return item;
  }

  MemoryBudget budget_{int64_t{1} << 30, absl::ZeroDuration()};
  VariableMap variables_;
  std::vector<PendingContribution> contributions_;
  int64_t rows_elsewhere_ = 0;
};

TEST_F(StepMeanTest, OneContributionIsItsOwnMeanBitForBit) {
  Contribute(3, {WholeItem("w", {0.1f, 1e-38f})});
  const StepMean mean = Mean(SyncMean::kRows);
  ASSERT_EQ(mean.items.size(), 1u);
  EXPECT_THAT(Values<float>(mean.items[0].values), ElementsAre(0.1f, 1e-38f));
}

// Each count is within its limit, but their sum does not fit into 64 bits.
TEST_F(StepMeanTest, WeightsStayPositiveForAnyNumberOfRows) {
  for (const int64_t rows : {int64_t{1} << 62, int64_t{1} << 62, int64_t{1} << 62}) {
    Contribute(rows, {WholeItem("w", {3, 6})});
  }
  const StepMean mean = Mean(SyncMean::kRows);
  EXPECT_THAT(Values<float>(mean.items[0].values), ElementsAre(3, 6));
}

TEST_F(StepMeanTest, EveryFloatingTypeIsWeightedByRows) {
  Contribute(3, {Whole<double>(wire::DType::FLOAT64, {1e-300, 4})});
  Contribute(1, {Whole<double>(wire::DType::FLOAT64, {1e-300, 8})});
  EXPECT_THAT(Values<double>(Mean(SyncMean::kRows).items[0].values), ElementsAre(1e-300, 5.0));
  contributions_.clear();
  Contribute(3, {Whole<uint16_t>(wire::DType::FLOAT16, {Float16FromFloat(4)})});
  Contribute(1, {Whole<uint16_t>(wire::DType::FLOAT16, {Float16FromFloat(8)})});
  EXPECT_THAT(Values<uint16_t>(Mean(SyncMean::kRows).items[0].values),
              ElementsAre(Float16FromFloat(5)));
}

// From a worker that did not know this server when it pushed.
TEST_F(StepMeanTest, ContributionsWithoutAPartOnThisServerCountTowardsTheRows) {
  Contribute(1, {WholeItem("v", {6})});
  rows_elsewhere_ = 2;
  EXPECT_THAT(Values<float>(Mean(SyncMean::kRows).items[0].values), ElementsAre(2));
  EXPECT_THAT(Values<float>(Mean(SyncMean::kContributors).items[0].values), ElementsAre(6));
}

// The rows of a worker without a part of the variable count as rows with a zero gradient.
TEST_F(StepMeanTest, WorkersWithoutAPartOfAVariableCountUnderRowsButNotUnderContributors) {
  Contribute(1, {WholeItem("v", {6})});
  Contribute(2, {WholeItem("w", {1})});
  const StepMean rows = Mean(SyncMean::kRows);
  ASSERT_EQ(rows.items.size(), 2u);
  EXPECT_THAT(Values<float>(rows.items[0].values), ElementsAre(2));
  const StepMean contributors = Mean(SyncMean::kContributors);
  EXPECT_THAT(Values<float>(contributors.items[0].values), ElementsAre(6));
}

TEST_F(StepMeanTest, RowsAreConcatenatedAndSummedByThePush) {
  Contribute(1, {IdItem("w", wire::Selection::ROWS, {3, 1}, {4, 8})});
  Contribute(1, {IdItem("w", wire::Selection::ROWS, {}, {})});
  Contribute(2, {IdItem("w", wire::Selection::ROWS, {1}, {2})});
  const StepMean rows = Mean(SyncMean::kRows);
  EXPECT_THAT(Values<int64_t>(rows.items[0].ids), ElementsAre(3, 1, 1));
  EXPECT_THAT(Values<float>(rows.items[0].values), ElementsAre(1, 2, 1));
  const StepMean contributors = Mean(SyncMean::kContributors);
  EXPECT_THAT(Values<float>(contributors.items[0].values), ElementsAre(4, 4, 1));
}

TEST_F(StepMeanTest, MemoryIsChargedAndReleased) {
  const int64_t before = budget_.used_bytes();
  Contribute(1, {WholeItem("w", std::vector<float>(1000, 1))});
  EXPECT_GT(budget_.used_bytes(), before + 4000);
  Contribute(1, {WholeItem("w", std::vector<float>(1000, 1))});
  Mean(SyncMean::kRows);
  contributions_.clear();
  EXPECT_EQ(budget_.used_bytes(), before);
  MemoryBudget small(100, absl::ZeroDuration());
  const std::vector<wire::PushItem> items = {WholeItem("w", std::vector<float>(1000, 1))};
  EXPECT_THAT(KeepParts(small, "ps:0", items, ValuesOf(items)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("kept until its step closes")));
}

}  // namespace
}  // namespace cairn
