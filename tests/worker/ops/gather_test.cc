// Gathering copies the right rows for every width, and the gradient sums repeated rows without
// needing a cleared output.
#include "worker/ops/gather.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

const std::vector<int32_t> kPositions = {0, 1, 0, 2, 2, 1, 3, 0};

TEST(Gather, CopiesRowsAndLeavesWhatLiesBetween) {
  for (size_t width = 1; width <= 40; ++width) {
    std::vector<float> table(4 * width);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) + 0.5f;
    const size_t stride = width + 3;
    std::vector<float> out(kPositions.size() * stride, -1.0f);
    GatherRows(table.data(), width, kPositions.data(), kPositions.size(), out.data(), stride);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t r = i / stride, c = i % stride;
      const float want = c < width ? table[static_cast<size_t>(kPositions[r]) * width + c] : -1.0f;
      ASSERT_EQ(out[i], want) << "width " << width << ", " << i;
    }
  }
}

TEST(Gather, SumsRepeatedPositionsOverWhateverWasThere) {
  for (size_t width = 1; width <= 40; ++width) {
    const size_t stride = width + 1;
    std::vector<float> d_out(kPositions.size() * stride);
    for (size_t i = 0; i < d_out.size(); ++i) d_out[i] = static_cast<float>(i % 11) - 4.0f;
    std::vector<float> sums(4 * width, std::numeric_limits<float>::quiet_NaN());
    SumRowsByPosition(d_out.data(), stride, width, kPositions.data(), kPositions.size(),
                      sums.data());
    std::vector<float> want(4 * width, 0.0f);
    for (size_t r = 0; r < kPositions.size(); ++r) {
      for (size_t c = 0; c < width; ++c) {
        want[static_cast<size_t>(kPositions[r]) * width + c] += d_out[r * stride + c];
      }
    }
    ASSERT_EQ(sums, want) << "width " << width;
  }
}

TEST(Gather, DotsAndTheirGradientsEqualTheirDefinition) {
  const std::vector<int32_t> other = {0, 0, 1, 2, 1, 0, 3, 3};
  for (size_t width = 1; width <= 40; ++width) {
    std::vector<float> a(4 * width), b(4 * width), dots(kPositions.size());
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(i % 7) - 3.0f;
      b[i] = static_cast<float>(i % 5) - 2.0f;
    }
    DotsByPosition(a.data(), kPositions.data(), b.data(), other.data(), width, kPositions.size(),
                   dots.data());
    const std::vector<float> scale = {1, 2, -1, 0.5f, 3, -2, 1, 4};
    std::vector<float> d_a(4 * width, std::numeric_limits<float>::quiet_NaN());
    SumScaledRowsByPosition(b.data(), other.data(), scale.data(), kPositions.data(), width,
                            kPositions.size(), d_a.data());
    std::vector<float> want(4 * width, 0.0f);
    for (size_t r = 0; r < kPositions.size(); ++r) {
      const size_t p = static_cast<size_t>(kPositions[r]), q = static_cast<size_t>(other[r]);
      float dot = 0;
      for (size_t c = 0; c < width; ++c) {
        dot += a[p * width + c] * b[q * width + c];
        want[p * width + c] += scale[r] * b[q * width + c];
      }
      ASSERT_EQ(dots[r], dot) << "width " << width;  // small whole numbers: exact
    }
    ASSERT_EQ(d_a, want) << "width " << width;
  }
}

}  // namespace
}  // namespace cairn
