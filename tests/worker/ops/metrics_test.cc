// Metrics equal their definitions over all pairs or rows, and are NaN if undefined.
#include "worker/ops/metrics.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Auc, EqualsTheShareOfOrderedPairs) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<int> score(0, 9), label(0, 1), weight(0, 4);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<float> labels, scores, weights;
    for (int i = 0; i < 60; ++i) {
      labels.push_back(label(generator) != 0 ? 1.0f : -1.0f);
      scores.push_back(static_cast<float>(score(generator)));
      weights.push_back(static_cast<float>(weight(generator)) / 2);
    }
    double pairs = 0, ordered = 0;
    for (size_t p = 0; p < labels.size(); ++p) {
      for (size_t n = 0; n < labels.size(); ++n) {
        if (labels[p] <= 0 || labels[n] > 0) continue;
        const double w = weights[p] * weights[n];
        pairs += w;
        ordered += scores[p] > scores[n] ? w : scores[p] == scores[n] ? w / 2 : 0;
      }
    }
    EXPECT_NEAR(Auc(labels, scores, weights), ordered / pairs, 1e-12);
  }
}

TEST(Auc, IsNaNWithoutBothClassesOrWithANaNScore) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Auc({}, {})));
  EXPECT_TRUE(std::isnan(Auc({1, 1}, {0, 1})));
  EXPECT_TRUE(std::isnan(Auc({0, 0}, {0, 1})));
  EXPECT_TRUE(std::isnan(Auc({0, 1}, {0, nan})));
}

TEST(LogLoss, ClipsCertaintyAndTakesMinusOneForZero) {
  EXPECT_NEAR(LogLoss({1, 0}, {0.25f, 0.25f}), -(std::log(0.25) + std::log(0.75)) / 2, 1e-7);
  EXPECT_NEAR(LogLoss({-1}, {0.25f}), -std::log(0.75), 1e-7);
  EXPECT_NEAR(LogLoss({1}, {0.0f}), 52 * std::log(2.0), 1e-9);
  EXPECT_NEAR(LogLoss({0}, {1.0f}), 52 * std::log(2.0), 1e-9);
}

TEST(Accuracy, CountsAtTheThresholdAndTakesTheFirstOfEquals) {
  EXPECT_DOUBLE_EQ(BinaryAccuracy({1, 0, 1, -1}, {0.5f, 0.5f, 0.6f, 0.4f}, 0.5), 0.75);
  EXPECT_DOUBLE_EQ(BinaryAccuracy({1, 0}, {0.1f, -0.1f}, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(ClassAccuracy({0, 1, 2}, {1, 1, 0, 2, 2, 0, 0, 1, 3}, 3), 2.0 / 3);
  EXPECT_TRUE(std::isnan(BinaryAccuracy({}, {}, 0.5)));
}

// A NaN score is neither above nor below any other.
TEST(Accuracy, IsNaNWithANaNScore) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(BinaryAccuracy({0, 1}, {nan, 1}, 0)));
  EXPECT_TRUE(std::isnan(ClassAccuracy({0, 1}, {nan, nan, 0, 1}, 2)));
  EXPECT_TRUE(std::isnan(ClassAccuracy({0, 1}, {1, nan, 0, 1}, 2)));
}

TEST(Rmse, IsTheRootOfTheWeightedMeanSquare) {
  EXPECT_DOUBLE_EQ(Rmse({1, 2}, {1, 4}), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(Rmse({1, 2}, {1, 4}, {3, 1}), 1.0);
}

}  // namespace
}  // namespace cairn
