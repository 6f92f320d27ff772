// Criteo, csv and MovieLens rows arrive as written; malformed rows are refused with their position.
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/hash.h"
#include "gmock/gmock.h"
#include "tests/worker/input/input_files.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A row of Criteo's 40 cells.
std::string CriteoLine(char separator, const std::vector<std::string>& numbers,
                       const std::vector<std::string>& tokens, const std::string& label = "1") {
  std::vector<std::string> cells = {label};
  cells.insert(cells.end(), numbers.begin(), numbers.end());
  cells.resize(14);
  cells.insert(cells.end(), tokens.begin(), tokens.end());
  cells.resize(40);
  return absl::StrJoin(cells, std::string(1, separator)) + "\n";
}

TEST(Criteo, NumbersAreLoggedAndTokensHashedWithTheirColumn) {
  TempDir folder;
  const std::string path = folder.Join("day_0");
  WriteFile(path, CriteoLine('\t', {"2", "", "-3", "260.0"}, {"05db9164", "", "05db9164"}));
  const std::vector<Batch> batches = ReadAll(OptionsFor("criteo_tsv", {path}));
  ASSERT_EQ(batches.size(), 1u);
  const Batch& batch = batches[0];
  ASSERT_EQ(batch.dense.size(), 13u);
  EXPECT_FLOAT_EQ(batch.dense[0], std::log(3.0f));
  EXPECT_EQ(batch.dense[1], 0);
  EXPECT_EQ(batch.dense[2], 0);
  EXPECT_FLOAT_EQ(batch.dense[3], std::log(261.0f));
  ASSERT_EQ(batch.keys.size(), 26u);
  EXPECT_EQ(batch.keys[0], static_cast<int64_t>(HashBytes("C1:05db9164")));
  EXPECT_EQ(batch.keys[1], static_cast<int64_t>(HashBytes("C2:")));
  EXPECT_EQ(batch.keys[2], static_cast<int64_t>(HashBytes("C3:05db9164")));
  EXPECT_EQ(batch.keys[25], static_cast<int64_t>(HashBytes("C26:")));
}

TEST(Criteo, ColumnsThatShareAVocabularyHaveEqualKeysForEqualTokens) {
  TempDir folder;
  const std::string path = folder.Join("day_0");
  WriteFile(path, CriteoLine('\t', {"2"}, {"05db9164", "", "05db9164"}));
  ReaderOptions options = OptionsFor("criteo_tsv", {path});
  options.model.tables = "shared_vocabulary";
  const std::vector<Batch> batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_EQ(batches[0].keys.size(), 26u);
  EXPECT_EQ(batches[0].keys[0], static_cast<int64_t>(HashBytes("05db9164")));
  EXPECT_EQ(batches[0].keys[1], static_cast<int64_t>(HashBytes("")));
  EXPECT_EQ(batches[0].keys[2], batches[0].keys[0]);
}

TEST(Criteo, TokensOfAnyLengthAndNumbersOfAnySizeAreRead) {
  TempDir folder;
  const std::string path = folder.Join("day_0");
  const std::vector<std::string> numbers = {"0",   "1",    "1023",   "1024", "1022.5",
                                            "0.5", "1e9",  "-1e-30", "1e3",  "1e38",
                                            "7",   "1025", "1e-30"};
  const std::string bytes =
      "\x80\xff\x08"
      "7f80abcdefghijkl";
  std::string text;
  std::vector<std::vector<std::string>> rows;
  for (size_t first = 0; first < 12; ++first) {
    std::vector<std::string>& tokens = rows.emplace_back();
    for (size_t k = 0; k < 26; ++k) {
      tokens.push_back(bytes.substr(k % 5, (first + k) % 12));
    }
    text += CriteoLine('\t', numbers, tokens);
  }
  text.pop_back();  // the last line needs no newline
  WriteFile(path, text);
  const std::vector<Batch> batches = ReadAll(OptionsFor("criteo_tsv", {path}));
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_EQ(batches[0].rows, static_cast<int64_t>(rows.size()));
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t k = 0; k < 26; ++k) {
      EXPECT_EQ(batches[0].keys[r * 26 + k],
                static_cast<int64_t>(HashBytes(absl::StrCat("C", k + 1, ":", rows[r][k]))))
          << r << " " << k;
    }
    for (size_t i = 0; i < 13; ++i) {
      const float number = std::strtof(numbers[i].c_str(), nullptr);
      EXPECT_EQ(batches[0].dense[r * 13 + i], number > 0 ? std::log1p(number) : 0.0f) << i;
    }
  }
}

TEST(Criteo, CsvWithAndWithoutNamesGivesTheSameRows) {
  TempDir folder;
  const std::string row = CriteoLine(',', {"1"}, {"a"}, "0");
  const std::string header = CriteoLine(',', std::vector<std::string>(13, "I"),
                                        std::vector<std::string>(26, "C"), "label");
  WriteFile(folder.Join("a"), row + row);
  WriteFile(folder.Join("b"), header + row);
  const auto batches = ReadAll(OptionsFor("criteo_csv", {folder.Join("a"), folder.Join("b")}));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].rows, 3);
  EXPECT_THAT(batches[0].labels, ElementsAre(0, 0, 0));
}

TEST(Criteo, MalformedRowsAreRefused) {
  EXPECT_EQ(ErrorOf("criteo_tsv", CriteoLine('\t', {"1", "x"}, {})),
            "in:1:5: I2 is 'x'; it must be a number or empty");
  EXPECT_THAT(ErrorOf("criteo_tsv", CriteoLine(',', {"1"}, {})), HasSubstr("in:1:1: label"));
  EXPECT_THAT(ErrorOf("criteo_tsv", "1\t2\t3\n"), HasSubstr("row has 3 cells; Criteo's has 40"));
  EXPECT_THAT(ErrorOf("criteo_tsv", "1\n"), HasSubstr("row has 1 cells"));
  std::string longer = CriteoLine('\t', {}, {});
  longer.insert(longer.size() - 1, "\tx");
  EXPECT_THAT(ErrorOf("criteo_tsv", longer), HasSubstr("row has 41 cells"));
  EXPECT_THAT(ErrorOf("criteo_tsv", CriteoLine('\t', {}, {std::string(300, 'x')})),
              HasSubstr("in:1:16: C1 has 300 bytes; a token has at most 256"));
  EXPECT_THAT(ErrorOf("criteo_tsv", CriteoLine('\t', {}, {}, "5")), HasSubstr("label '5'"));
  EXPECT_THAT(ErrorOf("criteo_tsv", CriteoLine('\t', {}, {}, " 1")),
              HasSubstr("in:1:1: label ' 1'"));
}

TEST(Csv, TakesTheLabelOutOfItsColumn) {
  TempDir folder;
  const std::string path = folder.Join("a.csv");
  WriteFile(path, "x,y,z\n1.5, 0 ,2\n-3,1,4e1");
  ReaderOptions options = OptionsFor("csv", {path});
  options.data.label_column = 1;
  const auto batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].labels, ElementsAre(0, 1));
  EXPECT_THAT(batches[0].dense, ElementsAre(1.5, 2, -3, 40));
}

TEST(Csv, PaddedNumbersInTheFirstLineAreARow) {
  TempDir folder;
  std::vector<std::string> paths;
  for (const char* name : {"a.csv", "b.csv"}) {
    paths.push_back(folder.Join(name));
    WriteFile(paths.back(), " 1, 2, 3\n 0, 5, 6\n");
    const auto batches = ReadAll(OptionsFor("csv", paths));
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].dense.size(), 4 * paths.size());
    EXPECT_THAT(absl::MakeConstSpan(batches[0].dense).subspan(0, 4), ElementsAre(2, 3, 5, 6));
  }
}

TEST(Csv, AFileWithoutRowsMayStandBeforeTheOthers) {
  TempDir folder;
  WriteFile(folder.Join("a.csv"), "\n   \n");
  WriteFile(folder.Join("b.csv"), "1,2,3\n");
  const auto batches = ReadAll(OptionsFor("csv", {folder.Join("a.csv"), folder.Join("b.csv")}));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].dense, ElementsAre(2, 3));
}

TEST(Csv, MalformedRowsAreRefused) {
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,5\n"), "in:2:4: row has 2 cells; the first line has 3");
  EXPECT_EQ(ErrorOf("csv", "1,2,3\n0,5,6,7\n"), "in:2:8: row has 4 cells; the first line has 3");
  EXPECT_EQ(ErrorOf("csv", "1,2\n0,\n"),
            "in:2:3: column 1 is empty; a cell of csv is a finite number");
  EXPECT_EQ(ErrorOf("csv", "1,2\n0,inf\n"),
            "in:2:3: column 1 is 'inf'; a cell of csv is a finite number");
  EXPECT_EQ(ErrorOf("csv", "bought,2019,2020\n0,5,6\n"),
            "in:1:1: column 0 is 'bought'; a cell of csv is a finite number; a first line of names "
            "has no number in any cell");
  EXPECT_THAT(ErrorOf("csv", "1\n"), HasSubstr("first line has 1 cell separated by commas"));
  EXPECT_THAT(ErrorOf("csv", ""), HasSubstr("in has no line"));
  EXPECT_THAT(ErrorOf("csv", "\n  \n"), HasSubstr("in has no line"));
}

TEST(Movielens, ReadsAllThreeSeparators) {
  for (const std::string separator : {"::", "\t", ","}) {
    TempDir folder;
    const std::string path = folder.Join("ratings");
    const std::string rows = "1::1193::5::978300760\n6040::9::3.5\n";
    const std::string names = separator == "," ? "userId,movieId,rating,timestamp\n" : "";
    WriteFile(path, names + absl::StrReplaceAll(rows, {{"::", separator}}));
    const auto batches = ReadAll(OptionsFor("movielens", {path}));
    ASSERT_EQ(batches.size(), 1u) << separator;
    EXPECT_THAT(batches[0].keys, ElementsAre(1, 1193, 6040, 9));
    EXPECT_THAT(batches[0].labels, ElementsAre(5, 3.5));
  }
}

TEST(Movielens, MalformedRowsAreRefused) {
  EXPECT_THAT(ErrorOf("movielens", "1::2::5\n1::x::5\n"), HasSubstr("in:2:4: found item 'x::5'"));
  EXPECT_THAT(ErrorOf("movielens", "1::2\n"), HasSubstr("in:1:4: found item '2'"));
  EXPECT_THAT(ErrorOf("movielens", "1::2::five\n"), HasSubstr("in:1:7: found rating 'five'"));
  EXPECT_THAT(ErrorOf("movielens", "1::2::5::noon\n"), HasSubstr("in:1:10: found time 'noon'"));
}

}  // namespace
}  // namespace cairn::test
