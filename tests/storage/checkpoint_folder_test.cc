// A copy of a store is complete or absent, equals the store, and is deleted only by name.
#include "storage/checkpoint_folder.h"

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/checkpoint_note.h"
#include "storage/directory.h"
#include "tests/storage/recorder.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenStore(temp_.Join("data"), 2);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
    ASSERT_OK(store_->PutVariable({1, "job", "w", "spec"}));
    ASSERT_OK(WriteImage(*store_, {1, 0, 0}, 7, "image"));
    ASSERT_OK(store_->WriteEpoch({{{1, 0, 3, {}}}}, {{{"job", 0, 1, 7, "position"}}}));
  }
  absl::StatusOr<std::vector<PartFileSum>> Write(const std::string& name) {
    return WriteCheckpointPart(*store_, directory_, name, 2);
  }
  static absl::StatusOr<std::unique_ptr<StripeStore>> Read(const std::string& part) {
    return StripeStore::OpenReadOnly({.directory = part, .server_index = 2});
  }

  TempDir temp_;
  const std::string directory_ = temp_.Join("checkpoints");
  const std::string part_ = absl::StrCat(directory_, "/a/ps-2");
  std::unique_ptr<StripeStore> store_;
};

TEST_F(CheckpointFolderTest, ACopyEqualsTheStore) {
  const auto files = Write("a");
  ASSERT_OK(files);
  ASSERT_OK(WriteImage(*store_, {1, 0, 0}, 8, "changed"));
  for (const PartFileSum& file : *files) EXPECT_OK(VerifyPartFile(part_, file));
  auto copy = Read(part_);
  ASSERT_OK(copy);
  auto beside = Read(part_);
  ASSERT_OK(beside);
  Recorder recorder;
  ASSERT_OK((*copy)->LoadStripes(1, recorder));
  EXPECT_THAT(recorder.stripes[0].images, ElementsAre("image"));
  EXPECT_EQ((*copy)->Variables()->at(0).name, "w");
  EXPECT_EQ((*copy)->Workers()->at(0).position, "position");
  EXPECT_EQ((*copy)->Shards()->at(0).update_count, 3);
  EXPECT_THAT((*copy)->PutVariable({2, "job", "x", "spec"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("read-only")));
  ASSERT_OK((*copy)->Close());
  // Reading the copy has not changed it, and its name is taken.
  for (const PartFileSum& file : *files) EXPECT_OK(VerifyPartFile(part_, file));
  EXPECT_EQ(*Write("a"), *files);
}

TEST_F(CheckpointFolderTest, ACopyWhoseChecksumsWereCancelledIsMadeAgain) {
  std::atomic<bool> cancelled{true};
  EXPECT_THAT(WriteCheckpointPart(*store_, directory_, "a", 2, &cancelled),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("was cancelled")));
  EXPECT_FALSE(fs::exists(part_));
  cancelled = false;
  EXPECT_OK(WriteCheckpointPart(*store_, directory_, "a", 2, &cancelled));
  EXPECT_OK(Read(part_));
}

// The advice is for a store whose files are corrupt.
TEST_F(CheckpointFolderTest, TheNewestDirectoryIsNotedHoweverLongTheNamesAre) {
  for (const size_t bytes : {600, 4000}) {
    std::string newest;
    for (int i = 0; i < 9; ++i) {
      newest = absl::StrCat("/", std::string(bytes, 'd'), i);
      ASSERT_OK(NoteCheckpoints(temp_.Join("data"), newest));
      EXPECT_THAT(RestoreAdvice(temp_.Join("data")),
                  HasSubstr(absl::StrCat("the newest checkpoint in ", newest, ":")));
    }
    const std::string note = FileText(temp_.Join("data/CHECKPOINTS"));
    EXPECT_LE(note.size(), kMaxSmallFileBytes);
    const fs::path path = temp_.Join("data/CHECKPOINTS");
    const fs::file_time_type before = fs::last_write_time(path);
    fs::last_write_time(path, before - std::chrono::hours(1));
    ASSERT_OK(NoteCheckpoints(temp_.Join("data"), newest));  // a repetition writes nothing
    EXPECT_LT(fs::last_write_time(path), before);
  }
  // As written before there was a limit.
  std::ofstream(temp_.Join("data/CHECKPOINTS"))
      << "/whole\n/" << std::string(kMaxSmallFileBytes, 'd') << "\n";
  EXPECT_THAT(RestoreAdvice(temp_.Join("data")), HasSubstr("the newest checkpoint in /whole:"));
}

TEST_F(CheckpointFolderTest, AnUnreadableListIsDataLoss) {
  ASSERT_OK(Write("a"));
  fs::remove(absl::StrCat(part_, "/FILES"));
  fs::create_directory(absl::StrCat(part_, "/FILES"));
  EXPECT_THAT(Write("a"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("FILES is corrupt")));
}

TEST_F(CheckpointFolderTest, CommonToolsVerifyTheListOfFiles) {
  ASSERT_OK(Write("a"));
  if (std::system("xxhsum --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no xxhsum";
  const std::string check = absl::StrCat("cd '", part_, "' && xxhsum -c FILES >/dev/null 2>&1");
  EXPECT_EQ(std::system(check.c_str()), 0);
  std::ofstream(absl::StrCat(part_, "/CAIRN"), std::ios::app) << "x";
  EXPECT_NE(std::system(check.c_str()), 0);
}

// Snapshots continue while RocksDB copies. Each copy must open, with every row of earlier batches.
TEST_F(CheckpointFolderTest, CopiesMadeDuringWritesHaveAllEarlierBatches) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> written{0};
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i) {
      const std::string image(100000, static_cast<char>('a' + i % 26));
      if (!WriteImage(*store_, {1, 0, 1}, i, image).ok() || !store_->Sync().ok()) break;
      written = i;
    }
  });
  for (int round = 0; round < 8; ++round) {
    const int64_t before = written;
    const std::string name = absl::StrCat("round", round);
    const auto files = Write(name);
    EXPECT_OK(files);
    auto copy = Read(CheckpointPartPath(directory_, name, 2));
    EXPECT_OK(copy);
    if (!copy.ok()) break;
    Recorder recorder;
    EXPECT_OK((*copy)->LoadStripes(1, recorder));
    if (before > 0) {
      EXPECT_GE(recorder.stripes.back().watermarks[0].sequence, before);
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(written, 0);
}

TEST_F(CheckpointFolderTest, EveryKindOfDamageIsDetectedAndReported) {
  const auto files = Write("a");
  ASSERT_OK(files);
  for (const PartFileSum& file : *files) {
    if (file.bytes == 0) continue;
    const std::string path = absl::StrCat(part_, "/", file.name);
    // A hard link shares its bytes with the store's file, so replace it by a copy first.
    fs::copy_file(path, path + ".sst");
    fs::rename(path + ".sst", path);
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    const char old = static_cast<char>(bytes.get());
    bytes.seekp(0);
    bytes.put(static_cast<char>(old ^ 1));
    bytes.close();
    EXPECT_THAT(VerifyPartFile(part_, file),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(path), HasSubstr("restore another checkpoint"))));
  }
  fs::remove(absl::StrCat(part_, "/CAIRN"));
  EXPECT_THAT(VerifyPartFile(part_, {"CAIRN", 1, 1}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("CAIRN")));
  EXPECT_THAT(VerifyPartFile(part_, {"../../secret", 1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("secret")));
}

// Callers of restore name the files, so files of another type or size are not read.
TEST_F(CheckpointFolderTest, FilesOfAnotherTypeOrSizeAreNotRead) {
  EXPECT_THAT(VerifyPartFile("/dev", {"zero", 10, 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/dev/zero is a device")));
  ASSERT_EQ(::mkfifo(temp_.Join("fifo").c_str(), 0600), 0);
  EXPECT_THAT(VerifyPartFile(temp_.path(), {"fifo", 10, 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("fifo is a FIFO")));
  constexpr int64_t kEndless = int64_t{1} << 42;
  std::ofstream(temp_.Join("sparse")) << "";
  fs::resize_file(temp_.Join("sparse"), kEndless);
  EXPECT_THAT(VerifyPartFile(temp_.path(), {"sparse", 10, 1}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the checkpoint was made with 10")));
  const std::atomic<bool> cancelled = true;
  EXPECT_THAT(VerifyPartFile(temp_.path(), {"sparse", kEndless, 1}, &cancelled),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("sparse")));
  // RocksDB opens files that are not in the list.
  ASSERT_OK(Write("a"));
  ASSERT_EQ(::mkfifo(absl::StrCat(part_, "/db/000999.log").c_str(), 0600), 0);
  EXPECT_THAT(Read(part_), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("db/000999.log is a FIFO")));
}

TEST_F(CheckpointFolderTest, TheGroupOfTheDirectoryMayReadACheckpoint) {
  const mode_t before = umask(0);
  ASSERT_OK(Write("a"));
  EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(part_).permissions(), fs::perms::owner_all);
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  ASSERT_OK(Write("b"));
  umask(before);
  constexpr fs::perms kShared =
      fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec;
  EXPECT_EQ(fs::status(absl::StrCat(directory_, "/b")).permissions(), kShared);
  EXPECT_EQ(fs::status(absl::StrCat(directory_, "/b/ps-2")).permissions(), kShared);
}

TEST_F(CheckpointFolderTest, AnInterruptedCopyIsRestarted) {
  fs::create_directories(part_ + ".part/db.tmp");
  std::ofstream(part_ + ".part/db.tmp/000004.sst") << "half";
  ASSERT_OK(Write("a"));
  EXPECT_FALSE(fs::exists(part_ + ".part"));
  ASSERT_OK(Read(part_));
}

TEST_F(CheckpointFolderTest, DropDeletesOnlyItsOwnPart) {
  ASSERT_OK(Write("a"));
  ASSERT_OK(Write("b"));
  std::ofstream(absl::StrCat(directory_, "/a/MANIFEST.json")) << "{}";
  ASSERT_OK(DropCheckpointPart(directory_, "a", 2));
  EXPECT_FALSE(fs::exists(part_));
  EXPECT_TRUE(fs::exists(absl::StrCat(directory_, "/a/MANIFEST.json")));
  ASSERT_OK(DropCheckpointPart(directory_, "b", 2));
  EXPECT_FALSE(fs::exists(absl::StrCat(directory_, "/b")));
  ASSERT_OK(DropCheckpointPart(directory_, "b", 2));  // again
  ASSERT_OK(Read(temp_.Join("data")));                // the store is unchanged
}

TEST_F(CheckpointFolderTest, DropRefusesForeignFiles) {
  ASSERT_OK(Write("a"));
  std::ofstream(part_ + "/notes.txt") << "mine";
  EXPECT_THAT(DropCheckpointPart(directory_, "a", 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("notes.txt")));
  EXPECT_TRUE(fs::exists(part_ + "/db/CURRENT"));
  // A data directory with that name.
  fs::create_directories(absl::StrCat(directory_, "/c"));
  auto other = OpenStore(absl::StrCat(directory_, "/c/ps-2"), 2);
  ASSERT_OK(other);
  EXPECT_THAT(DropCheckpointPart(directory_, "c", 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("FILES")));
  ASSERT_OK((*other)->PutVariable({1, "job", "w", "spec"}));
}

TEST_F(CheckpointFolderTest, AMissingParentAMissingStoreAndAnotherServerAreReported) {
  EXPECT_THAT(WriteCheckpointPart(*store_, temp_.Join("no/where"), "a", 2),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("parent")));
  EXPECT_THAT(Read(temp_.Join("nothing")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
  EXPECT_THAT(StripeStore::OpenReadOnly({.directory = temp_.Join("data"), .server_index = 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ps:2")));
}

// Stripes are written before the records that name them, so that after a crash a job exists
// completely or not at all.
TEST_F(CheckpointFolderTest, StripesAreLeftoversUntilTheirJobIsPut) {
  ASSERT_OK(WriteImage(*store_, {2, 0, 0}, 1, "left over"));
  ASSERT_OK(store_->DropLeftovers(2, UINT32_MAX));
  Recorder recorder;
  ASSERT_OK(store_->LoadStripes(2, recorder));
  EXPECT_TRUE(recorder.stripes.empty());
  ASSERT_OK(WriteImage(*store_, {3, 0, 0}, 1, "taken over"));
  ASSERT_OK(store_->PutJob("new", {{{3, "new", "w", "spec"}}}, {{{3, 0, 5, {}}}},
                           {{{"new", 4, 9, 8, "there"}}}));
  store_ = nullptr;
  auto again = OpenStore(temp_.Join("data"), 2);
  ASSERT_OK(again);
  ASSERT_OK((*again)->LoadStripes(3, recorder));
  EXPECT_THAT(recorder.stripes[0].images, ElementsAre("taken over"));
  EXPECT_EQ((*again)->Variables()->size(), 2u);
  EXPECT_EQ((*again)->Workers()->at(1).worker, 4);
}

}  // namespace
}  // namespace cairn
