// Gradients of the losses equal finite differences of the losses in double, and the mean is
// weighted as in Keras.
#include "worker/ops/loss.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/ops/random_values.h"

namespace cairn {
namespace {

double Sigmoid(double x, double y) {
  return std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::abs(x)));
}

TEST(SigmoidCrossEntropy, ValueAndGradientEqualTheFormulaAtEveryLength) {
  for (size_t count = 1; count <= 35; ++count) {
    const std::vector<float> x = NormalValues(count, 1);
    std::vector<float> y(count), loss(count), d(count);
    for (size_t i = 0; i < count; ++i) y[i] = static_cast<float>(i % 3) / 2;
    SigmoidCrossEntropy(x.data(), y.data(), count, loss.data(), d.data());
    for (size_t i = 0; i < count; ++i) {
      const double h = 1e-5;
      EXPECT_NEAR(loss[i], Sigmoid(x[i], y[i]), 1e-6);
      EXPECT_NEAR(d[i], (Sigmoid(x[i] + h, y[i]) - Sigmoid(x[i] - h, y[i])) / (2 * h), 1e-6);
    }
  }
}

TEST(SigmoidCrossEntropy, LabelMinusOneCountsAsZero) {
  const float x[] = {0.5f, 0.5f}, y[] = {-1.0f, 0.0f};
  float loss[2], d[2];
  SigmoidCrossEntropy(x, y, 2, loss, d);
  EXPECT_EQ(loss[0], loss[1]);
  EXPECT_EQ(d[0], d[1]);
}

TEST(SoftmaxCrossEntropy, StaysFiniteForHugeLogits) {
  const float x[] = {1e4f, -1e4f, 0.0f}, y[] = {1.0f};
  float loss[1], d[3];
  SoftmaxCrossEntropy(x, y, 1, 3, loss, d);
  EXPECT_FLOAT_EQ(loss[0], 2e4f);
  EXPECT_FLOAT_EQ(d[0], 1.0f);
  EXPECT_FLOAT_EQ(d[1], -1.0f);
  EXPECT_FLOAT_EQ(d[2], 0.0f);
}

TEST(SoftmaxCrossEntropy, GradientEqualsFiniteDifferences) {
  const size_t rows = 4, classes = 5;
  const std::vector<float> x = NormalValues(rows * classes, 2), y = {0, 4, 2, 2};
  std::vector<float> loss(rows), d(x.size());
  SoftmaxCrossEntropy(x.data(), y.data(), rows, classes, loss.data(), d.data());
  const auto exact = [&](size_t row, size_t moved, double by) {
    double sum = 0, label = 0;
    for (size_t c = 0; c < classes; ++c) {
      const double z = x[row * classes + c] + (c == moved ? by : 0);
      sum += std::exp(z);
      if (static_cast<float>(c) == y[row]) label = z;
    }
    return std::log(sum) - label;
  };
  for (size_t r = 0; r < rows; ++r) {
    EXPECT_NEAR(loss[r], exact(r, 0, 0), 1e-5);
    for (size_t c = 0; c < classes; ++c) {
      EXPECT_NEAR(d[r * classes + c], (exact(r, c, 1e-5) - exact(r, c, -1e-5)) / 2e-5, 1e-6);
    }
  }
}

TEST(MeanLoss, DividesByTheCountWithAndWithoutWeights) {
  const std::vector<float> loss = {1, 2, 6}, weights = {1, 0, 0.5f};
  std::vector<float> d = {1, 1, 2, 2, 3, 3};
  EXPECT_DOUBLE_EQ(MeanLoss(loss, {}, 2, d.data()), 3.0);
  EXPECT_FLOAT_EQ(d[5], 1.0f);
  d = {1, 1, 2, 2, 3, 3};
  EXPECT_NEAR(MeanLoss(loss, weights, 2, d.data()), 4.0 / 3, 1e-12);
  EXPECT_FLOAT_EQ(d[0], 1.0f / 3);
  EXPECT_FLOAT_EQ(d[2], 0.0f);
  EXPECT_FLOAT_EQ(d[5], 0.5f);
  EXPECT_EQ(MeanLoss({}, {}, 1, nullptr), 0.0);
}

}  // namespace
}  // namespace cairn
