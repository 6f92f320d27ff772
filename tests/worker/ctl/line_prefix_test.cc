// Lines of many processes stay whole and begin with their process's name, in whatever chunks they
// arrive.
#include "worker/ctl/line_prefix.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(LinePrefix, EveryLineHasTheTaskInFront) {
  LinePrefix prefix("ps:0", 8, -1);
  EXPECT_EQ(prefix.Feed("one\ntwo\n"), "ps:0     | one\nps:0     | two\n");
}

TEST(LinePrefix, ALineThatComesInPiecesIsShownOnceItIsWhole) {
  LinePrefix prefix("w", 1, -1);
  EXPECT_EQ(prefix.Feed("be"), "");
  EXPECT_EQ(prefix.Feed("gun\nnext"), "w | begun\n");
  EXPECT_EQ(prefix.End(), "w | next\n");
  EXPECT_EQ(prefix.End(), "");
}

TEST(LinePrefix, EmptyLinesAndCarriageReturns) {
  LinePrefix prefix("w", 1, -1);
  EXPECT_EQ(prefix.Feed("\n\r\nx\r\n"), "w | \nw | \nw | x\n");
}

TEST(LinePrefix, ALineWithoutEndComesInParts) {
  LinePrefix prefix("w", 1, -1);
  const std::string lines = prefix.Feed(std::string(LinePrefix::kMaxLineBytes + 10, 'x'));
  EXPECT_EQ(lines.size(), LinePrefix::kMaxLineBytes + 5);
  EXPECT_EQ(prefix.End(), "w | " + std::string(10, 'x') + "\n");
}

TEST(LinePrefix, OnlyThePrefixIsColoured) {
  LinePrefix prefix("ps:1", 4, 1);
  const std::string line = prefix.Feed("text\n");
  EXPECT_TRUE(absl::StartsWith(line, "\033["));
  EXPECT_TRUE(absl::EndsWith(line, "\033[0mtext\n")) << line;
}

TEST(ShowsColors, NotOnAFile) { EXPECT_FALSE(ShowsColors(-1)); }

}  // namespace
}  // namespace cairn
