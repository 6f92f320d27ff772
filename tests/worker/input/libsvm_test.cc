// libsvm rows arrive as written, and every malformed line is refused with its position.
#include "gmock/gmock.h"
#include "tests/support/golden.h"
#include "tests/worker/input/input_files.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;

TEST(Libsvm, ReadsRowsCommentsBlankLinesAndCrlf) {
  TempDir folder;
  const std::string path = folder.Join("a.libsvm");
  WriteFile(path, "-1 1:1 3:0.5\r\n\n+1\t2:-2e1 10:4 # a comment 9:9\n0\n   \n1 10:1");
  const std::vector<Batch> batches = ReadAll(OptionsFor("libsvm", {path}));
  ASSERT_EQ(batches.size(), 1u);
  const Batch& batch = batches[0];
  EXPECT_EQ(batch.rows, 4);
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(batch.row_offsets, ElementsAre(0, 2, 4, 4, 5));
  EXPECT_THAT(batch.columns, ElementsAre(0, 2, 1, 9, 9));
  EXPECT_THAT(batch.values, ElementsAre(1, 0.5, -20, 4, 1));
}

TEST(Libsvm, ZeroBasedColumnsAndClassLabels) {
  TempDir folder;
  const std::string path = folder.Join("a.libsvm");
  WriteFile(path, "3 0:1 9:1\n1 5:2\n");
  ReaderOptions options = OptionsFor("libsvm", {path});
  options.data.index_base = 0;
  options.data.label_base = 1;
  options.model.loss = "softmax_cross_entropy";
  options.model.classes = 3;
  const std::vector<Batch> batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].labels, ElementsAre(2, 0));
  EXPECT_THAT(batches[0].columns, ElementsAre(0, 9, 5));
}

TEST(Libsvm, ErrorsNameFileLineColumnAndWhatWasFound) {
  EXPECT_EQ(ErrorOf("libsvm", "1 1:1\n1 2:x\n"), "in:2:5: found 'x'; a value is a finite number");
  EXPECT_EQ(ErrorOf("libsvm", "1 3:1 2:1\n"),
            "in:1:7: column 2 after 3; columns of a row must ascend");
  EXPECT_EQ(ErrorOf("libsvm", "1 3:1 3:1\n"),
            "in:1:7: column 3 twice; columns of a row must ascend");
  EXPECT_EQ(ErrorOf("libsvm", "1 0:1\n"),
            "in:1:3: column 0 is outside [1, 10] (data.index_base 1, data.features 10)");
  EXPECT_EQ(ErrorOf("libsvm", "1 11:1\n"),
            "in:1:3: column 11 is outside [1, 10] (data.index_base 1, data.features 10)");
  EXPECT_EQ(ErrorOf("libsvm", "1 -3:1\n"),
            "in:1:3: found '-3:1'; an entry is column:value with a whole column number");
  EXPECT_EQ(ErrorOf("libsvm", "1 99999999999999999999:1\n").substr(0, 7), "in:1:14");
  EXPECT_EQ(ErrorOf("libsvm", "1 3:nan\n"), "in:1:5: found 'nan'; a value is a finite number");
  EXPECT_EQ(ErrorOf("libsvm", "1 3:\n"), "in:1:5: found end of line; a value is a finite number");
  EXPECT_EQ(ErrorOf("libsvm", "1 qid:3 2:1\n"),
            "in:1:3: found 'qid:3'; an entry is column:value with a whole column number");
  EXPECT_EQ(ErrorOf("libsvm", "2 3:1\n"),
            "in:1:1: label '2'; sigmoid_cross_entropy takes 0 and 1, or -1 and 1");
  EXPECT_EQ(ErrorOf("libsvm", "cat 3:1\n"),
            "in:1:1: label 'cat'; sigmoid_cross_entropy takes 0 and 1, or -1 and 1");
  EXPECT_EQ(ErrorOf("libsvm", std::string("1 1:1\n1 2:\0001\n", 13)),
            "in:2:5: found a NUL byte; this is not a text file");
}

TEST(Libsvm, ErrorsShowControlCharactersAsEscapes) {
  // U+009B begins a terminal command, as ESC [ does.
  EXPECT_THAT(ErrorOf("libsvm", "1 x\xc2\x9b:1\n"),
              ::testing::HasSubstr("in:1:3: found 'x\\xc2\\x9b:1'"));
}

TEST(Libsvm, ClassLabelsOutOfRangeAreRefused) {
  ReaderOptions options;
  options.model.loss = "softmax_cross_entropy";
  options.model.classes = 3;
  options.data.label_base = 1;
  for (const char* line : {"0 1:1\n", "4 1:1\n", "1.5 1:1\n", "-1 1:1\n"}) {
    EXPECT_THAT(ErrorOf("libsvm", line, options),
                ::testing::HasSubstr("whole numbers from data.label_base 1 to 3"))
        << line;
  }
}

// 20000000 and 20000001 are the same float32.
TEST(Libsvm, ClassLabelsThatFloatsDoNotTellApartAreRefused) {
  ReaderOptions options;
  options.model.loss = "softmax_cross_entropy";
  options.data.label_base = 20'000'000;
  for (const int64_t classes : {0, 3}) {
    options.model.classes = classes;
    EXPECT_THAT(ErrorOf("libsvm", "20000001 1:1\n", options),
                ::testing::HasSubstr("label '20000001'"));
  }
}

TEST(Libsvm, RowsBeforeAnErrorComeFirst) {
  TempDir folder;
  const std::string path = folder.Join("a.libsvm");
  WriteFile(path, "1 1:1\n1 2:1\n1 x\n");
  absl::Status status;
  EXPECT_EQ(ReadAll(OptionsFor("libsvm", {path}, 1), &status).size(), 2u);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(Libsvm, MissingFeatureCountIsRefused) {
  ReaderOptions options = OptionsFor("libsvm", {"nowhere"});
  options.data.features = 0;
  absl::Status status;
  ReadAll(options, &status);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("data.features"));
}

// The real file, counted independently with awk: 32,561 rows and 451,592 entries.
TEST(Libsvm, ReadsAllOfA9a) {
  ReaderOptions options = OptionsFor("libsvm", {DataPath("a9a/train.libsvm")}, 128);
  options.data.features = 123;
  int64_t rows = 0;
  int64_t entries = 0;
  double positives = 0;
  for (const Batch& batch : ReadAll(options)) {
    rows += batch.rows;
    entries += static_cast<int64_t>(batch.columns.size());
    for (const float label : batch.labels) positives += label;
  }
  EXPECT_EQ(rows, 32561);
  EXPECT_EQ(entries, 451592);
  EXPECT_EQ(positives, 7841);
}

}  // namespace
}  // namespace cairn::test
