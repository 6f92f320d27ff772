// Second-order terms equal their definition over pairs, their gradients equal finite differences,
// and the sparse form equals the dense form.
#include "worker/ops/interaction.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/ops/random_values.h"

namespace cairn {
namespace {

double Pair(const std::vector<double>& e, size_t a, size_t b, size_t width) {
  double sum = 0;
  for (size_t k = 0; k < width; ++k) sum += e[a * width + k] * e[b * width + k];
  return sum;
}

// Sum over pairs of weight(pair) * dot, in double.
template <typename Weight>
double PairSum(const std::vector<double>& e, size_t rows, size_t n, size_t width,
               const Weight& weight) {
  double sum = 0;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 1; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        sum += weight(r, DotPairs(i) + j) * Pair(e, r * n + i, r * n + j, width);
      }
    }
  }
  return sum;
}

// The function is quadratic in e, so a central difference is exact in double.
template <typename Weight>
void ExpectGradient(const std::vector<float>& e, const std::vector<float>& d_e, size_t rows,
                    size_t n, size_t width, const Weight& weight) {
  std::vector<double> at(e.begin(), e.end());
  for (size_t i = 0; i < e.size(); ++i) {
    at[i] = e[i] + 0.5;
    const double up = PairSum(at, rows, n, width, weight);
    at[i] = e[i] - 0.5;
    const double down = PairSum(at, rows, n, width, weight);
    at[i] = e[i];
    ASSERT_NEAR(d_e[i], up - down, 2e-5) << n << " x " << width << ", " << i;
  }
}

TEST(FactorizationMachine, EqualsTheSumOverPairs) {
  const size_t rows = 3;
  for (const size_t n : {1, 2, 5, 9}) {
    for (const size_t width : {1, 3, 4, 8, 13, 16}) {
      const std::vector<float> e = UniformValues(rows * n * width, 1),
                               d_out = UniformValues(rows, 2);
      std::vector<float> sums(rows * width), out(rows, 0.25f), d_e(e.size());
      FmForward(e.data(), rows, n, width, sums.data(), out.data());
      FmBackward(e.data(), sums.data(), d_out.data(), rows, n, width, d_e.data());
      const std::vector<double> exact(e.begin(), e.end());
      for (size_t r = 0; r < rows; ++r) {
        const double want = PairSum(exact, rows, n, width,
                                    [&](size_t row, size_t) { return row == r ? 1.0 : 0.0; });
        EXPECT_NEAR(out[r], 0.25 + want, 2e-5);
      }
      ExpectGradient(e, d_e, rows, n, width, [&](size_t r, size_t) { return d_out[r]; });
    }
  }
}

TEST(FactorizationMachine, SparseEqualsDenseOfTheSameFeatures) {
  const std::vector<int64_t> offsets = {0, 3, 3, 5};
  const std::vector<int32_t> columns = {0, 2, 3, 1, 2};
  const std::vector<float> values = {1, -2, 0.5f, 3, 0.25f};
  const CsrView x{
      .rows = 3, .row_offsets = offsets.data(), .columns = columns.data(), .values = values.data()};
  const std::vector<float> d_out = {0.5f, 2.0f, -1.0f};
  for (const size_t k : {1, 3, 4, 8, 16, 21}) {
    const std::vector<float> v = UniformValues(4 * k, 3);
    std::vector<float> e(3 * 4 * k, 0.0f);
    for (size_t r = 0; r < 3; ++r) {
      for (int64_t n = offsets[r]; n < offsets[r + 1]; ++n) {
        const size_t c = static_cast<size_t>(columns[static_cast<size_t>(n)]);
        for (size_t i = 0; i < k; ++i) {
          e[(r * 4 + c) * k + i] = values[static_cast<size_t>(n)] * v[c * k + i];
        }
      }
    }
    std::vector<float> sums(3 * k), want_sums(3 * k), out(3), want(3), d_e(e.size());
    std::vector<float> d_v(v.size(), 9.0f), want_d_v(v.size(), 0.0f);
    FmForward(e.data(), 3, 4, k, want_sums.data(), want.data());
    FmBackward(e.data(), want_sums.data(), d_out.data(), 3, 4, k, d_e.data());
    FmSparseForward(x, v.data(), k, sums.data(), out.data());
    FmSparseBackward(x, v.data(), sums.data(), d_out.data(), k, 4, d_v.data());
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_NEAR(out[r], want[r], 1e-5);
      for (int64_t n = offsets[r]; n < offsets[r + 1]; ++n) {
        const size_t c = static_cast<size_t>(columns[static_cast<size_t>(n)]);
        for (size_t i = 0; i < k; ++i) {
          want_d_v[c * k + i] += values[static_cast<size_t>(n)] * d_e[(r * 4 + c) * k + i];
        }
      }
    }
    for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(d_v[i], want_d_v[i], 1e-5);
  }
}

TEST(DotInteraction, EqualsItsDefinitionAndLeavesWhatLiesBetween) {
  const size_t rows = 3;
  for (const size_t n : {1, 2, 4, 9, 17, 27}) {
    for (const size_t width : {1, 3, 8, 16, 19}) {
      const size_t pairs = DotPairs(n), stride = pairs + 2;
      const std::vector<float> e = UniformValues(rows * n * width, 4);
      const std::vector<float> d_out = UniformValues(rows * stride, 5);
      std::vector<float> out(rows * stride, 7.0f), d_e(e.size(), 7.0f);
      DotInteraction(e.data(), rows, n, width, out.data(), stride);
      DotInteractionBackward(e.data(), d_out.data(), stride, rows, n, width, d_e.data());
      const std::vector<double> exact(e.begin(), e.end());
      for (size_t i = 0; i < out.size(); ++i) {
        if (i % stride >= pairs) {
          EXPECT_EQ(out[i], 7.0f);
        }
      }
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 1; i < n; ++i) {
          for (size_t j = 0; j < i; ++j) {
            EXPECT_NEAR(out[r * stride + DotPairs(i) + j], Pair(exact, r * n + i, r * n + j, width),
                        1e-5);
          }
        }
      }
      if (n > 9) continue;
      ExpectGradient(e, d_e, rows, n, width,
                     [&](size_t r, size_t pair) { return d_out[r * stride + pair]; });
    }
  }
}

}  // namespace
}  // namespace cairn
