// Bytes, times and tables as people read them.
#include "worker/ctl/human_text.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(BytesText, HasTheLargestUnitAndOneDigitAtMost) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{4} << 30), "4 GiB");
  EXPECT_EQ(BytesText(int64_t{1} << 60), "1048576 TiB");
}

TEST(SecondsText, HasTwoUnitsAtMost) {
  EXPECT_EQ(SecondsText(0.26), "0.3s");
  EXPECT_EQ(SecondsText(59.4), "59s");
  EXPECT_EQ(SecondsText(185), "3m5s");
  EXPECT_EQ(SecondsText(7800), "2h10m");
  EXPECT_EQ(SecondsText(3600 * 50), "2d2h");
}

TEST(TextTable, ColumnsAreAlignedAndLinesEndWithoutSpaces) {
  TextTable table({"a", "bb", ""});
  EXPECT_TRUE(table.empty());
  table.Add({"long", "x", ""});
  table.Add({"é", "y"});  // two bytes, one column
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.Text(1), " a     bb\n long  x\n é     y\n");
}

}  // namespace
}  // namespace cairn
