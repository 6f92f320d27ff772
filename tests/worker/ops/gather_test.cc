// Gathering copies the right rows for every width, and the gradient sums repeats without needing
// its output cleared.
#include "worker/ops/gather.h"

#include <cmath>
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

}  // namespace
}  // namespace cairn
