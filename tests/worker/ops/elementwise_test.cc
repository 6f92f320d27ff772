// Every vectorized loop equals the plain loop, for every length around the vector widths, so that
// tails are covered on every instruction set.
#include "worker/ops/elementwise.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/ops/random_values.h"

namespace cairn {
namespace {

constexpr size_t kMaxCount = 67;

TEST(Elementwise, AxpyEqualsThePlainLoop) {
  for (size_t count = 0; count <= kMaxCount; ++count) {
    const std::vector<float> x = NormalValues(count, 1);
    std::vector<float> y = NormalValues(count, 2), want = y;
    for (size_t i = 0; i < count; ++i) want[i] += 0.75f * x[i];
    Axpy(0.75f, x.data(), y.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(y[i], want[i], 1e-6) << count << ", " << i;
  }
}

TEST(Elementwise, ReluKeepsPositivesAndNaN) {
  for (size_t count = 1; count <= kMaxCount; ++count) {
    std::vector<float> x = NormalValues(count, 3);
    x[count - 1] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y = x;
    Relu(y.data(), count);
    for (size_t i = 0; i + 1 < count; ++i) EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0.0f);
    EXPECT_TRUE(std::isnan(y[count - 1])) << count;
  }
}

TEST(Elementwise, ReluBackwardStopsWhereTheOutputIsZero) {
  for (size_t count = 0; count <= kMaxCount; ++count) {
    std::vector<float> y = NormalValues(count, 4);
    Relu(y.data(), count);
    const std::vector<float> before = NormalValues(count, 5);
    std::vector<float> d = before;
    ReluBackward(y.data(), d.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(d[i], y[i] > 0 ? before[i] : 0.0f);
  }
}

TEST(Elementwise, AddToRowsAddsTheRowToEachAndTakesReluIfAsked) {
  for (const bool relu : {false, true}) {
    for (size_t width = 1; width <= 37; ++width) {
      const size_t rows = 5;
      const std::vector<float> row = NormalValues(width, 6);
      const std::vector<float> before = NormalValues(rows * width, 7);
      std::vector<float> y = before;
      AddToRows(row.data(), rows, width, relu, y.data());
      for (size_t i = 0; i < y.size(); ++i) {
        const float sum = before[i] + row[i % width];
        EXPECT_EQ(y[i], relu && !(sum > 0) ? 0.0f : sum) << width << ", " << i;
      }
    }
  }
}

TEST(Elementwise, SumRowsSumsEveryColumn) {
  for (const size_t rows : {0, 1, 2, 7, 64}) {
    for (size_t width = 1; width <= 37; ++width) {
      const std::vector<float> x = NormalValues(rows * width, 8);
      std::vector<float> sum(width, 99.0f);
      SumRows(x.data(), rows, width, sum.data());
      for (size_t c = 0; c < width; ++c) {
        double want = 0;
        for (size_t r = 0; r < rows; ++r) want += x[r * width + c];
        EXPECT_NEAR(sum[c], want, 1e-4) << rows << " x " << width;
      }
    }
  }
}

TEST(Elementwise, OuterProductLeavesWhatLiesBetweenRows) {
  for (size_t width = 1; width <= 37; ++width) {
    const std::vector<float> scale = NormalValues(3, 9), row = NormalValues(width, 10);
    const size_t stride = width + 2;
    std::vector<float> out(3 * stride, 7.0f);
    OuterProduct(scale.data(), 3, row.data(), width, out.data(), stride);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t r = i / stride, c = i % stride;
      EXPECT_EQ(out[i], c < width ? scale[r] * row[c] : 7.0f);
    }
  }
}

TEST(Elementwise, SigmoidIsAccurateFromTheSmallestToTheLargest) {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, -1.0f, 16.6f, -16.6f, 88.0f, -87.0f, 1e4f, -1e4f};
  for (const float value : NormalValues(kMaxCount, 11)) x.push_back(5 * value);
  std::vector<float> y(x.size());
  Sigmoid(x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = 1 / (1 + std::exp(-static_cast<double>(x[i])));
    EXPECT_NEAR(y[i], want, 3e-7 * want + 1e-37) << x[i];
  }
  Sigmoid(x.data(), x.data(), x.size());
  EXPECT_EQ(x, y);
}

TEST(Elementwise, ExpIsAccurateAndVanishesFarBelowZero) {
  std::vector<float> x = {0.0f, -1e9f, -200.0f, 88.0f, 1e-20f};
  for (const float value : NormalValues(kMaxCount, 12)) x.push_back(10 * value);
  std::vector<float> y(x.size());
  Exp(x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    EXPECT_NEAR(y[i], want, 3e-7 * want + 1e-37) << x[i];
  }
}

}  // namespace
}  // namespace cairn
