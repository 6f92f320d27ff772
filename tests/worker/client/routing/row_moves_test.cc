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

}  // namespace
}  // namespace cairn
