// Skip-gram pairs follow word2vec's rules: vocabulary by frequency, windows within a sentence,
// negatives by count^0.75; seed, epoch and position determine every draw.
#include "worker/input/text.h"

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/vocabulary.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Text : public ::testing::Test {
 protected:
  ReaderOptions Options(absl::string_view text, int64_t window, int64_t negatives) {
    WriteFile(folder_.Join("t"), text);
    ReaderOptions options = OptionsFor("text", {folder_.Join("t")});
    options.model.window = window;
    options.model.negatives = negatives;
    options.model.min_count = 1;
    options.model.subsample = 1;
    return options;
  }
  TempDir folder_;
};

TEST_F(Text, VocabularyIsOrderedByCountThenBytes) {
  ReaderOptions options = Options("b a c\nb  d\tc b\r\nrare a a\n", 1, 0);
  options.model.min_count = 2;
  const auto reader = Reader::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT((*reader)->vocabulary(), ElementsAre("a", "b", "c"));
}

TEST_F(Text, AMarkAtTheStartIsNoPartOfTheFirstWord) {
  ReaderOptions options = Options(
      "\xef\xbb\xbf"
      "b a b",
      1, 0);
  options.model.min_count = 1;
  const auto reader = Reader::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT((*reader)->vocabulary(), ElementsAre("b", "a"));
}

TEST_F(Text, PairsStayWithinTheWindowAndTheLine) {
  const auto batches = ReadAll(Options("a b c d\ne f\n", 1, 0));
  ASSERT_EQ(batches.size(), 1u);
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < batches[0].keys.size(); i += 2) {
    pairs.insert({batches[0].keys[i], batches[0].keys[i + 1]});
  }
  const std::set<std::pair<int64_t, int64_t>> neighbours = {{0, 1}, {1, 0}, {1, 2}, {2, 1},
                                                            {2, 3}, {3, 2}, {4, 5}, {5, 4}};
  EXPECT_EQ(pairs, neighbours);
  EXPECT_EQ(batches[0].rows, 8);
}

TEST_F(Text, RadiusIsDrawnFromOneToTheWindow) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "w", i, " ");
  std::map<int64_t, int64_t> by_distance;
  for (const Batch& batch : ReadAll(Options(text, 4, 0))) {
    for (int64_t i = 0; i < batch.rows; ++i) {
      // Every word is different and occurs once, so words are numbered in byte order.
      by_distance[batch.keys[2 * i] == batch.keys[2 * i + 1] ? 0 : 1] += 1;
    }
  }
  EXPECT_EQ(by_distance[0], 0);
  // The mean radius is 2.5, so 5 pairs for each center except near the ends.
  EXPECT_NEAR(static_cast<double>(by_distance[1]), 5000, 250);
}

TEST_F(Text, NegativesFollowTheirPositiveAndNeverEqualIt) {
  std::string text;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&text, "a b c d ", i % 3 == 0 ? "e " : "a ");
  int64_t positives = 0;
  int64_t negatives = 0;
  int64_t word = -1;
  for (const Batch& batch : ReadAll(Options(text, 2, 5))) {
    for (int64_t i = 0; i < batch.rows; ++i) {
      if (batch.labels[i] == 1) {
        ++positives;
        word = batch.keys[2 * i + 1];
      } else {
        ++negatives;
        EXPECT_NE(batch.keys[2 * i + 1], word);
      }
    }
  }
  EXPECT_GT(negatives, 3 * positives);
  EXPECT_LT(negatives, 5 * positives);
}

TEST_F(Text, NegativesAreDrawnByCountToTheThreeQuarters) {
  WriteFile(folder_.Join("t"), "a a a a a a a a a a a a a a a a b");
  const auto vocabulary = Vocabulary::Build({folder_.Join("t")}, 1);
  ASSERT_TRUE(vocabulary.ok());
  Random random(1);
  int64_t drawn[2] = {0, 0};
  for (int i = 0; i < 90000; ++i) ++drawn[(*vocabulary)->SampleNegative(random)];
  EXPECT_NEAR(static_cast<double>(drawn[0]), 80000, 500);  // 16^0.75 : 1 = 8 : 1
}

TEST_F(Text, FrequentWordsAreThinnedOut) {
  std::string text;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&text, "the w", i % 50, "\n");
  ReaderOptions options = Options(text, 1, 0);
  options.model.subsample = 0.01;
  int64_t rows = 0;
  for (const Batch& batch : ReadAll(options)) rows += batch.rows;
  // "the" has share 1/2: kept with (sqrt(50) + 1) / 50 = 0.161; "w7" has 1/100 and is kept. A line
  // that keeps both gives two pairs.
  EXPECT_NEAR(static_cast<double>(rows), 2 * 5000 * 0.1614, 160);
}

TEST_F(Text, TwoWorkersTogetherMakeThePairsOfOne) {
  ReaderOptions options = Options("a b c d e f g h i j\nk l m n o p\n", 3, 2);
  const auto pairs_of = [&](int32_t worker, int32_t workers) {
    options.worker = worker;
    options.workers = workers;
    options.data.auto_shard = "data";
    std::multiset<std::pair<int64_t, int64_t>> pairs;
    for (const Batch& batch : ReadAll(options)) {
      for (int64_t i = 0; i < batch.rows; ++i) {
        pairs.insert({batch.keys[2 * i], batch.keys[2 * i + 1]});
      }
    }
    return pairs;
  };
  auto both = pairs_of(0, 2);
  EXPECT_FALSE(both.empty());
  both.merge(pairs_of(1, 2));
  EXPECT_EQ(both, pairs_of(0, 1));
}

TEST_F(Text, EpochsDrawAnewAndRunsRepeat) {
  ReaderOptions options = Options("a b c d e f g h i j k l m n o p q r s t u v w x\n", 5, 3);
  options.data.epochs = 2;
  const auto first = ReadAll(options);
  const auto second = ReadAll(options);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0].keys, first[1].keys);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(first[0].keys, second[0].keys);
  EXPECT_EQ(first[1].keys, second[1].keys);
}

TEST_F(Text, BadTextIsRefused) {
  absl::Status status;
  ReadAll(Options(absl::StrCat("a b\n", std::string(2000, 'x'), " c"), 1, 0), &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr(":2: word 'xxx"));
  ReadAll(Options(absl::string_view("a b\0c", 5), 1, 0), &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NUL byte"));
  ReadAll(Options("", 1, 0), &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 0 different words none occurs"));
}

TEST_F(Text, ATextWithTooFewPairsForABatchEndsAllEpochs) {
  ReaderOptions options = Options("a b\n", 1, 0);
  options.data.epochs = int64_t{1} << 40;
  options.data.drop_remainder = true;
  EXPECT_TRUE(ReadAll(options).empty());
}

}  // namespace
}  // namespace cairn::test
