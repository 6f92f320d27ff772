// Batches, epochs, shards, shuffling and resume positions are as the header documents; corrupt
// files are refused and never crash the reader.
#include "worker/input/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/interruption.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/input/input_files.h"
#include "worker/input/line_reader.h"
#include "worker/input/random.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `count` rows whose labels are first, first + 1, ….
std::string NumberedRows(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, first + i, " 1:", i, "\n");
  return text;
}

std::vector<int> LabelsOf(const std::vector<Batch>& batches) {
  std::vector<int> labels;
  for (const Batch& batch : batches) {
    EXPECT_EQ(static_cast<size_t>(batch.rows), batch.labels.size());
    EXPECT_EQ(static_cast<size_t>(batch.rows) + 1, batch.row_offsets.size());
    for (const float label : batch.labels) labels.push_back(static_cast<int>(label));
  }
  return labels;
}

class ReaderTest : public ::testing::Test {
 protected:
  ReaderOptions Options(const std::vector<int>& rows_by_file, int64_t batch_size) {
    std::vector<std::string> paths;
    int first = 0;
    for (const int rows : rows_by_file) {
      paths.push_back(folder_.Join(absl::StrCat("part-", paths.size())));
      WriteFile(paths.back(), NumberedRows(first, rows));
      first += rows;
    }
    ReaderOptions options = OptionsFor("libsvm", paths, batch_size);
    options.model.loss = "mean_squared_error";
    return options;
  }
  TempDir folder_;
};

TEST_F(ReaderTest, BatchesEndWithTheirEpoch) {
  ReaderOptions options = Options({3, 4}, 3);
  options.data.epochs = 2;
  const auto batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 6u);
  std::vector<int64_t> sizes, epochs, next;
  for (const Batch& batch : batches) {
    sizes.push_back(batch.rows);
    epochs.push_back(batch.epoch);
    next.push_back(batch.next_row);
  }
  EXPECT_THAT(sizes, ElementsAre(3, 3, 1, 3, 3, 1));
  EXPECT_THAT(epochs, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(next, ElementsAre(3, 6, 7, 3, 6, 7));
  EXPECT_THAT(LabelsOf(batches), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6));
}

// The file is a pipe that nobody has written to yet.
TEST_F(ReaderTest, AnInterruptionEndsTheWaitAndLosesNoRow) {
  const std::string path = folder_.Join("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const auto reader = *Reader::Open(OptionsFor("libsvm", {path}, 2));
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    const Interruption interruption([](void*) { return true; }, nullptr);
    EXPECT_THAT(reader->Next(&batch), StatusIs(absl::StatusCode::kCancelled, HasSubstr(path)));
  }
  const std::string rows = NumberedRows(0, 2);
  EXPECT_EQ(write(pipe, rows.data(), rows.size()), static_cast<ssize_t>(rows.size()));
  close(pipe);
  EXPECT_TRUE(*reader->Next(&batch));
  EXPECT_THAT(LabelsOf({batch}), ElementsAre(0, 1));
  EXPECT_FALSE(*reader->Next(&batch));
}

TEST_F(ReaderTest, EpochShareGrowsFromFileToFile) {
  ReaderOptions options = Options({100, 100, 100}, 10);
  options.data.epochs = 2;
  const auto batches = ReadAll(options);
  ASSERT_EQ(batches.size(), 60u);
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_NEAR(batches[i].epoch_share, static_cast<double>(i % 30 + 1) / 30, 0.05) << i;
  }
}

TEST_F(ReaderTest, DropRemainderLeavesOutShortBatches) {
  ReaderOptions options = Options({7}, 3);
  options.data.epochs = 2;
  options.data.drop_remainder = true;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5));
}

TEST_F(ReaderTest, EvaluationIsOnePassInFileOrder) {
  ReaderOptions options = Options({5}, 3);
  options.data.epochs = 4;
  options.data.drop_remainder = true;
  options.data.shuffle_buffer_rows = 5;
  options.training = false;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(ReaderTest, RowsAreDealtToWorkersAcrossFiles) {
  ReaderOptions options = Options({3, 4}, 100);
  options.workers = 3;
  options.worker = 1;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(1, 4));
  options.worker = 0;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(0, 3, 6));
}

TEST_F(ReaderTest, AutoDealsWholeFilesWhereThereAreEnough) {
  ReaderOptions options = Options({2, 2, 2}, 100);
  options.workers = 2;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(0, 1, 4, 5));
  options.worker = 1;
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(2, 3));
  options.data.auto_shard = "data";
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(1, 3, 5));
  options.data.auto_shard = "off";
  EXPECT_THAT(LabelsOf(ReadAll(options)), ElementsAre(0, 1, 2, 3, 4, 5));
  options.data.auto_shard = "file";
  options.workers = 4;
  absl::Status status;
  ReadAll(options, &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 files for 4 workers"));
}

TEST_F(ReaderTest, ShufflingPermutesEveryEpochAnewAndRepeats) {
  ReaderOptions options = Options({50}, 8);
  options.data.epochs = 2;
  options.data.shuffle_buffer_rows = 20;
  const std::vector<int> order = LabelsOf(ReadAll(options));
  ASSERT_EQ(order.size(), 100u);
  std::vector<int> first(order.begin(), order.begin() + 50);
  std::vector<int> second(order.begin() + 50, order.end());
  EXPECT_NE(first, second);
  EXPECT_EQ(order, LabelsOf(ReadAll(options)));
  // Row i leaves the buffer after at least i - 19 others.
  for (int i = 0; i < 50; ++i) EXPECT_LT(first[i], i + 20);
  options.data.shuffle_seed = 2;
  EXPECT_NE(order, LabelsOf(ReadAll(options)));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::vector<int> all(50);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(first, all);
  EXPECT_EQ(second, all);
}

TEST_F(ReaderTest, SeveralThreadsReturnTheSameBatchesInOrder) {
  for (const int64_t buffer : {0, 20}) {
    ReaderOptions options = Options({500, 301}, 7);
    options.data.epochs = 3;
    options.data.shuffle_buffer_rows = buffer;
    options.data.parse_threads = 1;
    const std::vector<Batch> want = ReadAll(options);
    for (const int64_t threads : {2, 5}) {
      options.data.parse_threads = threads;
      const std::vector<Batch> got = ReadAll(options);
      EXPECT_EQ(LabelsOf(got), LabelsOf(want));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].rows, want[i].rows);
        EXPECT_EQ(got[i].epoch, want[i].epoch);
        EXPECT_EQ(got[i].next_row, want[i].next_row);
        EXPECT_EQ(got[i].epoch_share, want[i].epoch_share);
      }
    }
  }
}

// The window takes rows of the next epoch while it returns the last rows of an epoch. An error
// there comes after these rows.
TEST_F(ReaderTest, AnErrorOfTheNextEpochComesAfterTheRowsOfThisOne) {
  ReaderOptions options = Options({2000}, 10);
  options.data.epochs = 4;
  options.data.shuffle_buffer_rows = 2000;
  const std::unique_ptr<Reader> reader = Reader::Open(options).value();
  Batch batch;
  ASSERT_TRUE(reader->Next(&batch).value());
  // The second epoch has begun to be read; the third has not.
  std::filesystem::remove(options.files[0].path);
  int64_t rows = batch.rows;
  absl::StatusOr<bool> more = true;
  while ((more = reader->Next(&batch)).ok() && *more) rows += batch.rows;
  EXPECT_EQ(rows, 4000);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr(options.files[0].path));
}

// A consumer that stops early waits for no batch.
TEST_F(ReaderTest, ThreadsEndWithTheReader) {
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto before = threads();
  ReaderOptions options = Options({500}, 1);
  options.data.epochs = 1000000;
  options.data.parse_threads = 5;
  for (int batches = 1; batches < 20; ++batches) {
    const std::unique_ptr<Reader> reader = Reader::Open(options).value();
    Batch batch;
    for (int i = 0; i < batches; ++i) EXPECT_TRUE(reader->Next(&batch).value());
    EXPECT_GE(threads(), before + 5);
  }
}

TEST_F(ReaderTest, ContinuesAfterEveryBatchAsIfNeverStopped) {
  for (const int64_t buffer : {0, 7}) {
    ReaderOptions options = Options({10, 9}, 4);
    options.data.epochs = 3;
    options.data.shuffle_buffer_rows = buffer;
    options.workers = 2;
    options.worker = 1;
    options.data.auto_shard = "data";
    const auto batches = ReadAll(options);
    for (size_t i = 0; i < batches.size(); ++i) {
      options.start_epoch = batches[i].epoch;
      options.start_row = batches[i].next_row;
      const std::vector<Batch> tail(batches.begin() + static_cast<int64_t>(i) + 1, batches.end());
      EXPECT_EQ(LabelsOf(ReadAll(options)), LabelsOf(tail)) << "buffer " << buffer << ", " << i;
    }
  }
}

TEST_F(ReaderTest, DestructionBeforeTheEndStopsTheThread) {
  const auto reader = Reader::Open(Options({1000}, 1));
  ASSERT_TRUE(reader.ok());
  Batch batch;
  ASSERT_TRUE((*reader)->Next(&batch).value());
}

TEST_F(ReaderTest, EmptyInputEndsAtOnce) {
  ReaderOptions options = Options({0}, 4);
  options.data.epochs = int64_t{1} << 60;
  EXPECT_TRUE(ReadAll(options).empty());
}

TEST_F(ReaderTest, FewerRowsThanABatchEndAtOnceWithDropRemainder) {
  for (const int64_t buffer : {0, 5}) {
    ReaderOptions options = Options({2}, 3);
    options.data.epochs = int64_t{1} << 40;
    options.data.drop_remainder = true;
    options.data.shuffle_buffer_rows = buffer;
    EXPECT_TRUE(ReadAll(options).empty());
    // A worker that resumes after the whole batches of an epoch has rows in the next ones.
    options = Options({7}, 3);
    options.data.epochs = 2;
    options.data.drop_remainder = true;
    options.data.shuffle_buffer_rows = buffer;
    options.start_row = 6;
    EXPECT_EQ(LabelsOf(ReadAll(options)).size(), 6u);
  }
}

// The rows before the position that the reader resumes at never end.
TEST_F(ReaderTest, AReaderThatSkipsRowsEndsWhenItIsDestroyed) {
  const std::string path = folder_.Join("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    const std::string rows = NumberedRows(0, 100);
    while (!done) {
      if (write(pipe, rows.data(), rows.size()) < 0) std::this_thread::yield();  // the pipe is full
    }
  });
  ReaderOptions options = OptionsFor("libsvm", {path}, 2);
  options.start_row = int64_t{1} << 60;
  auto reader = *Reader::Open(options);
  Batch batch;
  {
    const Interruption interruption([](void*) { return true; }, nullptr);
    EXPECT_THAT(reader->Next(&batch), StatusIs(absl::StatusCode::kCancelled, HasSubstr(path)));
  }
  reader.reset();
  done = true;
  writer.join();
  close(pipe);
}

// Spreadsheets and editors begin UTF-8 text with ef bb bf, which is invisible in an error message.
TEST_F(ReaderTest, AMarkAtTheStartOfATextIsNoPartOfIt) {
  const std::string mark = "\xef\xbb\xbf";
  for (const auto& [format, row] : {std::pair{"libsvm", "1 1:2\n"}, std::pair{"csv", "1,2\n"},
                                    std::pair{"movielens", "1,2,1\n"}}) {
    const std::string path = folder_.Join("in");
    for (const std::string& bytes : {mark + row, Gzip(mark + row)}) {
      WriteFile(path, bytes);
      const std::vector<Batch> batches = ReadAll(OptionsFor(format, {path}));
      ASSERT_EQ(batches.size(), 1u) << format;
      EXPECT_THAT(batches[0].labels, ElementsAre(1)) << format;
    }
    EXPECT_NE(ErrorOf(format, row + mark + row), "") << format;  // only at the start
  }
}

TEST_F(ReaderTest, GzipIsReadAndDamageIsFound) {
  const std::string path = folder_.Join("a.gz");
  const std::string packed = Gzip(NumberedRows(0, 5000));
  ReaderOptions options = OptionsFor("libsvm", {path}, 100);
  options.model.loss = "mean_squared_error";
  WriteFile(path, packed);
  EXPECT_EQ(LabelsOf(ReadAll(options)).size(), 5000u);
  absl::Status status;
  WriteFile(path, packed.substr(0, packed.size() / 2));
  ReadAll(options, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated gzip"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes (unexpected end of file)"));
  std::string damaged = packed;
  for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 20; ++i) damaged[i] ^= 0x5a;
  WriteFile(path, damaged);
  ReadAll(options, &status);
  EXPECT_FALSE(status.ok());
}

TEST_F(ReaderTest, MissingFilesAndFoldersAreNamed) {
  absl::Status status;
  ReadAll(OptionsFor("libsvm", {folder_.Join("nowhere")}), &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere: cannot open"));
  ReadAll(OptionsFor("libsvm", {folder_.path()}), &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReaderTest, LinesLongerThanABufferAreReadAndEndlessOnesRefused) {
  const std::string path = folder_.Join("long");
  std::string spaces(3u << 20, ' ');
  WriteFile(path, absl::StrCat("1 1:1", spaces, "2:2\n0 1:1", spaces, "\n"));
  const auto batches = ReadAll(OptionsFor("libsvm", {path}));
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].values, ElementsAre(1, 2, 1));
  WriteFile(path, absl::StrCat("1 1:1\n", std::string(kMaxLineBytes + 10, '1')));
  absl::Status status;
  ReadAll(OptionsFor("libsvm", {path}), &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("long:2: line is longer than"));
}

// Bytes of valid lines are flipped, removed and doubled: any outcome except a crash or a hang is
// right, and returned batches have the documented shapes.
TEST_F(ReaderTest, MutatedLinesNeverCrash) {
  const std::string tokens =
      "a\tb\t\tc\td\te\tf\tg\th\ti\tj\tk\tl\tm\tn\to\tp\tq\tr\ts\tt\tu\tv\tw\tx\ty";
  const std::vector<std::pair<std::string, std::string>> seeds = {
      {"libsvm", "1 1:1 3:0.25 10:-1e3\n0 2:1\n"},
      {"criteo_tsv", "1\t1\t2\t3\t\t5\t6\t7\t8\t9\t10\t11\t12\t-1\t" + tokens + "\n"},
      {"csv", "1,2,3.5,-4\n0,1e5,.5,6\n"},
      {"movielens", "1::2::3::4\n5::6::4.5\n"},
      {"text", "the cat sat on the mat\nthe cat\n"}};
  Random random(11);
  const std::string path = folder_.Join("fuzz");
  for (int round = 0; round < 4000; ++round) {
    const auto& [format, seed] = seeds[static_cast<size_t>(round) % seeds.size()];
    std::string text = seed;
    for (uint64_t i = 1 + random.Below(6); i > 0 && !text.empty(); --i) {
      const size_t at = random.Below(text.size());
      const uint64_t kind = random.Below(4);
      if (kind == 0) text[at] = static_cast<char>(random.Next());
      if (kind == 1) text.erase(at, random.Below(8));
      if (kind == 2) text.insert(at, text.substr(random.Below(text.size()), random.Below(20)));
      if (kind == 3) text[at] = "0123456789:.,-+e \t\r\n"[random.Below(20)];
    }
    WriteFile(path, text);
    ReaderOptions options = OptionsFor(format, {path}, 4);
    options.model.min_count = 1;
    absl::Status status;
    for (const Batch& batch : ReadAll(options, &status)) {
      ASSERT_EQ(static_cast<size_t>(batch.rows), batch.labels.size()) << text;
      ASSERT_EQ(batch.columns.size(), batch.values.size()) << text;
      ASSERT_EQ(batch.keys.size() % static_cast<size_t>(batch.rows), 0u) << text;
      for (const int32_t column : batch.columns) ASSERT_TRUE(column >= 0 && column < 10) << text;
    }
  }
}

}  // namespace
}  // namespace cairn::test
