// Damage below the store: truncated files and flipped bytes in each of RocksDB's files, a full
// disk. The method: write, close or copy the folder as a crash would leave it, damage one file,
// open again.
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kStripes = 40;
constexpr size_t kImageBytes = 10000;

std::string ImageOf(uint32_t stripe) {
  std::string image(kImageBytes, static_cast<char>('a' + stripe % 26));
  return image + absl::StrCat(stripe);
}

class StoreDamageTest : public ::testing::Test {
 protected:
  // Writes kStripes stripes of variable 1 and syncs.
  void Fill(StripeStore& store) {
    for (uint32_t i = 0; i < kStripes; ++i) {
      ASSERT_OK(WriteImage(store, {1, 0, i}, 1, ImageOf(i)));
    }
    ASSERT_OK(store.Sync());
  }
  // The folder after a SIGKILL: everything in the WAL, nothing flushed.
  void FillAndCrash() {
    const auto store = OpenStore(temp_.Join("live"));
    ASSERT_OK(store);
    Fill(**store);
    fs::copy(temp_.Join("live"), directory_, fs::copy_options::recursive);
  }
  // The folder after a clean end: everything in an SST.
  void FillAndClose() {
    const auto store = OpenStore(directory_);
    ASSERT_OK(store);
    Fill(**store);
    ASSERT_OK((*store)->Close());
  }
  // The largest file in db/ whose name ends (or, for MANIFEST, begins) with `affix`.
  fs::path Largest(absl::string_view affix) {
    fs::path largest;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_ + "/db")) {
      const std::string name = entry.path().filename();
      if (!absl::EndsWith(name, affix) && !absl::StartsWith(name, affix)) continue;
      if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
    }
    EXPECT_FALSE(largest.empty()) << affix;
    return largest;
  }
  static void FlipByte(const fs::path& path, uint64_t offset) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char flipped = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(flipped);
    ASSERT_TRUE(file.good());
  }
  // The damage is detected by opening, or else by loading.
  absl::Status OpenAndLoad(Recorder& recorder) {
    const auto store = OpenStore(directory_);
    if (!store.ok()) return store.status();
    return (*store)->LoadStripes(1, recorder);
  }
  // Expects exactly stripes [0, count), each complete.
  static void ExpectFirst(const Recorder& recorder, size_t count) {
    ASSERT_EQ(recorder.stripes.size(), count);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(recorder.stripes[i].id.stripe, i);
      EXPECT_THAT(recorder.stripes[i].images, ::testing::ElementsAre(ImageOf(i)));
      EXPECT_EQ(recorder.stripes[i].watermarks.size(), 1u);
    }
  }

  TempDir temp_;
  const std::string directory_ = temp_.Join("data");
};

TEST_F(StoreDamageTest, ACrashWithoutDamageLosesNothing) {
  FillAndCrash();
  Recorder recorder;
  ASSERT_OK(OpenAndLoad(recorder));
  ExpectFirst(recorder, kStripes);
}

// A crash in the middle of the last write loses exactly that batch, completely.
TEST_F(StoreDamageTest, ATornWalTailLosesTheLastBatchOnly) {
  for (const uint64_t cut : {1u, 5000u, 9999u}) {
    FillAndCrash();
    const fs::path wal = Largest(".log");
    fs::resize_file(wal, fs::file_size(wal) - cut);
    Recorder recorder;
    ASSERT_OK(OpenAndLoad(recorder));
    ExpectFirst(recorder, kStripes - 1);
    fs::remove_all(directory_);
    fs::remove_all(temp_.Join("live"));
  }
}

// Batches that were synced and acknowledged follow the damage. RocksDB's default recovery would
// drop them silently.
TEST_F(StoreDamageTest, AFlippedByteInTheMiddleOfTheWalIsDataLossNamingTheFile) {
  FillAndCrash();
  const fs::path wal = Largest(".log");
  FlipByte(wal, fs::file_size(wal) / 2);
  Recorder recorder;
  EXPECT_THAT(OpenAndLoad(recorder),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(directory_), HasSubstr(wal.filename().string()))));
  // Refuses again and repairs nothing: the first refusal changed nothing essential.
  EXPECT_THAT(OpenAndLoad(recorder), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(".log")));
}

TEST_F(StoreDamageTest, AFlippedByteInAnSstIsDataLossNamingTheFile) {
  FillAndClose();
  const fs::path sst = Largest(".sst");
  const uint64_t size = fs::file_size(sst);
  // Data blocks are at the front, the index and properties at the end.
  for (const uint64_t offset : {uint64_t{100}, size / 2, size - 1000, size - 5}) {
    FlipByte(sst, offset);
    Recorder recorder;
    EXPECT_THAT(OpenAndLoad(recorder),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(sst.filename().string())))
        << offset << " of " << size;
    FlipByte(sst, offset);
  }
  Recorder recorder;
  ASSERT_OK(OpenAndLoad(recorder));  // repaired
  ExpectFirst(recorder, kStripes);
}

TEST_F(StoreDamageTest, AMissingOrShortSstIsDataLossNamingTheFile) {
  FillAndClose();
  const fs::path sst = Largest(".sst");
  fs::resize_file(sst, fs::file_size(sst) - 1);
  Recorder recorder;
  const auto named = StatusIs(absl::StatusCode::kDataLoss, HasSubstr(sst.filename().string()));
  EXPECT_THAT(OpenAndLoad(recorder), named);
  fs::remove(sst);
  EXPECT_THAT(OpenAndLoad(recorder), named);
}

TEST_F(StoreDamageTest, ACorruptManifestOrCurrentIsDataLossNamingTheFile) {
  FillAndClose();
  const fs::path manifest = Largest("MANIFEST");
  FlipByte(manifest, fs::file_size(manifest) / 2);
  Recorder recorder;
  EXPECT_THAT(OpenAndLoad(recorder), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("MANIFEST")));
  FlipByte(manifest, fs::file_size(manifest) / 2);
  std::ofstream(directory_ + "/db/CURRENT", std::ios::trunc) << "no manifest";
  EXPECT_THAT(OpenAndLoad(recorder), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("CURRENT")));
}

// Writes images of `bytes` until one is refused; returns the number of images written.
uint32_t FillDisk(StripeStore& store, size_t bytes, absl::Status& refusal) {
  const std::string image(bytes, 'x');
  for (uint32_t i = 0; i < 10000; ++i) {
    refusal = WriteImage(store, {1, 0, i}, 1, image);
    if (!refusal.ok()) return i;
  }
  return 10000;
}

void ExpectSaysDiskFull(const absl::Status& status, const std::string& directory) {
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr(directory), HasSubstr("disk full"),
                                     HasSubstr("free space and restart"))));
}

// Uses a separate small file system. Skips if the system does not allow mounting.
class FullDiskTest : public StoreDamageTest {
 protected:
  void Mount(const std::string& size) {
    fs::create_directory(directory_);
    mounted_ = mount("cairn-test", directory_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    if (!mounted_) GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
  }
  void TearDown() override {
    if (!mounted_) return;
    EXPECT_EQ(umount(directory_.c_str()), 0) << std::strerror(errno);
  }
  bool mounted_ = false;
};

TEST_F(FullDiskTest, AFullDiskRefusesWritesClearlyAndKeepsAcknowledgedData) {
  Mount("24m");
  if (IsSkipped()) return;
  uint32_t acknowledged = 0;
  {
    const auto store = OpenStore(directory_);
    ASSERT_OK(store);
    absl::Status refusal;
    acknowledged = FillDisk(**store, 100000, refusal);
    EXPECT_GT(acknowledged, 50u);
    ExpectSaysDiskFull(refusal, directory_);
    // Small writes and syncs stay refused too, although a few bytes might still fit.
    ExpectSaysDiskFull(WriteImage(**store, {1, 0, 0}, 2, "small"), directory_);
    ExpectSaysDiskFull((*store)->Sync(), directory_);
    ExpectSaysDiskFull((*store)->PutVariable({9, "j", "n", ""}), directory_);
    Recorder recorder;
    EXPECT_OK((*store)->LoadStripes(1, recorder));  // reads continue
    EXPECT_EQ(recorder.stripes.size(), acknowledged);
    ExpectSaysDiskFull((*store)->Close(), directory_);
  }
  // The advice works: with more space and a restart, everything acknowledged is there.
  ASSERT_EQ(mount("", directory_.c_str(), "", MS_REMOUNT, "size=96m"), 0) << std::strerror(errno);
  const auto store = OpenStore(directory_);
  ASSERT_OK(store);
  Recorder recorder;
  ASSERT_OK((*store)->LoadStripes(1, recorder));
  ASSERT_EQ(recorder.stripes.size(), acknowledged);
  for (const LoadedStripe& stripe : recorder.stripes) {
    EXPECT_THAT(stripe.images, Each(std::string(100000, 'x')));
    EXPECT_EQ(stripe.watermarks.at(0).sequence, 1);
  }
  EXPECT_OK(WriteImage(**store, {1, 0, 0}, 2, "again"));
}

// With a small write buffer, a background flush is the first to find the disk full.
TEST_F(FullDiskTest, AFlushOnAFullDiskRefusesWritesAndLosesNothing) {
  Mount("24m");
  if (IsSkipped()) return;
  uint32_t acknowledged = 0;
  {
    StoreOptions options;
    options.directory = directory_;
    options.write_buffer_bytes = 1 << 20;
    const auto store = StripeStore::Open(options);
    ASSERT_OK(store);
    absl::Status refusal;
    acknowledged = FillDisk(**store, 100000, refusal);
    EXPECT_GT(acknowledged, 50u);
    ExpectSaysDiskFull(refusal, directory_);
    ExpectSaysDiskFull((*store)->Close(), directory_);
  }
  ASSERT_EQ(mount("", directory_.c_str(), "", MS_REMOUNT, "size=96m"), 0) << std::strerror(errno);
  Recorder recorder;
  ASSERT_OK(OpenAndLoad(recorder));
  EXPECT_EQ(recorder.stripes.size(), acknowledged);
}

TEST_F(FullDiskTest, ADiskTooFullToOpenIsResourceExhausted) {
  Mount("64k");
  if (IsSkipped()) return;
  std::ofstream(directory_ + "/lost+found") << std::string(60 << 10, 'x');
  ExpectSaysDiskFull(OpenStore(directory_).status(), directory_);
}

// The same through a limit that any user can set: the log may not grow.
TEST_F(StoreDamageTest, AFileSizeLimitIsResourceExhausted) {
  const auto store = OpenStore(directory_);
  ASSERT_OK(store);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  absl::Status refusal;
  const uint32_t acknowledged = FillDisk(**store, 100000, refusal);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_GT(acknowledged, 0u);
  ExpectSaysDiskFull(refusal, directory_);
  ExpectSaysDiskFull((*store)->Sync(), directory_);
}

// A read-only file system, which a failing disk may become.
TEST_F(FullDiskTest, AReadOnlyFileSystemIsPermissionDenied) {
  Mount("24m");
  if (IsSkipped()) return;
  { ASSERT_OK(OpenStore(directory_)); }
  ASSERT_EQ(mount("", directory_.c_str(), "", MS_REMOUNT | MS_RDONLY, "size=24m"), 0);
  EXPECT_THAT(OpenStore(directory_),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(directory_), HasSubstr("Read-only file system"))));
}

// A failed sync fails for all callers, because the failed fsync may have dropped others' pages.
TEST_F(FullDiskTest, AllWaitingSyncersGetTheFailure) {
  Mount("24m");
  if (IsSkipped()) return;
  const auto store = OpenStore(directory_);
  ASSERT_OK(store);
  absl::Status refusal;
  FillDisk(**store, 100000, refusal);
  std::vector<absl::Status> results(4);
  std::vector<std::thread> threads;
  for (absl::Status& result : results) {
    threads.emplace_back([&] { result = (*store)->Sync(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) ExpectSaysDiskFull(result, directory_);
}

}  // namespace
}  // namespace cairn
