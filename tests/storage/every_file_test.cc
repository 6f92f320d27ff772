// Damage in every file of a store: each kind of file is truncated, emptied, removed, or gets one
// flipped bit, at many places. The store refuses with kDataLoss and the file's name and leaves the
// file unchanged, or all written data is there. It is never opened with less data or created anew.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/recorder.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kTables = 3;           // and as many starts with a clean end
constexpr uint32_t kStripesOfAStart = 8;  // of one table
constexpr int kFlips = 12;                // per file, plus its first and last bytes

void WriteBytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string ImageOf(uint32_t start, uint32_t stripe) {
  return std::string(700, static_cast<char>('a' + stripe)) + absl::StrCat(start);
}

// Writes all data of one start, in this order.
absl::Status Fill(StripeStore& store, uint32_t start) {
  absl::Status status = store.PutVariable({start, "j", absl::StrCat("v", start), "spec"});
  for (uint32_t i = 0; i < kStripesOfAStart && status.ok(); ++i) {
    status = WriteImage(store, {start, 0, i}, 1, ImageOf(start, i));
  }
  if (status.ok()) {
    status = store.WriteEpoch({{start, 0, 7, {}}},
                              {{.job = "j", .worker = static_cast<int32_t>(start), .sequence = 1}});
  }
  return status.ok() ? store.Sync() : status;
}

// All data as text, one line a record; or the reason why it cannot be read.
absl::StatusOr<std::vector<std::string>> ReadAll(const std::string& directory) {
  auto store = OpenStore(directory);
  if (!store.ok()) return store.status();
  std::vector<std::string> all;
  const auto variables = (*store)->Variables();
  if (!variables.ok()) return variables.status();
  for (const VariableRecord& v : *variables) all.push_back(absl::StrCat("variable ", v.name));
  for (uint32_t start = 1; start <= kTables + 1; ++start) {
    Recorder recorder;
    const absl::Status loaded = (*store)->LoadStripes(start, recorder);
    if (!loaded.ok()) return loaded;
    for (const LoadedStripe& stripe : recorder.stripes) {
      all.push_back(absl::StrCat("stripe ", start, "/", stripe.id.stripe, " ", stripe.images[0]));
    }
  }
  const auto shards = (*store)->Shards();
  if (!shards.ok()) return shards.status();
  for (const ShardRecord& s : *shards) all.push_back(absl::StrCat("shard ", s.variable));
  const auto workers = (*store)->Workers();
  if (!workers.ok()) return workers.status();
  for (const WorkerRecord& w : *workers) all.push_back(absl::StrCat("worker ", w.worker));
  return all;
}

enum class Ending { kClean, kKilled };

class EveryFileTest : public ::testing::TestWithParam<Ending> {
 protected:
  void SetUp() override {
    for (uint32_t start = 1; start <= kTables; ++start) {
      auto store = OpenStore(directory_);
      ASSERT_OK(store);
      ASSERT_OK(Fill(**store, start));
      ASSERT_OK((*store)->Close());
    }
    if (GetParam() == Ending::kKilled) {
      auto store = OpenStore(directory_);
      ASSERT_OK(store);
      ASSERT_OK(Fill(**store, kTables + 1));
      TakeWhole();  // before the store is closed
    } else {
      TakeWhole();
    }
    PutBack();
    const auto all = ReadAll(directory_);
    ASSERT_OK(all);
    expected_ = *all;
    ASSERT_EQ(expected_.size(),
              (kTables + (GetParam() == Ending::kKilled ? 1 : 0)) * (kStripesOfAStart + 3));
  }
  // Saves the files that contain data of the store, in their present state.
  void TakeWhole() {
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      const std::string name = fs::relative(entry.path(), directory_);
      if (!entry.is_regular_file() || absl::StartsWith(name, "LOG") || name == "db/LOCK") continue;
      whole_[name] = FileText(entry.path());
    }
  }
  // Restores exactly those files, in place, because a copied folder's SYNCED note is ignored.
  void PutBack() {
    std::vector<fs::path> there;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) there.push_back(entry.path());
    }
    for (const fs::path& path : there) fs::remove(path);
    for (const auto& [name, bytes] : whole_) WriteBytes(fs::path(directory_) / name, bytes);
  }

  // Applies `damage` to `file`, whose path it gets. Returns "", or a description of the failure.
  std::string Try(const std::string& file, const std::function<void(const fs::path&)>& damage) {
    PutBack();
    const fs::path path = fs::path(directory_) / file;
    damage(path);
    const bool there = fs::exists(path);
    const std::string damaged = there ? FileText(path) : "";
    const auto all = ReadAll(directory_);
    if (all.ok()) {
      if (*all == expected_) return "";
      return absl::StrCat("opens with ", all->size(), " records of ", expected_.size());
    }
    // A marker with another server or format is valid, so refusing it is correct.
    if (!absl::IsDataLoss(all.status()) && !absl::IsFailedPrecondition(all.status())) {
      return std::string(all.status().ToString());
    }
    const bool is_log = path.extension() == ".log";
    const std::string name = there || !is_log ? path.filename().string() : ".log";
    if (!absl::StrContains(all.status().message(), name)) {
      return absl::StrCat("does not name it: ", all.status().message());
    }
    // Recovery has modified a log before its missing end is detected.
    const bool changed = fs::exists(path) != there || (there && FileText(path) != damaged);
    if (changed && !is_log) return "was changed";
    if ((refused_[file]++ == 0 || is_log) && ReadAll(directory_).ok()) {
      return "opens the next time";
    }
    return "";
  }

  std::vector<size_t> Places(size_t size) const {
    std::set<size_t> places;
    for (size_t i = 0; i < std::min<size_t>(4, size); ++i) {
      places.insert(i);
      places.insert(size - 1 - i);
    }
    for (int i = 0; i < kFlips && size > 0; ++i) places.insert(MixBits(i) % size);
    return {places.begin(), places.end()};
  }

  TempDir temp_;
  std::map<std::string, std::string> whole_;  // bytes by path
  const std::string directory_ = temp_.Join("data");
  std::vector<std::string> expected_;
  std::map<std::string, int> refused_;
};

TEST_P(EveryFileTest, IsCompleteOrReported) {
  for (const auto& [file, whole] : whole_) {
    SCOPED_TRACE(file);
    const size_t size = whole.size();
    std::map<std::string, std::string> wrong;
    for (const size_t place : Places(size)) {
      wrong[absl::StrCat("bit of byte ", place)] = Try(file, [&](const fs::path& path) {
        std::string bytes = FileText(path);
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << place % 8));
        WriteBytes(path, bytes);
      });
    }
    for (const size_t left : std::set<size_t>{0, size / 2, size > 0 ? size - 1 : 0}) {
      wrong[absl::StrCat("cut to ", left)] =
          Try(file, [&](const fs::path& path) { fs::resize_file(path, left); });
    }
    wrong["removed"] = Try(file, [](const fs::path& path) { fs::remove(path); });
    for (const auto& [damage, what] : wrong) {
      if (!what.empty()) ADD_FAILURE() << damage << " of " << size << ": " << what;
    }
    // RocksDB reads neither file, so damage in them changes nothing. An empty log has nothing to
    // lose.
    const bool is_unread = file == "db/IDENTITY" || absl::StartsWith(file, "db/OPTIONS");
    if (!is_unread && size > 0) {
      // An empty or removed note counts as none. The last record of a MANIFEST, which says that a
      // log was removed, may be missing too: a cut, or damage that looks like one, removes it.
      const bool spare = file == "SYNCED" || absl::StartsWith(file, "db/MANIFEST");
      EXPECT_GE(refused_[file], static_cast<int>(wrong.size()) - (spare ? 2 : 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ending, EveryFileTest, ::testing::Values(Ending::kClean, Ending::kKilled),
                         [](const auto& info) {
                           return info.param == Ending::kClean ? "AfterACleanEnd" : "AfterAKill";
                         });

}  // namespace
}  // namespace cairn
