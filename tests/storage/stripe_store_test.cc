// The store against its contract: written data is read back, in order, also after a restart.
#include "storage/stripe_store.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "tests/storage/recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class StripeStoreTest : public ReopenedStore {
 protected:
  std::vector<LoadedStripe> Load(uint32_t variable) {
    Recorder recorder;
    EXPECT_OK(store_->LoadStripes(variable, recorder));
    return recorder.stripes;
  }
  absl::Status WriteRows(const StripeId& id, std::vector<Watermark> watermarks,
                         const std::vector<std::pair<int64_t, std::string>>& rows) {
    const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    if (!watermarks.empty()) batch->SetWatermarks(watermarks);
    for (const auto& [key, bytes] : rows) batch->PutRow(key, bytes);
    return store_->Write(*batch);
  }
};

TEST_F(StripeStoreTest, BootCountIncreasesWithEveryOpen) {
  EXPECT_EQ(store_->boot_count(), 1);
  Reopen();
  EXPECT_EQ(store_->boot_count(), 2);
  Reopen();
  EXPECT_EQ(store_->boot_count(), 3);
}

TEST_F(StripeStoreTest, RecordsAreReadBackAfterARestart) {
  const VariableRecord first{1, "job", "kernel", std::string("\0\xff", 2)};
  const VariableRecord second{0x01020304, "other", "emb/user", std::string(70000, 's')};
  ASSERT_OK(store_->PutVariable(second));
  ASSERT_OK(store_->PutVariable(first));
  const std::vector<ShardRecord> shards = {{1, 0, 12, {{0, 5}, {7, int64_t{1} << 60}}},
                                           {0x01020304, 3, 1, {}}};
  const std::vector<WorkerRecord> workers = {{"job", -1, 0, 0, ""}, {"job", 0, 3, 99, "epoch 2"}};
  ASSERT_OK(store_->WriteEpoch(shards, workers));
  for (int i = 0; i < 2; ++i, Reopen()) {
    EXPECT_THAT(*store_->Variables(), ElementsAre(first, second));
    EXPECT_EQ(*store_->Shards(), shards);
    EXPECT_EQ(*store_->Workers(), workers);
  }
}

TEST_F(StripeStoreTest, ADenseStripeIsReadBackCompleteWithItsWatermarks) {
  const StripeId id{4, 1, 2};
  const std::string values(100000, 'v');
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
  const std::vector<Watermark> watermarks = {{0, 17}, {1, 16}};
  batch->SetWatermarks(watermarks);
  const absl::string_view pieces[] = {values, "", "slots"};
  batch->PutImage(pieces);
  EXPECT_GE(batch->bytes(), values.size() + 5);
  ASSERT_OK(store_->Write(*batch));
  for (int i = 0; i < 2; ++i, Reopen()) {
    const std::vector<LoadedStripe> stripes = Load(4);
    ASSERT_EQ(stripes.size(), 1u);
    EXPECT_EQ(stripes[0].id, id);
    EXPECT_EQ(stripes[0].watermarks, watermarks);
    EXPECT_THAT(stripes[0].images, ElementsAre(values + "slots"));
  }
}

TEST_F(StripeStoreTest, AnEpochStoresImagesWithItsRecords) {
  const std::vector<Watermark> watermarks = {{0, 17}};
  std::vector<std::unique_ptr<StripeBatch>> stripes;
  for (uint32_t stripe : {0, 1}) {
    stripes.push_back(store_->NewBatch({4, 0, stripe}));
    stripes.back()->SetWatermarks(watermarks);
    const std::string values(100000, static_cast<char>('a' + stripe));
    const absl::string_view pieces[] = {values};
    stripes.back()->PutImage(pieces);
  }
  const ShardRecord shard{4, 0, 12, {{0, 17}}};
  const WorkerRecord worker{"job", 0, 3, 17, "epoch 2"};
  ASSERT_OK(store_->WriteEpoch({&shard, 1}, {&worker, 1}, absl::MakeSpan(stripes)));
  for (int i = 0; i < 2; ++i, Reopen()) {
    EXPECT_THAT(*store_->Shards(), ElementsAre(shard));
    EXPECT_THAT(*store_->Workers(), ElementsAre(worker));
    const std::vector<LoadedStripe> loaded = Load(4);
    ASSERT_EQ(loaded.size(), 2u);
    EXPECT_EQ(loaded[0].watermarks, watermarks);
    EXPECT_THAT(loaded[0].images, ElementsAre(std::string(100000, 'a')));
    EXPECT_THAT(loaded[1].images, ElementsAre(std::string(100000, 'b')));
  }
}

TEST_F(StripeStoreTest, AnEpochTakesNoRows) {
  std::vector<std::unique_ptr<StripeBatch>> stripes;
  stripes.push_back(store_->NewBatch({4, 0, 0}));
  stripes.back()->PutRow(7, "row");
  EXPECT_THAT(store_->WriteEpoch({}, {}, absl::MakeSpan(stripes)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rows")));
}

TEST_F(StripeStoreTest, ALaterWriteReplacesTheImageAndEachRowItNames) {
  ASSERT_OK(WriteImage(*store_, {1, 0, 0}, 1, "before"));
  ASSERT_OK(WriteImage(*store_, {1, 0, 0}, 2, "after"));
  ASSERT_OK(WriteRows({2, 0, 9}, {{0, 1}}, {{5, "five"}, {6, "six"}}));
  ASSERT_OK(WriteRows({2, 0, 9}, {{0, 2}}, {{6, "SIX"}}));
  EXPECT_THAT(Load(1)[0].images, ElementsAre("after"));
  EXPECT_THAT(Load(1)[0].watermarks, ElementsAre(Watermark{0, 2}));
  EXPECT_THAT(Load(2)[0].rows, ElementsAre(Pair(5, "five"), Pair(6, "SIX")));
}

// Writing a table to disk takes longer than filling its write buffer in memory.
TEST_F(StripeStoreTest, IsBehindOnlyWhileWritesOutpaceTheDisk) {
  ASSERT_OK(store_->Close());
  StoreOptions options;
  options.directory = directory_;
  options.write_buffer_bytes = 1 << 20;
  auto opened = StripeStore::Open(options);
  ASSERT_OK(opened);
  store_ = *std::move(opened);
  EXPECT_FALSE(store_->Behind());
  const std::string image(256 << 10, 'i');
  bool behind = false;
  for (int64_t i = 1; i <= 2000 && !behind; ++i) {
    ASSERT_OK(WriteImage(*store_, {.variable = 1}, i, image));
    behind = store_->Behind();
  }
  EXPECT_TRUE(behind);
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  while (store_->Behind()) ASSERT_FALSE(deadline.Expired());
}

TEST_F(StripeStoreTest, ColdRowsAreFoundByKeyAndNotLoadedUnlessPutAgain) {
  const StripeId id{2, 0, 9};
  ASSERT_OK(WriteRows(id, {{0, 1}}, {{5, "five"}, {-6, "six!"}, {7, "sevn"}}));
  {
    const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    for (const auto& [key, row] : {std::pair<int64_t, const char*>{5, "FIVE"}, {-6, "SIX!"}}) {
      batch->PutCold(key, row);
      batch->PutGone(key);
    }
    batch->SetColdCount(2);
    ASSERT_OK(store_->Write(*batch));
  }
  for (int i = 0; i < 2; ++i, Reopen()) {
    const std::vector<LoadedStripe> stripes = Load(2);
    EXPECT_THAT(stripes[0].rows, ElementsAre(Pair(7, "sevn")));
    EXPECT_EQ(stripes[0].cold_count, 2);
    ColdRows rows;
    const std::vector<ColdKey> keys = {{StripeId{2, 0, 8}, 5}, {id, -6}, {id, 5}, {id, 6}, {id, 7}};
    ASSERT_OK(store_->ReadCold(keys, 4, rows));
    EXPECT_EQ(rows.found(), 2u);
    EXPECT_EQ(rows.row(0), nullptr);
    EXPECT_EQ(absl::string_view(rows.row(1), 4), "SIX!");
    EXPECT_EQ(absl::string_view(rows.row(2), 4), "FIVE");
    EXPECT_EQ(rows.row(3), nullptr);
    EXPECT_EQ(rows.row(4), nullptr);
    EXPECT_THAT(store_->ReadCold(keys, 5, rows),
                StatusIs(StatusCode::kDataLoss, HasSubstr("stripe 2/0/9 cold row -6 has 4 bytes")));
    std::vector<int64_t> scanned;
    const auto scan = [&](int64_t key, absl::string_view) {
      scanned.push_back(key);
      return true;
    };
    ASSERT_OK(store_->ScanCold(id, std::numeric_limits<int64_t>::min(), 4, scan));
    EXPECT_THAT(scanned, ElementsAre(-6, 5));
    EXPECT_THAT(store_->ScanCold(id, 0, 5, scan),
                StatusIs(StatusCode::kDataLoss, HasSubstr("stripe 2/0/9 cold row 5 has 4 bytes")));
  }
  ASSERT_OK(WriteRows(id, {}, {{5, "5555"}}));
  EXPECT_THAT(Load(2)[0].rows, UnorderedElementsAre(Pair(7, "sevn"), Pair(5, "5555")));
}

TEST_F(StripeStoreTest, ADroppedColdRowIsNoLongerFound) {
  const StripeId id{2, 0, 9};
  const auto write = [&](bool put) {
    const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    for (const int64_t key : {int64_t{5}, int64_t{6}}) {
      if (put) batch->PutCold(key, "cold");
      if (!put && key == 5) batch->DropCold(key);
    }
    batch->PutAges(put ? "old" : "older");
    return store_->Write(*batch);
  };
  ASSERT_OK(write(true));
  EXPECT_EQ(Load(2)[0].ages, "old");
  ASSERT_OK(write(false));
  for (int i = 0; i < 2; ++i, Reopen()) {
    ColdRows rows;
    ASSERT_OK(store_->ReadCold(std::vector<ColdKey>{{id, 5}, {id, 6}}, 4, rows));
    EXPECT_EQ(rows.row(0), nullptr);
    EXPECT_NE(rows.row(1), nullptr);
    EXPECT_EQ(Load(2)[0].ages, "older");
  }
}

// More rows than are sorted together, than one thread looks up, and than one block holds.
TEST_F(StripeStoreTest, ColdRowsPutInAnyOrderAreFoundWithTheirLastBytes) {
  const StripeId id{2, 0, 9};
  constexpr int64_t kRows = 5000;
  const auto text = [](int64_t key, char mark) {
    std::string row(1000, mark);
    std::memcpy(row.data(), &key, sizeof(key));
    return row;
  };
  {
    const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    for (int64_t i = 0; i < kRows; ++i) {
      batch->PutCold(i * 2741 % kRows, text(i * 2741 % kRows, 'a'));
      if (i % 100 == 0) batch->Settle();
      if (i % 10 == 0) batch->PutCold(i, text(i, 'b'));
      if (i % 10 == 1) batch->DropCold(kRows + i);
    }
    EXPECT_GT(batch->bytes(), static_cast<size_t>(kRows) * 1000);
    ASSERT_OK(store_->Write(*batch));
  }
  // Of two rows in one batch the later one counts: `a` if it came after `b`.
  std::vector<int64_t> order(kRows);
  for (int64_t i = 0; i < kRows; ++i) order[static_cast<size_t>(i * 2741 % kRows)] = i;
  std::vector<ColdKey> keys;
  for (int64_t key = -10; key < kRows + 10; ++key) keys.push_back({id, key});
  for (int start = 0; start < 2; ++start, Reopen()) {
    ColdRows rows;
    ASSERT_OK(store_->ReadCold(keys, 1000, rows));
    EXPECT_EQ(rows.found(), static_cast<size_t>(kRows));
    for (size_t i = 0; i < keys.size(); ++i) {
      const int64_t key = keys[i].key;
      ASSERT_EQ(rows.row(i) != nullptr, key >= 0 && key < kRows) << key;
      if (rows.row(i) == nullptr) continue;
      const bool last_is_b = key % 10 == 0 && order[static_cast<size_t>(key)] <= key;
      ASSERT_EQ(absl::string_view(rows.row(i), 1000), text(key, last_is_b ? 'b' : 'a')) << key;
    }
    EXPECT_EQ(store_->ColdLookupBytes() > 0, start > 0);  // closing writes tables
  }
}

TEST_F(StripeStoreTest, PagesOfWaitingKeysAreShownAsLastPutUntilTheStripeIsDropped) {
  const StripeId id{2, 0, 9};
  ASSERT_OK(WriteRows(id, {{0, 1}}, {{5, "five"}}));
  for (const char* const first : {"0000", "zero"}) {
    const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    batch->PutWaiting(0, first);
    if (first[0] == '0') batch->PutWaiting(1, "1111");
    ASSERT_OK(store_->Write(*batch));
  }
  for (int i = 0; i < 2; ++i, Reopen()) {
    EXPECT_THAT(Load(2)[0].waiting, ElementsAre("zero", "1111"));
    EXPECT_THAT(Load(2)[0].rows, ElementsAre(Pair(5, "five")));
  }
  ASSERT_OK(store_->PutMap({2, "job", "t", ""}, {}, std::vector<StripeId>{id}));
  EXPECT_TRUE(Load(2).empty());
}

TEST_F(StripeStoreTest, DroppingAJobDropsItsColdRows) {
  ASSERT_OK(store_->PutVariable({2, "job", "t", ""}));
  ASSERT_OK(WriteRows({2, 0, 0}, {{0, 1}}, {{1, "1"}}));
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({2, 0, 0});
  batch->PutCold(5, "five");
  ASSERT_OK(store_->Write(*batch));
  ASSERT_OK(store_->DropJob("job"));
  ColdRows rows;
  ASSERT_OK(store_->ReadCold(std::vector<ColdKey>{{{2, 0, 0}, 5}}, 4, rows));
  EXPECT_EQ(rows.found(), 0u);
}

TEST_F(StripeStoreTest, ColdRowsWithoutOtherRecordsAreLeftoversToo) {
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({7, 0, 0});
  batch->PutCold(5, "five");
  ASSERT_OK(store_->Write(*batch));
  ASSERT_OK(store_->DropLeftovers(7, std::numeric_limits<uint32_t>::max()));
  ColdRows rows;
  ASSERT_OK(store_->ReadCold(std::vector<ColdKey>{{{7, 0, 0}, 5}}, 4, rows));
  EXPECT_EQ(rows.found(), 0u);
}

TEST_F(StripeStoreTest, AnUnfinishedStoreIsRefusedUntilItIsFinished) {
  ASSERT_OK(store_->SetUnfinished(true));
  ASSERT_OK(store_->Close());
  EXPECT_THAT(OpenStore(directory_),
              StatusIs(StatusCode::kDataLoss, HasSubstr("/UNFINISHED says that")));
  std::filesystem::remove(directory_ + "/UNFINISHED");
  Reopen();
  ASSERT_OK(store_->SetUnfinished(true));
  ASSERT_OK(store_->SetUnfinished(false));
  Reopen();
}

// A stripe that is rewritten repeatedly must neither grow without bound on disk nor lose a row. The
// batch asks for every row when changed rows take more bytes than the last write of all rows.
TEST_F(StripeStoreTest, RewrittenRowsAreReplacedOnceTheyOutgrowTheStripe) {
  constexpr int64_t kRows = 1000;
  const StripeId id{1, 0, 0};
  const auto row = [](int64_t key, int version) {
    return absl::StrCat(absl::Dec(key, absl::kZeroPad8), std::string(120, 'r'),
                        absl::Dec(version, absl::kZeroPad4));
  };
  std::vector<int> versions(kRows, 0);
  int rewrites = 0;
  for (int round = 1; round <= 60; ++round) {
    std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
    const int64_t changed = round == 1 ? kRows : 100;
    for (int64_t i = 0; i < changed; ++i) versions[(round * 37 + i) % kRows] = round;
    for (int64_t key = 0; key < kRows; ++key) {
      if (versions[key] == round || batch->wants_every_row()) {
        batch->PutRow(key, row(key, versions[key]));
      }
    }
    rewrites += batch->wants_every_row() ? 1 : 0;
    ASSERT_OK(store_->Write(*batch));
    batch = nullptr;
    if (round % 20 == 0) Reopen();  // the rows on disk are counted again
  }
  EXPECT_GE(rewrites, 3);
  EXPECT_LE(rewrites, 10);
  const std::vector<LoadedStripe> stripes = Load(1);
  ASSERT_EQ(stripes.size(), 1u);
  ASSERT_EQ(stripes[0].rows.size(), static_cast<size_t>(kRows));
  for (const auto& [key, bytes] : stripes[0].rows) EXPECT_EQ(bytes, row(key, versions[key]));
}

// A store that writes before it loads appends too.
TEST_F(StripeStoreTest, RowsWrittenBeforeALoadDoNotReplaceOnesOnDisk) {
  ASSERT_OK(WriteRows({1, 0, 0}, {}, {{5, "five"}, {6, "six"}}));
  Reopen();
  ASSERT_OK(WriteRows({1, 0, 0}, {}, {{6, "SIX"}}));
  EXPECT_THAT(Load(1)[0].rows, ElementsAre(Pair(5, "five"), Pair(6, "SIX")));
}

TEST_F(StripeStoreTest, StripesAreLoadedInShardStripeOrder) {
  ASSERT_OK(WriteRows({1, 1, 0}, {{0, 3}}, {{1, "d"}}));
  ASSERT_OK(WriteRows({1, 0, 256}, {{0, 2}}, {{INT64_MIN, "c"}}));
  ASSERT_OK(WriteRows({1, 0, 2}, {{0, 1}}, {{300, "z"}, {-1, "a"}, {2, "b"}}));
  ASSERT_OK(WriteRows({2, 0, 0}, {{0, 9}}, {{7, "another variable"}}));
  const std::vector<LoadedStripe> stripes = Load(1);
  ASSERT_EQ(stripes.size(), 3u);
  EXPECT_EQ(stripes[0].id, (StripeId{1, 0, 2}));
  EXPECT_THAT(stripes[0].rows, ElementsAre(Pair(300, "z"), Pair(-1, "a"), Pair(2, "b")));
  EXPECT_EQ(stripes[1].id, (StripeId{1, 0, 256}));
  EXPECT_EQ(stripes[2].id, (StripeId{1, 1, 0}));
}

TEST_F(StripeStoreTest, AStripeWithoutAHeaderIsShownWithoutWatermarks) {
  ASSERT_OK(WriteRows({1, 0, 0}, {}, {{5, "five"}}));
  ASSERT_OK(WriteRows({1, 0, 1}, {{0, 1}}, {}));
  const std::vector<LoadedStripe> stripes = Load(1);
  ASSERT_EQ(stripes.size(), 2u);
  EXPECT_THAT(stripes[0].watermarks, IsEmpty());
  EXPECT_THAT(stripes[0].rows, ElementsAre(Pair(5, "five")));
  EXPECT_THAT(stripes[1].watermarks, ElementsAre(Watermark{0, 1}));
  EXPECT_THAT(stripes[1].rows, IsEmpty());
}

TEST_F(StripeStoreTest, AnEmptyBatchAndAnEmptyEpochWriteNothing) {
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({1, 0, 0});
  EXPECT_OK(store_->Write(*batch));
  EXPECT_OK(store_->WriteEpoch({}, {}));
  EXPECT_THAT(Load(1), IsEmpty());
}

TEST_F(StripeStoreTest, AVisitorsErrorEndsTheLoadAndIsReturned) {
  class Refuser : public Recorder {
    absl::Status Rows(const StripeId&, const StoredRows&) override {
      return absl::ResourceExhaustedError("budget");
    }
  } refuser;
  ASSERT_OK(WriteRows({1, 0, 0}, {{0, 1}}, {{5, "five"}}));
  ASSERT_OK(WriteRows({1, 0, 1}, {{0, 1}}, {{6, "six"}}));
  EXPECT_THAT(store_->LoadStripes(1, refuser),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("budget")));
  EXPECT_EQ(refuser.stripes.size(), 1u);
}

TEST_F(StripeStoreTest, DropJobRemovesOnlyThatJobPermanently) {
  ASSERT_OK(store_->PutVariable({1, "a", "w", ""}));
  ASSERT_OK(store_->PutVariable({2, "ab", "w", ""}));
  ASSERT_OK(store_->PutVariable({3, "a", "b", ""}));
  const ShardRecord shards[] = {{1, 0, 1, {}}, {2, 0, 2, {}}, {3, 0, 3, {}}};
  const WorkerRecord workers[] = {{"a", 0, 1, 1, ""}, {"ab", 0, 1, 2, ""}};
  ASSERT_OK(store_->WriteEpoch(shards, workers));
  for (const uint32_t variable : {1u, 2u, 3u}) {
    ASSERT_OK(WriteImage(*store_, {variable, 0, 0}, 1, "image"));
    ASSERT_OK(WriteRows({variable, 0, 0xffffffff}, {{0, 1}}, {{INT64_MAX, "row"}}));
  }
  ASSERT_OK(store_->DropJob("a"));
  for (int i = 0; i < 2; ++i, Reopen()) {
    EXPECT_THAT(*store_->Variables(), ElementsAre(VariableRecord{2, "ab", "w", ""}));
    EXPECT_THAT(*store_->Shards(), ElementsAre(shards[1]));
    EXPECT_THAT(*store_->Workers(), ElementsAre(workers[1]));
    EXPECT_THAT(Load(1), IsEmpty());
    EXPECT_EQ(Load(2).size(), 2u);
    EXPECT_THAT(Load(3), IsEmpty());
  }
}

TEST_F(StripeStoreTest, DecisionsStayUntilTheyOrTheirJobAreDropped) {
  const DecisionRecord one{"a", 1, {{0, 2, 7, 100, "at"}, {1, 1, 9, 28, ""}}};
  const DecisionRecord two{"a", 2, {}}, far{"a", 300, {{1, 1, 10, 5, ""}}};
  const DecisionRecord others{"ab", 1, {{0, 1, 1, 1, ""}}};
  for (const DecisionRecord& record : {far, others, two, one}) {
    ASSERT_OK(store_->PutDecision(record, /*sync=*/false));
  }
  ASSERT_OK(store_->Sync());
  Reopen();
  EXPECT_THAT(*store_->Decisions(), ElementsAre(one, two, far, others));
  ASSERT_OK(store_->DropDecisions("a", 2));
  ASSERT_OK(store_->DropDecisions("a", 0));
  EXPECT_THAT(*store_->Decisions(), ElementsAre(far, others));
  ASSERT_OK(store_->DropJob("a"));
  Reopen();
  EXPECT_THAT(*store_->Decisions(), ElementsAre(others));
  EXPECT_THAT(store_->PutDecision({"a", 0, {}}, /*sync=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step 0")));
}

// The restored job would otherwise continue after the steps and sequences of the earlier one at the
// next start of the server.
TEST_F(StripeStoreTest, PutJobRemovesTheWorkersAndDecisionsOfAnEarlierJobOfThatName) {
  const DecisionRecord others{"ab", 1, {{0, 1, 1, 1, ""}}};
  ASSERT_OK(store_->PutDecision({"a", 7, {{0, 2, 7, 100, "at"}}}, /*sync=*/false));
  ASSERT_OK(store_->PutDecision(others, /*sync=*/false));
  const WorkerRecord earlier[] = {{"a", 0, 2, 7, "at"}, {"a", 3, 1, 9, ""}, {"ab", 3, 1, 9, ""}};
  ASSERT_OK(store_->WriteEpoch({}, earlier));
  const WorkerRecord restored{"a", 0, 3, 4, "there"};
  ASSERT_OK(store_->PutJob("a", {}, {}, {&restored, 1}));
  for (int i = 0; i < 2; ++i, Reopen()) {
    EXPECT_THAT(*store_->Decisions(), ElementsAre(others));
    EXPECT_THAT(*store_->Workers(), ElementsAre(restored, earlier[2]));
  }
}

TEST_F(StripeStoreTest, DroppingAnUnknownJobChangesNothing) {
  ASSERT_OK(store_->PutVariable({1, "a", "w", ""}));
  EXPECT_OK(store_->DropJob("b"));
  EXPECT_OK(store_->DropJob(std::string(100000, 'x')));
  EXPECT_EQ(store_->Variables()->size(), 1u);
}

TEST_F(StripeStoreTest, InvalidRecordsAreRefused) {
  EXPECT_THAT(store_->PutVariable({0, "job", "w", ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"w\": id 0")));
  const WorkerRecord worker{std::string(70000, 'x'), 0, 1, 1, ""};
  EXPECT_THAT(store_->WriteEpoch({}, {&worker, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("70000 bytes")));
}

TEST_F(StripeStoreTest, EveryCallAfterCloseFailsWithTheReason) {
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({1, 0, 0});
  batch->PutRow(1, "row");
  ASSERT_OK(store_->Close());
  EXPECT_OK(store_->Close());
  const auto closed = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed"));
  EXPECT_THAT(store_->Write(*batch), closed);
  EXPECT_THAT(store_->Sync(), closed);
  EXPECT_THAT(store_->WriteEpoch({}, {}), closed);
  EXPECT_THAT(store_->PutVariable({1, "a", "b", ""}), closed);
  EXPECT_THAT(store_->DropJob("a"), closed);
  EXPECT_THAT(store_->Variables(), closed);
  EXPECT_THAT(store_->Shards(), closed);
  EXPECT_THAT(store_->Workers(), closed);
  EXPECT_THAT(store_->PutDecision({"a", 1, {}}, /*sync=*/true), closed);
  EXPECT_THAT(store_->DropDecisions("a", 1), closed);
  EXPECT_THAT(store_->Decisions(), closed);
  Recorder recorder;
  EXPECT_THAT(store_->LoadStripes(1, recorder), closed);
}

// Four writers with separate stripes, two syncers and a reader, as in a server.
TEST_F(StripeStoreTest, WritesSyncsAndLoadsRunConcurrently) {
  constexpr int kWriters = 4;
  constexpr int kWrites = 300;
  std::atomic<int> running{kWriters};
  std::vector<std::thread> threads;
  for (uint32_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 1; i <= kWrites; ++i) {
        EXPECT_OK(WriteImage(*store_, {1, 0, writer}, i, absl::StrCat(writer, " ", i)));
        if (i % 50 == 0) {
          EXPECT_OK(store_->Sync());
        }
      }
      --running;
    });
  }
  threads.emplace_back([&] {
    while (running > 0) EXPECT_OK(store_->Sync());
  });
  threads.emplace_back([&] {
    while (running > 0) {
      // A stripe is never torn: the image belongs to the watermark.
      for (const LoadedStripe& stripe : Load(1)) {
        EXPECT_THAT(stripe.images, ElementsAre(absl::StrCat(stripe.id.stripe, " ",
                                                            stripe.watermarks[0].sequence)));
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  Reopen();
  const std::vector<LoadedStripe> stripes = Load(1);
  ASSERT_EQ(stripes.size(), static_cast<size_t>(kWriters));
  for (const LoadedStripe& stripe : stripes) {
    EXPECT_THAT(stripe.images, ElementsAre(absl::StrCat(stripe.id.stripe, " ", kWrites)));
  }
}

// The records that record_test checks one by one, here as the whole store writes them to RocksDB.
TEST_F(StripeStoreTest, RocksDbHoldsTheGoldenRecordsAndNothingElse) {
  ASSERT_OK(store_->PutVariable({5, "a9a", "kernel", std::string("\0spec", 5)}));
  const ShardRecord shard{5, 2, 41, {{0, 9}, {-1, int64_t{1} << 40}}};
  const WorkerRecord worker{"a9a", 1, 2, 77, "pos"};
  ASSERT_OK(store_->WriteEpoch({&shard, 1}, {&worker, 1}));
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({5, 2, 17});
  batch->SetWatermarks({{0, 9}, {1, 8}});
  const absl::string_view pieces[] = {"values", "slots"};
  batch->PutImage(pieces);
  batch->PutRow(-2, "row");
  ASSERT_OK(store_->Write(*batch));
  ASSERT_OK(store_->Close());

  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::OpenForReadOnly({}, directory_ + "/db", &db).ok());
  const std::unique_ptr<rocksdb::DB> closer(db);
  const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator({}));
  std::vector<std::string> found;
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    found.push_back(at->key().ToString(true) + " " + at->value().ToString(true));
  }
  EXPECT_THAT(
      found,
      ElementsAre(
          HasSubstr("01 0100000000000000010000000000000"),
          "0200000005 "
          "03000000613961060000006B65726E656C050000000073706563925BB6E632430538",
          "030000000500000002 "
          "290000000000000002000000000000000900000000000000FFFFFFFF00000000000100000"
          "74376A41DD453CC",
          "04000361396180000001 "
          "02000000000000004D0000000000000003000000706F73E322EBF92ABE1C92",
          "0500000005000000020000001100 "
          "020000000000000009000000000000000100000008000000000000000982E0DB289C648C",
          "0500000005000000020000001101 76616C756573736C6F74735FA09D4935D7A5EC",
          "050000000500000002000000110200000000 0300000001FEFFFFFFFFFFFFFF726F779EFE58BCD750258F"));
}

}  // namespace
}  // namespace cairn
