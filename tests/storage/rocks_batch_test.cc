// Batches of a stripe: the numbers of its row segments, which a store must never let wrap around,
// and memory.
#include "storage/rocks_batch.h"

#include <malloc.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "storage/key.h"
#include "storage/row_segment.h"
#include "tests/storage/recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class RocksBatchTest : public ReopenedStore {
 protected:
  // Gives the stripe's only segment another number, as if months of writes had preceded it.
  void MoveFirstSegment(const StripeId& id, uint32_t number) {
    ASSERT_OK(store_->Close());
    store_ = nullptr;
    rocksdb::DB* db = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> families;
    ASSERT_TRUE(
        rocksdb::DB::Open({}, directory_ + "/db", {{"default", {}}, {"cold", {}}}, &families, &db)
            .ok());
    StripeKeys keys(id);
    const std::string from(keys.Rows(0)), to(keys.Rows(number));
    std::string value;
    EXPECT_TRUE(db->Get({}, from, &value).ok());
    const auto rows = ReadRowSegment(from, value);
    EXPECT_OK(rows);
    RowSegment moved;
    for (size_t i = 0; i < rows->size(); ++i) moved.Add(rows->key(i), rows->row(i));
    EXPECT_TRUE(db->Delete({}, from).ok());
    EXPECT_TRUE(db->Put({}, to, std::string(moved.Seal(to, /*every_row=*/true))).ok());
    for (rocksdb::ColumnFamilyHandle* const family : families) {
      EXPECT_TRUE(db->DestroyColumnFamilyHandle(family).ok());
    }
    delete db;
    Reopen();
  }
};

// A load takes the last segment for the newest.
TEST_F(RocksBatchTest, SegmentNumbersStartOverBeforeTheyWrapAround) {
  const std::string large(100 << 10, 'x');  // a segment each
  for (const uint32_t last : {~uint32_t{0} - 1, uint32_t{1} << 31}) {
    const StripeId id{1, 0, last};
    {
      const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
      for (const int64_t key : {5, 6}) batch->PutRow(key, "first");
      ASSERT_OK(store_->Write(*batch));
    }
    ASSERT_NO_FATAL_FAILURE(MoveFirstSegment(id, last));
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<StripeBatch> batch = store_->NewBatch(id);
      EXPECT_EQ(batch->wants_every_row(), round == 0) << last;
      for (const int64_t key : {5, 6}) batch->PutRow(key, absl::StrCat(round, large));
      ASSERT_OK(store_->Write(*batch));
    }
    Reopen();
    Recorder recorder;
    ASSERT_OK(store_->LoadStripes(1, recorder));
    for (const LoadedStripe& stripe : recorder.stripes) {
      std::map<int64_t, std::string> newest;
      for (const auto& [key, bytes] : stripe.rows) newest[key] = bytes.substr(0, 1);
      EXPECT_THAT(newest, ElementsAre(Pair(5, "2"), Pair(6, "2"))) << last;
    }
  }
}

// Moves and restores put all rows of a stripe into one batch.
TEST_F(RocksBatchTest, ALargeBatchHoldsItsRowsOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  constexpr int64_t kRows = 64 << 10;
  const std::string row(1 << 10, 'x');
  const std::unique_ptr<StripeBatch> batch = store_->NewBatch({1, 0, 0});
  for (int64_t key = 0; key < kRows; ++key) batch->PutRow(key, row);
  const auto allocated = [] {
    const struct mallinfo2 all = mallinfo2();
    return static_cast<int64_t>(all.uordblks + all.hblkhd);
  };
  const int64_t before = allocated();
  batch->Settle();
  // The batch may have room for twice its rows, and the segments' memory is free.
  EXPECT_LE(allocated() - before, 96 << 20);
}

}  // namespace
}  // namespace cairn
