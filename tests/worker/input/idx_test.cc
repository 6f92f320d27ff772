// IDX images arrive divided by 255 with their labels; files that do not match are refused.
#include "gmock/gmock.h"
#include "tests/support/golden.h"
#include "tests/worker/input/input_files.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Header(unsigned char axes, const std::vector<unsigned>& shape) {
  std::string bytes = {0, 0, 8, static_cast<char>(axes)};
  for (const unsigned extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  }
  return bytes;
}

class Idx : public ::testing::Test {
 protected:
  ReaderOptions Options(const std::string& images, const std::string& labels) {
    WriteFile(folder_.Join("images"), images);
    WriteFile(folder_.Join("labels"), labels);
    ReaderOptions options = OptionsFor("idx", {});
    options.model.loss = "softmax_cross_entropy";
    options.model.classes = 10;
    options.files = {{folder_.Join("images"), folder_.Join("labels")}};
    return options;
  }
  std::string Error(const std::string& images, const std::string& labels) {
    absl::Status status;
    ReadAll(Options(images, labels), &status);
    return std::string(status.message());
  }
  const std::string images_ = Header(3, {2, 1, 2}) + std::string("\x00\xff\x33\x66", 4);
  const std::string labels_ = Header(1, {2}) + std::string("\x07\x00", 2);
  TempDir folder_;
};

TEST_F(Idx, ReadsPlainAndPackedFiles) {
  for (const bool packed : {false, true}) {
    const auto batches = ReadAll(Options(packed ? Gzip(images_) : images_, labels_));
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_THAT(batches[0].labels, ElementsAre(7, 0));
    EXPECT_THAT(batches[0].dense, ElementsAre(0, 1, 51.0f / 255.0f, 102.0f / 255.0f));
  }
}

TEST_F(Idx, WorkersTakeEveryOtherImage) {
  ReaderOptions options = Options(images_, labels_);
  options.workers = 2;
  options.worker = 1;
  const auto batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].labels, ElementsAre(0));
  EXPECT_EQ(batches[0].dense[1], 102.0f / 255.0f);
}

TEST_F(Idx, FilesThatDoNotFitAreRefused) {
  EXPECT_THAT(Error(labels_, labels_), HasSubstr("found magic 00000801; images"));
  EXPECT_THAT(Error(images_, images_), HasSubstr("found magic 00000803; labels"));
  EXPECT_THAT(Error("", labels_), HasSubstr("ends at byte 0 inside the magic number"));
  EXPECT_THAT(Error(images_.substr(0, 10), labels_), HasSubstr("inside the shape"));
  EXPECT_THAT(Error(images_.substr(0, 19), labels_), HasSubstr("ends at byte 19 inside an image"));
  EXPECT_THAT(Error(images_ + "x", labels_), HasSubstr("goes on after byte 20"));
  EXPECT_THAT(Error(images_, Header(1, {3}) + "123"), HasSubstr("2 images"));
  EXPECT_THAT(Error(images_, Header(1, {2}) + "\x0a\x0a"), HasSubstr("byte 8 is label 10"));
  EXPECT_THAT(Error(Header(3, {2, 1u << 31, 1u << 31}), labels_), HasSubstr("found shape"));
  EXPECT_THAT(Error(Gzip(images_).substr(0, 25), labels_), HasSubstr("gzip"));
}

TEST_F(Idx, ReadsTheMnistTestImages) {
  const std::string images = DataPath("mnist/t3k-images-idx3-ubyte.gz");
  if (std::FILE* const file = std::fopen(images.c_str(), "rb")) {
    std::fclose(file);
  } else {
    GTEST_SKIP() << images << " is missing: examples/data/get.py mnist downloads it";
  }
  ReaderOptions options = Options(images_, labels_);
  options.files = {{images, DataPath("mnist/t3k-labels-idx1-ubyte.gz")}};
  int64_t rows = 0;
  for (const Batch& batch : ReadAll(options)) {
    if (rows == 0) {
      EXPECT_EQ(batch.labels[0], 7);
    }
    rows += batch.rows;
    EXPECT_EQ(static_cast<int64_t>(batch.dense.size()), batch.rows * 784);
  }
  EXPECT_EQ(rows, 3000);
}

}  // namespace
}  // namespace cairn::test
