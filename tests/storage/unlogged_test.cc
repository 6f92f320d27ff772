// Batches that StripeStore::WriteInSnapshot does not log. The folder is copied as a crash of the
// process would leave it, and opened: each stripe has one of its states, complete, and none from
// before the last call that made it survive.
#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr size_t kColdBytes = 5;

// A stripe's rows in memory and its cold rows, by key.
struct Content {
  int64_t sequence = 0;
  std::map<int64_t, std::string> rows;
  std::map<int64_t, std::string> cold;
  bool operator==(const Content&) const = default;
};

class UnloggedTest : public ::testing::Test {
 protected:
  void Open(size_t logged_snapshot_bytes) {
    StoreOptions options;
    options.directory = temp_.Join("live");
    options.logged_snapshot_bytes = logged_snapshot_bytes;
    auto opened = StripeStore::Open(options);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }

  std::unique_ptr<StripeBatch> Row(const StripeId& id, int64_t sequence, int64_t key,
                                   absl::string_view bytes) {
    std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    const Watermark watermark{0, sequence};
    batch->SetWatermarks({&watermark, 1});
    batch->PutRow(key, bytes);
    return batch;
  }

  // What a server finds that starts after a crash at this moment.
  std::map<uint32_t, Content> AfterACrash() {
    const std::string copy = temp_.Join(absl::StrCat("copy", copies_++));
    fs::copy(temp_.Join("live"), copy, fs::copy_options::recursive);
    const auto store = OpenStore(copy);
    EXPECT_OK(store);
    Recorder recorder;
    EXPECT_OK((*store)->LoadStripes(1, recorder));
    std::map<uint32_t, Content> stripes;
    for (const LoadedStripe& loaded : recorder.stripes) {
      Content& content = stripes[loaded.id.stripe];
      if (!loaded.watermarks.empty()) content.sequence = loaded.watermarks[0].sequence;
      content.rows.insert(loaded.rows.begin(), loaded.rows.end());
      const auto take = [&](int64_t key, absl::string_view row) {
        content.cold[key] = std::string(row);
        return true;
      };
      EXPECT_OK(
          (*store)->ScanCold(loaded.id, std::numeric_limits<int64_t>::min(), kColdBytes, take));
    }
    EXPECT_OK((*store)->Close());
    fs::remove_all(copy);
    return stripes;
  }

  TempDir temp_;
  std::unique_ptr<StripeStore> store_;
  int copies_ = 0;
};

TEST_F(UnloggedTest, SurvivesOnceTheSnapshotIsSettled) {
  Open(0);
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 1}, 1, 8, "other")));
  EXPECT_THAT(AfterACrash(), IsEmpty());
  ASSERT_OK(store_->SettleSnapshot());
  const auto after = AfterACrash();
  EXPECT_THAT(after.at(0).rows, ElementsAre(Pair(7, "first")));
  EXPECT_THAT(after.at(1).rows, ElementsAre(Pair(8, "other")));
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 2, 7, "again")));
  EXPECT_EQ(AfterACrash(), after);
}

// From some number of tables on RocksDB would delay every write, also the record that ends a move.
TEST_F(UnloggedTest, SnapshotsAreAskedToWaitBeforeTheirTablesDelayWrites) {
  Open(0);
  const std::string bytes(1 << 20, 'r');
  for (int64_t i = 1; i <= 28; ++i) {  // a table each
    ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, i, i, bytes)));
    ASSERT_OK(store_->SettleSnapshot());
  }
  EXPECT_FALSE(store_->Behind());
  std::atomic<bool> behind = false, started = false;
  std::thread watching([&] {  // the compaction may end before StartCompaction returns
    while (!behind && !started) behind = store_->Behind();
  });
  const absl::Status start = store_->StartCompaction();
  started = true;
  watching.join();
  ASSERT_OK(start);
  EXPECT_TRUE(behind || store_->Behind());
  for (int64_t i = 29; i <= 34; ++i) ASSERT_OK(store_->Write(*Row({1, 0, 0}, i, i, bytes)));
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  while (store_->Behind()) ASSERT_FALSE(deadline.Expired());
  const std::vector<StoreStatistic> all = store_->ReadStatistics();
  const auto stalls =
      std::ranges::find(all, "rocksdb_write_stall_seconds_total", &StoreStatistic::name);
  ASSERT_NE(stalls, all.end());
  EXPECT_EQ(stalls->value, 0);
}

// Writers that sync during a snapshot do not wait until it is written as a table. After a crash,
// the store does not miss the lost stripes among what was synced.
TEST_F(UnloggedTest, ASyncDoesNotPromiseIt) {
  Open(0);
  ASSERT_OK(store_->Write(*Row({1, 0, 1}, 1, 9, "before")));
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  ASSERT_OK(store_->Sync());
  EXPECT_THAT(AfterACrash(), ElementsAre(Pair(1, ::testing::_)));
  ASSERT_OK(store_->Write(*Row({1, 0, 2}, 1, 9, "after")));
  ASSERT_OK(store_->Sync());
  EXPECT_THAT(AfterACrash(), ElementsAre(Pair(1, ::testing::_), Pair(2, ::testing::_)));
  ASSERT_OK(store_->SettleSnapshot());
  ASSERT_OK(store_->Sync());
  EXPECT_EQ(AfterACrash().size(), 3u);
}

TEST_F(UnloggedTest, SurvivesACleanEnd) {
  Open(0);
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  ASSERT_OK(store_->Close());
  EXPECT_EQ(AfterACrash().size(), 1u);
}

// The segment of the second write without that of the first would be a stripe that never existed.
TEST_F(UnloggedTest, SurvivesALaterWriteToItsStripe) {
  Open(0);
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  ASSERT_OK(store_->Write(*Row({1, 0, 1}, 1, 9, "other")));
  EXPECT_EQ(AfterACrash().count(0), 0u);
  ASSERT_OK(store_->Write(*Row({1, 0, 0}, 2, 8, "second")));
  EXPECT_THAT(AfterACrash().at(0).rows, ElementsAre(Pair(7, "first"), Pair(8, "second")));
}

// The cold row and the removal of its row are in column families that are flushed one by one.
TEST_F(UnloggedTest, AColdRowIsLoggedAfterTheRestOfItsStripe) {
  Open(0);
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 2, 8, "second")));
  const std::unique_ptr<StripeBatch> batch = Row({1, 0, 0}, 3, 9, "third");
  batch->PutCold(7, "first");
  batch->PutGone(7);
  ASSERT_OK(store_->WriteInSnapshot(*batch));
  const Content content = AfterACrash().at(0);
  EXPECT_THAT(content.rows, ElementsAre(Pair(8, "second"), Pair(9, "third")));
  EXPECT_THAT(content.cold, ElementsAre(Pair(7, "first")));
}

TEST_F(UnloggedTest, NothingIsLoggedOfTheSnapshotAfterALargeOne) {
  Open(1000);
  // Bytes of each snapshot, and whether its first batch is logged.
  const std::pair<size_t, bool> snapshots[] = {
      {500, true}, {8000, true}, {8000, false}, {500, false}, {500, true}};
  for (int64_t snapshot = 1; const auto& [bytes, logged] : snapshots) {
    ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, snapshot, 7, "small")));
    EXPECT_EQ(AfterACrash()[0].sequence, logged ? snapshot : snapshot - 1);
    const std::string rest(bytes, 'r');
    ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 1}, snapshot, 7, rest)));
    ASSERT_OK(store_->SettleSnapshot());
    EXPECT_EQ(AfterACrash()[0].sequence, snapshot);
    EXPECT_EQ(AfterACrash()[1].sequence, snapshot);
    ++snapshot;
  }
}

TEST_F(UnloggedTest, TheFirstBytesOfASnapshotAreLogged) {
  Open(10000);
  for (int64_t snapshot = 1; snapshot <= 2; ++snapshot) {
    for (uint32_t stripe = 0; stripe < 4; ++stripe) {
      const std::string bytes(4000, static_cast<char>('a' + snapshot));
      ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, stripe}, snapshot, 7, bytes)));
    }
    auto after = AfterACrash();
    for (uint32_t stripe = 0; stripe < 4; ++stripe) {
      EXPECT_EQ(after[stripe].sequence, stripe < 2 ? snapshot : snapshot - 1) << stripe;
    }
    ASSERT_OK(store_->SettleSnapshot());
  }
}

TEST_F(UnloggedTest, AnyMixOfWritesLeavesCompleteStripes) {
  constexpr uint32_t kStripes = 5;
  constexpr int64_t kKeys = 6;
  for (const size_t logged : {0, 300, 3000}) {
    std::mt19937 random(static_cast<uint32_t>(logged));
    const auto draw = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    fs::remove_all(temp_.Join("live"));
    Open(logged);
    std::vector<std::vector<Content>> states(kStripes, {Content()});
    std::vector<size_t> surviving(kStripes, 0);  // index of the first state that may be found
    const auto all_survive = [&] {
      for (uint32_t s = 0; s < kStripes; ++s) surviving[s] = states[s].size() - 1;
    };
    for (int step = 0; step < 150; ++step) {
      const uint32_t what = draw(10);
      if (what == 0) {
        ASSERT_OK(store_->SettleSnapshot());
        all_survive();
      } else if (what == 1) {
        ASSERT_OK(store_->Sync());
      } else if (what == 2) {
        auto after = AfterACrash();
        for (uint32_t s = 0; s < kStripes; ++s) {
          EXPECT_THAT(
              std::vector<Content>(states[s].begin() + static_cast<std::ptrdiff_t>(surviving[s]),
                                   states[s].end()),
              ::testing::Contains(after[s]))
              << "stripe " << s << " in step " << step << ", logged " << logged;
        }
      } else {
        const uint32_t s = draw(kStripes);
        Content content = states[s].back();
        const std::unique_ptr<StripeBatch> batch = store_->NewBatch({1, 0, s});
        const Watermark watermark{0, ++content.sequence};
        batch->SetWatermarks({&watermark, 1});
        const std::string bytes =
            absl::StrCat("row ", content.sequence, std::string(draw(90), 'x'));
        const int64_t changed = draw(kKeys);
        if (draw(4) == 0 && !content.rows.empty()) {  // a row becomes cold
          const auto row = content.rows.begin();
          const std::string cold = absl::StrCat(absl::Dec(content.sequence, absl::kZeroPad5));
          batch->PutCold(row->first, cold);
          if (!batch->wants_every_row()) batch->PutGone(row->first);
          content.cold[row->first] = cold;
          content.rows.erase(row);
        } else {
          content.rows[changed] = bytes;
          if (!batch->wants_every_row()) batch->PutRow(changed, bytes);
          if (content.cold.erase(changed) > 0) batch->DropCold(changed);
        }
        if (batch->wants_every_row()) {
          for (const auto& [key, row] : content.rows) batch->PutRow(key, row);
          // Without rows the batch would keep the earlier segments.
          for (int64_t key = 0; key < kKeys; ++key) {
            if (!content.rows.contains(key)) batch->PutGone(key);
          }
        }
        states[s].push_back(content);
        if (draw(4) == 0) {
          ASSERT_OK(store_->Write(*batch));
          surviving[s] = states[s].size() - 1;
        } else {
          ASSERT_OK(store_->WriteInSnapshot(*batch));
        }
      }
    }
    ASSERT_OK(store_->Close());
  }
}

// A snapshot in one thread, calls that must survive in others.
TEST_F(UnloggedTest, OtherThreadsWriteAndSyncMeanwhile) {
  constexpr int64_t kRounds = 60;
  Open(0);
  std::thread snapshots([&] {
    for (int64_t round = 1; round <= kRounds; ++round) {
      for (uint32_t stripe = 0; stripe < 3; ++stripe) {
        EXPECT_OK(store_->WriteInSnapshot(*Row({1, 0, stripe}, round, round, "snapshot")));
      }
      EXPECT_OK(store_->SettleSnapshot());
    }
  });
  std::thread syncs([&] {
    for (int64_t round = 1; round <= kRounds; ++round) {
      EXPECT_OK(store_->Write(*Row({1, 0, 3}, round, round, "logged")));
      EXPECT_OK(store_->Sync());
    }
  });
  snapshots.join();
  syncs.join();
  const auto after = AfterACrash();
  ASSERT_EQ(after.size(), 4u);
  for (const auto& [stripe, content] : after) EXPECT_EQ(content.rows.size(), kRounds) << stripe;
}

// Snapshots, one after the other, until this object ends.
class Snapshots {
 public:
  static constexpr uint32_t kStripes = 3;

  explicit Snapshots(StripeStore& store) : store_(store), thread_([this] { Run(); }) {}
  ~Snapshots() {
    stopping_ = true;
    thread_.join();
  }
  // Waits until a snapshot that began after the call has ended.
  void AwaitOne() const {
    const int64_t awaited = ended_ + 2;
    const Deadline deadline = Deadline::In(absl::Seconds(10));
    while (ended_ < awaited && !deadline.Expired()) std::this_thread::yield();
    EXPECT_GE(ended_, awaited);
  }

 private:
  void Run() {
    while (!stopping_) {
      const int64_t sequence = ended_ + 1;
      for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
        const std::unique_ptr<StripeBatch> batch = store_.NewBatch({1, 0, stripe});
        const Watermark watermark{0, sequence};
        batch->SetWatermarks({&watermark, 1});
        batch->PutRow(7, "row");
        EXPECT_OK(store_.WriteInSnapshot(*batch));
      }
      EXPECT_OK(store_.SettleSnapshot());
      const WorkerRecord record = {.job = "job", .sequence = sequence};
      EXPECT_OK(store_.WriteEpoch({}, {&record, 1}));
      ended_ = sequence;
    }
  }

  StripeStore& store_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> ended_{0};
  std::thread thread_;
};

// Before this thread lists a folder, it waits for a snapshot of these; null: it does not.
thread_local const Snapshots* awaited_snapshots = nullptr;

// RocksDB lists a copy's tables first and the folder of its log later. An unlogged batch that
// becomes a table in between is in neither, while the record that names its snapshot is in the log.
TEST_F(UnloggedTest, ACopyHasTheStripesOfTheSnapshotsThatItsRecordsName) {
  Open(0);
  ASSERT_OK(store_->StartCompaction());  // each snapshot makes a table, which each copy links
  const Snapshots snapshots(*store_);
  for (int copy = 0; copy < 5; ++copy) {
    const std::string folder = temp_.Join(absl::StrCat("checkpoint", copy));
    snapshots.AwaitOne();
    awaited_snapshots = &snapshots;
    const absl::Status copied = store_->Checkpoint(folder);
    awaited_snapshots = nullptr;
    ASSERT_OK(copied);
    const auto opened = StripeStore::OpenReadOnly({.directory = folder});
    ASSERT_OK(opened);
    const auto workers = (*opened)->Workers();
    ASSERT_OK(workers);
    ASSERT_EQ(workers->size(), 1U);
    Recorder recorder;
    ASSERT_OK((*opened)->LoadStripes(1, recorder));
    ASSERT_EQ(recorder.stripes.size(), Snapshots::kStripes);
    for (const LoadedStripe& stripe : recorder.stripes) {
      EXPECT_GE(stripe.watermarks.at(0).sequence, workers->at(0).sequence) << "copy " << copy;
    }
  }
}

// Called once, before the next file is synced; null: nothing is. Changes while no file is synced.
std::function<void()> before_sync;

// A snapshot is written as a table in the time of many writes.
TEST_F(UnloggedTest, OtherStripesAreWrittenWhileItIsFlushed) {
  Open(0);
  ASSERT_OK(store_->WriteInSnapshot(*Row({1, 0, 0}, 1, 7, "first")));
  absl::Notification written;
  std::thread other;
  before_sync = [&] {
    other = std::thread([&] {
      EXPECT_OK(store_->Write(*Row({1, 0, 1}, 1, 9, "other")));
      written.Notify();
    });
    EXPECT_TRUE(written.WaitForNotificationWithTimeout(absl::Seconds(20)));
  };
  ASSERT_OK(store_->SettleSnapshot());
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_EQ(AfterACrash().size(), 2u);
}

// Large batches are written from the memory of earlier ones.
TEST_F(UnloggedTest, ABatchHasNothingOfTheOneBeforeIt) {
  Open(size_t{1} << 30);
  const std::string large(1 << 20, 'x');
  ASSERT_OK(store_->Write(*Row({1, 0, 0}, 1, 7, large)));
  std::unique_ptr<StripeBatch> unwritten = store_->NewBatch({1, 0, 2});
  for (int64_t key = 1; key <= 2; ++key) unwritten->PutRow(key, large);
  unwritten->Settle();
  unwritten = nullptr;
  ASSERT_OK(store_->Write(*Row({1, 0, 1}, 2, 8, "small")));
  const auto after = AfterACrash();
  ASSERT_EQ(after.size(), 2u);
  EXPECT_THAT(after.at(0).rows, ElementsAre(Pair(7, large)));
  EXPECT_EQ(after.at(0).sequence, 1);
  EXPECT_THAT(after.at(1).rows, ElementsAre(Pair(8, "small")));
  EXPECT_EQ(after.at(1).sequence, 2);
}

}  // namespace
}  // namespace cairn

// In place of the C library's, also for RocksDB.
extern "C" __attribute__((visibility("default"))) int fdatasync(int file) {
  if (cairn::before_sync != nullptr) std::exchange(cairn::before_sync, nullptr)();
  static const auto next = reinterpret_cast<decltype(&fdatasync)>(dlsym(RTLD_NEXT, "fdatasync"));
  return next(file);
}
extern "C" __attribute__((visibility("default"))) DIR* opendir(const char* path) {
  if (const auto* const snapshots = std::exchange(cairn::awaited_snapshots, nullptr)) {
    snapshots->AwaitOne();
    cairn::awaited_snapshots = snapshots;
  }
  static const auto next = reinterpret_cast<decltype(&opendir)>(dlsym(RTLD_NEXT, "opendir"));
  return next(path);
}
