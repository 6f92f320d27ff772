// Quotes around cells change nothing: tables read the same with and without them, and invalid
// quoting is refused with its position in the file.
#include "worker/input/quoted_cells.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/worker/input/input_files.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;

// Quotes every `every`-th cell, beginning with cell `first`.
std::string Quoted(absl::string_view text, char separator, size_t first, size_t every) {
  std::vector<std::string> lines;
  size_t count = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::vector<std::string> cells = absl::StrSplit(line, separator);
    for (std::string& cell : cells) {
      if (count++ % every == first) cell = absl::StrCat("\"", cell, "\"");
    }
    lines.push_back(absl::StrJoin(cells, std::string(1, separator)));
  }
  return absl::StrJoin(lines, "\r\n") + "\n";
}

void ExpectSameRows(const std::string& format, const std::string& name, absl::string_view text,
                    char separator) {
  TempDir folder;
  WriteFile(folder.Join(name), text);
  const auto plain = ReadAll(OptionsFor(format, {folder.Join(name)}));
  ASSERT_EQ(plain.size(), 1u);
  for (const size_t every : {1, 2, 3}) {
    for (size_t first = 0; first < every; ++first) {
      SCOPED_TRACE(absl::StrCat(format, " ", name, ": ", first, " of ", every));
      WriteFile(folder.Join(name), Quoted(text, separator, first, every));
      const auto quoted = ReadAll(OptionsFor(format, {folder.Join(name)}));
      ASSERT_EQ(quoted.size(), 1u);
      EXPECT_EQ(quoted[0].rows, plain[0].rows);
      EXPECT_EQ(quoted[0].labels, plain[0].labels);
      EXPECT_EQ(quoted[0].dense, plain[0].dense);
      EXPECT_EQ(quoted[0].keys, plain[0].keys);
    }
  }
}

TEST(Quotes, ChangeNoTable) {
  ExpectSameRows("csv", "in.csv", "1,2,3\n0,5e1,-.6\n", ',');
  ExpectSameRows("csv", "named.csv", "bought,age,income\n1,2,3\n0,5,6\n", ',');
  ExpectSameRows("csv", "in.tsv", "1\t2\t3\n0\t5\t6\n", '\t');
  ExpectSameRows("movielens", "in", "1,1193,5,978300760\n6040,9,3.5,1\n", ',');
  ExpectSameRows("movielens", "named", "userId,movieId,rating\n1,1193,5\n", ',');
  std::vector<std::string> cells(40, "7");
  for (size_t i = 14; i < 40; ++i) cells[i] = absl::StrCat("token", i);
  cells[3] = cells[20] = "";
  cells[0] = "1";
  ExpectSameRows("criteo_csv", "in", absl::StrJoin(cells, ",") + "\n", ',');
}

// Names may hold separators, quotes and any other text.
TEST(Quotes, OfNamesHoldAnything) {
  TempDir folder;
  WriteFile(folder.Join("in"), "\"bought\",\"age, \"\"years\"\"\",city\n\"1\",\" 2 \", \"3\" \n");
  const auto batches = ReadAll(OptionsFor("csv", {folder.Join("in")}));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].labels, ElementsAre(1));
  EXPECT_THAT(batches[0].dense, ElementsAre(2, 3));
}

TEST(Quotes, ThatHideACellAreRefusedWithTheirPlace) {
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,\"1,5\",6\n"),
            "in:2:5: a separator in quotes; a cell is a number or a token without one");
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,\"5,6\n"),
            "in:2:3: the quote is not closed in this line; a row is one line");
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,5,\"6\n"),
            "in:2:5: the quote is not closed in this line; a row is one line");
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,\"5\"x,6\n"), "in:2:6: text after a closing quote");
  // Positions are those in the file, not in the text without quotes.
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n\"0\",\"5\",\"x\"\n"),
            "in:2:10: column 2 is 'x'; a cell of csv is a finite number");
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n\"0\",\"5\"\n"),
            "in:2:8: row has 2 cells; the first line has 3");
}

TEST(Quotes, DoubledOnesAreOneAndOthersAreText) {
  QuotedLine line;
  LineError error;
  EXPECT_TRUE(line.Read(R"("1","a ""b""", "c" ,5" pipe,"",x)", ',', &error));
  EXPECT_EQ(line.text(), R"(1,a "b",c,5" pipe,,x)");
  EXPECT_EQ(*(line.text().data() + line.text().size()), '\n');
  EXPECT_TRUE(line.Read("", ',', &error));
  EXPECT_EQ(line.text(), "");
}

}  // namespace
}  // namespace cairn::test
