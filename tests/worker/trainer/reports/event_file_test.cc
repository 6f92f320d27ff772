// Event files have the same bytes as TensorFlow's: the expected bytes come from tensorboard 2.19's
// compiled protocol buffers and its masked_crc32c.
#include "worker/trainer/reports/event_file.h"
#include "tests/support/file_text.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/input/dataset/record_file.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

std::vector<std::string> ReadRecords(const std::string& path) {
  std::vector<std::string> records;
  auto file = RecordFile::Open(path, Compression::kNone);
  EXPECT_OK(file);
  for (std::string record;;) {
    const absl::StatusOr<bool> more = ReadTFRecord(file->get(), &record);
    EXPECT_OK(more);
    if (!more.ok() || !*more) return records;
    records.push_back(record);
  }
}

Event LossAt(int64_t step) {
  Event event;
  event.wall_seconds = 1;
  event.step = step;
  event.scalars = {{"loss", 0.5F}};
  return event;
}

TEST(EncodeEvent, HasTensorFlowsBytesForScalarsZeroIncluded) {
  Event event;
  event.wall_seconds = 1700000000.5;
  event.step = 300;
  event.scalars = {{"loss", 0.5F}, {"eval/auc", 0}};
  EXPECT_EQ(
      Hex(EncodeEvent(event)),
      "0900002040fc54d94110ac022a1e0a0b0a046c6f7373150000003f0a0f0a086576616c2f6175631500000000");
}

TEST(EncodeEvent, HasTensorFlowsBytesForAHistogramAndALargeStep) {
  Event event;
  event.wall_seconds = 2;
  event.step = int64_t{1} << 40;
  event.histogram = EventHistogram{
      .tag = "staleness", .min = 1, .max = 4, .sum = 20, .limits = {0, 1, 4}, .counts = {0, 7, 2}};
  EXPECT_EQ(
      Hex(EncodeEvent(event)),
      "090000000000000040108080808080202a670a650a097374616c656e6573732a5809000000000000f03f1100"
      "0000000000104019000000000000224021000000000000344032180000000000000000000000000000f03f00"
      "000000000010403a1800000000000000000000000000001c400000000000000040");
}

TEST(EventFile, BeginsWithTheVersionsRecordAndItsChecksums) {
  const TempDir folder;
  const auto file = EventFile::Create(folder.Join("a/b"), absl::FromUnixSeconds(2), 7);
  ASSERT_OK(file);
  EXPECT_THAT((*file)->path(), StartsWith(folder.Join("a/b/events.out.tfevents.2.")));
  EXPECT_THAT(Hex(FileText((*file)->path())),
              StartsWith("1800000000000000a37f4b220900000000000000401a0d627261696e2e45"
                         "76656e743a32ff2ee0e7"));
  const std::vector<std::string> records = ReadRecords((*file)->path());
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(Hex(records[1]), "09000000000000004010073a020801");  // a session starts at step 7
}

TEST(EventFile, ATakenNameBecomesTheNextSeconds) {
  const TempDir folder;
  const absl::Time now = absl::FromUnixSeconds(1700000000);
  const auto first = EventFile::Create(folder.path(), now, 1);
  const auto second = EventFile::Create(folder.path(), now, 5);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_THAT((*second)->path(), HasSubstr("tfevents.1700000001."));
  EXPECT_EQ(ReadRecords((*first)->path()).size(), 2);
}

TEST(EventFile, WritesWhatWasAddedWhenFlushedAndWhenMuchHasComeTogether) {
  const TempDir folder;
  const auto file = EventFile::Create(folder.path(), absl::FromUnixSeconds(1), 1);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Add(LossAt(1)));
  EXPECT_EQ(ReadRecords((*file)->path()).size(), 2);
  ASSERT_OK((*file)->Flush());
  EXPECT_EQ(ReadRecords((*file)->path()).back(), EncodeEvent(LossAt(1)));
  for (int64_t step = 2; step <= 5000; ++step) ASSERT_OK((*file)->Add(LossAt(step)));
  EXPECT_GT(ReadRecords((*file)->path()).size(), 1000);
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(ReadRecords((*file)->path()).size(), 5002);
}

// A file size limit simulates a full disk: the write that crosses it is cut short.
TEST(EventFile, AFullDiskIsAnErrorWithTheFilesNameAndLeavesWholeRecords) {
  const TempDir folder;
  const auto file = EventFile::Create(folder.path(), absl::FromUnixSeconds(1), 1);
  ASSERT_OK(file);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = std::filesystem::file_size((*file)->path()) + 50;  // one record and a part of
                                                                      // the next
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int64_t step = 1; step <= 3; ++step) ASSERT_OK((*file)->Add(LossAt(step)));
  const absl::Status status = (*file)->Flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr((*file)->path()), HasSubstr("File too large"),
                                       HasSubstr("free space"), HasSubstr("output.tensorboard")));
  EXPECT_EQ(ReadRecords((*file)->path()).size(), 2);
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
  const auto file = EventFile::Create("/dev/null/logs", absl::FromUnixSeconds(1), 1);
  EXPECT_THAT(file.status().ToString(),
              AllOf(HasSubstr("/dev/null/logs"), HasSubstr("Not a directory")));
}

}  // namespace
}  // namespace cairn
