// Blocks of columns are copied to the right place, and nothing else changes.
#include "worker/ops/concat.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(CopyColumns, PutsABlockBesideOthers) {
  const std::vector<float> block = {1, 2, 3, 4};
  std::vector<float> wide(2 * 5, 0.0f);
  CopyColumns(block.data(), 2, 2, 2, wide.data() + 1, 5);
  EXPECT_THAT(wide, ::testing::ElementsAre(0, 1, 2, 0, 0, 0, 3, 4, 0, 0));
  CopyColumns(block.data(), 2, 2, 0, wide.data(), 5);
  EXPECT_THAT(wide, ::testing::ElementsAre(0, 1, 2, 0, 0, 0, 3, 4, 0, 0));
}

}  // namespace
}  // namespace cairn
