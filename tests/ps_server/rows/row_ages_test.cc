// Ages of rows from a few records of the update count: no row is taken for older than it is.
#include "ps_server/rows/row_ages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/embedding_stripe.h"
#include "ps_server/rows/table_layout.h"
#include "storage/bytes.h"
#include "storage/stored_rows.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Optional;

TEST(RowAges, AnUpdateExpiresOneLifetimeAfterItsRecord) {
  RowAges ages(100);
  EXPECT_EQ(ages.ExpiredUpTo(1000), std::nullopt);
  ages.Note(7, 1000);
  EXPECT_EQ(ages.ExpiredUpTo(1099), std::nullopt);
  EXPECT_THAT(ages.ExpiredUpTo(1100), Optional(7u));
  ages.ForgetUpTo(1100);
  EXPECT_EQ(ages.ExpiredUpTo(2000), std::nullopt);
}

TEST(RowAges, LaterRecordsDoNotMakeRowsOlder) {
  RowAges ages(160);
  for (uint32_t update = 1; update <= 1000; ++update) ages.Note(update, update);
  // The record of time 1 says nothing about later updates, and the next record is of time 11.
  EXPECT_THAT(ages.ExpiredUpTo(170), Optional(1u));
  EXPECT_THAT(ages.ExpiredUpTo(171), Optional(11u));
  EXPECT_LT(ages.Encode(0).size(), 1000u);
}

TEST(RowAges, AStripeWithoutPushesExpiresByItsFirstRecord) {
  RowAges ages(100);
  for (int64_t now = 0; now < 100; now += 10) ages.Note(5, now);
  EXPECT_THAT(ages.ExpiredUpTo(100), Optional(5u));
}

TEST(RowAges, AClockThatGoesBackMakesNothingOlder) {
  RowAges ages(100);
  ages.Note(5, 1000);
  ages.Note(6, 10);
  EXPECT_EQ(ages.ExpiredUpTo(200), std::nullopt);
  EXPECT_THAT(ages.ExpiredUpTo(1100), Optional(5u));
}

TEST(RowAges, DecodeReadsWhatEncodeWrote) {
  RowAges ages(100);
  ages.Note(3, 1000);
  ages.Note(9, 1050);
  RowAges read(100);
  const auto updates = read.Decode(ages.Encode(12));
  ASSERT_OK(updates);
  EXPECT_EQ(*updates, 12u);
  EXPECT_THAT(read.ExpiredUpTo(1120), Optional(3u));
  EXPECT_THAT(read.ExpiredUpTo(1150), Optional(9u));
  for (const std::string& bytes :
       {std::string(), std::string(5, 'x'), std::string(4 + 65 * 12, 'x')}) {
    EXPECT_THAT(read.Decode(bytes), StatusIs(StatusCode::kDataLoss, HasSubstr("row ages")));
  }
}

// A row as it is stored: its key, its stamp and two numbers.
std::string StoredRow(int64_t key, uint32_t stamp) {
  std::string bytes;
  AppendLittleEndian(static_cast<uint64_t>(key), bytes);
  AppendLittleEndian(stamp, bytes);
  bytes.append(2 * sizeof(float), '\0');
  return bytes;
}

// The number of updates starts over after 2^31: the largest stamp is not the newest one then.
TEST(EmbeddingStripeAges, RowsChangedAfterTheNumbersStartedOverAreTheNewest) {
  constexpr uint32_t kEnd = RowTable::kLastUpdate;
  constexpr int64_t kLifetime = 160, kBegin = 1000;
  TableLayout layout{.dim = 2, .expire_after_seconds = kLifetime, .deletes_rows = true};
  layout.row = RowLayout(layout.dim, 0);
  ChunkPool pool(RowTable::ChunkBytes(layout.row.bytes()));
  const size_t row_bytes = RowTable::kStampBytes + layout.row.bytes();
  RowAges ages(kLifetime);
  ages.Note(kEnd - 20, kBegin);
  const std::string old_row = StoredRow(1, kEnd - 30), new_row = StoredRow(2, 4);
  const auto check = [&](EmbeddingStripe& stripe) {
    EXPECT_EQ(stripe.updates(), 5u);
    DirtyList dirty;
    const std::optional<uint32_t> up_to = stripe.NoteAges(kBegin + kLifetime, dirty);
    ASSERT_THAT(up_to, Optional(kEnd - 20));
    EXPECT_TRUE(stripe.Old(kEnd - 30, *up_to));
    EXPECT_FALSE(stripe.Old(kEnd - 10, *up_to));
    EXPECT_FALSE(stripe.Old(4, *up_to));
    std::vector<Stripe*> taken;
    dirty.TakeInto(taken);
  };
  EmbeddingStripe loaded({.variable = 1}, layout, pool);
  ASSERT_OK(loaded.LoadRows(StoredRows(old_row + new_row, row_bytes)));
  ASSERT_OK(loaded.LoadAges(ages.Encode(5)));
  ASSERT_OK(loaded.FinishLoad());
  check(loaded);
  EmbeddingStripe moved({.variable = 2}, layout, pool);
  ASSERT_OK(moved.LoadAges(ages.Encode(5)));
  int64_t made = 0;
  for (const std::string& row : {old_row, new_row}) {
    const StoredRows rows(row, row_bytes);
    moved.SetStoredRow(rows.key(0), rows.row(0), made);
  }
  moved.AddCold(1, kEnd - 30);
  check(moved);
}

}  // namespace
}  // namespace cairn
