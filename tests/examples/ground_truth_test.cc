// The generated click logs match their description: the same everywhere, with valid probabilities,
// and a truth that can be computed from the tokens.
#include "examples/clicks/ground_truth.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace cairn::clicks {
namespace {

const GroundTruth& World() {
  static const auto* const kWorld = new GroundTruth(1);
  return *kWorld;
}

TEST(GroundTruth, ARowDependsOnlyOnItsNumber) {
  const GroundTruth again(1);
  for (const uint64_t row : {0, 7, 1'000'000}) {
    const Row a = World().Draw(3, row), b = again.Draw(3, row);
    EXPECT_EQ(a.counts, b.counts);
    EXPECT_EQ(a.ranks, b.ranks);
    EXPECT_EQ(a.probability, b.probability);
    EXPECT_EQ(a.clicked, b.clicked);
  }
  EXPECT_NE(World().Draw(3, 0).ranks, World().Draw(3, 1).ranks);
  EXPECT_NE(World().Draw(3, 0).ranks, World().Draw(4, 0).ranks);
}

TEST(GroundTruth, AnotherWorldGivesTheSameTokensOtherMeanings) {
  const GroundTruth other(2);
  const Row a = World().Draw(3, 5), b = other.Draw(3, 5);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_NE(a.probability, b.probability);
}

// In every tenth of the probability range, the number of clicks equals the sum of the probabilities
// within five standard deviations.
TEST(GroundTruth, ProbabilitiesAreCalibrated) {
  constexpr int kRows = 50'000, kBins = 10;
  double expected[kBins] = {}, variance[kBins] = {}, clicked[kBins] = {};
  for (int i = 0; i < kRows; ++i) {
    const Row row = World().Draw(1, static_cast<uint64_t>(i));
    ASSERT_GT(row.probability, 0);
    ASSERT_LT(row.probability, 1);
    const int bin = static_cast<int>(row.probability * kBins);
    expected[bin] += row.probability;
    variance[bin] += row.probability * (1 - row.probability);
    clicked[bin] += row.clicked ? 1 : 0;
  }
  for (int bin = 0; bin < kBins; ++bin) {
    EXPECT_NEAR(clicked[bin], expected[bin], 5 * std::sqrt(variance[bin]) + 1) << bin;
  }
}

TEST(GroundTruth, TokensOfAColumnAreDistinct) {
  for (const int column : {0, 2, 25}) {
    std::set<uint32_t> tokens;
    for (int64_t rank = 0; rank < 40'000; ++rank) tokens.insert(GroundTruth::Token(column, rank));
    EXPECT_EQ(tokens.size(), 40'000u);
  }
  EXPECT_NE(GroundTruth::Token(0, 0), GroundTruth::Token(1, 0));
}

TEST(GroundTruth, LogsHaveALongTailAndMissingValues) {
  std::set<int64_t> seen;
  int missing = 0, most_common = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const Row row = World().Draw(1, i);
    seen.insert(row.ranks[2]);
    most_common += row.ranks[2] == 0 ? 1 : 0;
    missing += row.counts[0] == kMissing ? 1 : 0;
  }
  EXPECT_GT(seen.size(), 3'000u);
  EXPECT_GT(most_common, 2'000);
  EXPECT_NEAR(missing / 20'000.0, 0.43, 0.02);
}

}  // namespace
}  // namespace cairn::clicks
