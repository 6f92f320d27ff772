// Rows are gathered and scattered alike for usual and unusual widths.
#include "worker/client/routing/row_moves.h"

#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(RowMoves, ScatterUndoesGather) {
  const std::vector<int32_t> order = {3, 0, 4, 1, 2};
  for (const size_t width : {1, 4, 8, 12, 16, 32, 64, 100, 128}) {
    std::vector<std::byte> rows(order.size() * width);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i * 7 + i / width);
    std::vector<std::byte> gathered(rows.size()), back(rows.size());
    GatherRows(rows.data(), order.data(), order.size(), width, gathered.data());
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(gathered[i * width], rows[order[i] * width]) << width;
    }
    ScatterRows(gathered.data(), order.data(), order.size(), width, back.data());
    EXPECT_EQ(back, rows) << width;
  }
}

TEST(RowMoves, AddsRowsInTheirOrder) {
  const std::vector<int32_t> order = {2, 0, 2};
  for (const size_t width : {1, 3, 16, 25}) {
    std::vector<float> rows(order.size() * width), sums(4 * width, 1.0f);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    AddRows(rows.data(), order.data(), order.size(), width, sums.data());
    for (size_t k = 0; k < width; ++k) {
      EXPECT_EQ(sums[k], 1 + rows[width + k]);
      EXPECT_EQ(sums[width + k], 1);
      EXPECT_EQ(sums[2 * width + k], 1 + rows[k] + rows[2 * width + k]);
    }
  }
}

}  // namespace
}  // namespace cairn
