// Ages of rows from a few records of the update count: no row is taken for older than it is.
#include "ps_server/rows/row_ages.h"

#include <cstdint>
#include <map>
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

constexpr uint32_t kFirst = UpdateNumber::kFirstRepeated;

TEST(UpdateNumber, AgesGrowFromTheNewestToTheOldest) {
  const uint32_t last = UpdateNumber::kLast;
  EXPECT_EQ(UpdateNumber::Next(last - 1), last);
  EXPECT_EQ(UpdateNumber::Next(last), kFirst);
  for (const uint32_t updates : {kFirst + 2, last - 2}) {
    uint32_t age = 0;
    for (const uint32_t number :
         {updates, updates - 1, kFirst, last, last - 1, kFirst - 1, kFirst - 2, 1u, 0u}) {
      const bool wrapped = number > updates;
      if (wrapped && updates > kFirst + 2) continue;
      EXPECT_GE(UpdateNumber::Age(number, updates), age) << number << " at " << updates;
      age = UpdateNumber::Age(number, updates) + 1;
    }
  }
  EXPECT_EQ(UpdateNumber::Age(last, kFirst), 1u);
  EXPECT_EQ(UpdateNumber::Age(3, 10), 7u);
}

TEST(RowAges, OldRecordsGetNumbersThatAreNotUsedAgain) {
  RowAges ages(160);
  ages.Note(kFirst + 10, 1000);
  ages.Note(kFirst + 20, 1050);
  uint32_t updates = kFirst + 20 + RowAges::kParkedAge - 1;
  RowAges::Parked parked = ages.Park(updates);
  ASSERT_EQ(parked.marks.size(), 1u);
  EXPECT_EQ(parked.NumberOf(kFirst + 10), 0u);
  EXPECT_EQ(parked.NumberOf(kFirst + 11), kFirst + 11);
  parked = ages.Park(++updates);
  ASSERT_EQ(parked.marks.size(), 1u);
  EXPECT_EQ(parked.NumberOf(0), 0u);
  EXPECT_EQ(parked.NumberOf(1), 1u);  // has its number already
  EXPECT_EQ(parked.NumberOf(kFirst + 11), 1u);
  EXPECT_EQ(parked.NumberOf(kFirst + 21), kFirst + 21);
  EXPECT_TRUE(ages.Park(updates).marks.empty());
  EXPECT_THAT(ages.ExpiredUpTo(1160), Optional(0u));
  EXPECT_THAT(ages.ExpiredUpTo(1210), Optional(1u));
}

// However many updates a lifetime has, a row expires within an eighth of it.
TEST(RowAges, RecordsStayFewInALifetimeOfAnyNumberOfUpdates) {
  constexpr int64_t kLifetime = 1600000;
  RowAges ages(kLifetime);
  std::map<int64_t, uint32_t> rows;  // by the time of their push
  uint32_t updates = kFirst;
  for (int64_t now = 0; now < 3 * kLifetime; now += 1000) {
    updates += RowAges::kUpdatesPerMark / 3;
    if (updates > UpdateNumber::kLast) updates = updates - UpdateNumber::kLast - 1 + kFirst;
    rows[now] = updates;
    const RowAges::Parked parked = ages.Park(updates);
    for (auto& [time, number] : rows) number = parked.NumberOf(number);
    ages.Note(updates, now);
    const std::optional<uint32_t> expired = ages.ExpiredUpTo(now);
    if (expired.has_value()) {
      std::erase_if(rows, [&](const auto& row) {
        const bool old =
            UpdateNumber::Age(row.second, updates) >= UpdateNumber::Age(*expired, updates);
        EXPECT_TRUE(!old || row.first <= now - kLifetime) << row.first << " at " << now;
        return old;
      });
      ages.ForgetUpTo(now);
    }
    ASSERT_GE(rows.begin()->first, now - kLifetime - kLifetime / 8) << now;
    ASSERT_LT(ages.Encode(updates).size(), size_t{4} + 12 * 60);
  }
}

// The row's number is the same as the record's if numbers start over at 0.
TEST(RowAges, ARowIsNotOldBecauseNumbersStartedOver) {
  TableLayout layout;
  layout.dim = 1;
  layout.deletes_rows = true;
  layout.expire_after_seconds = 100;
  layout.row = RowLayout(1, 0, {});
  ChunkPool pool(RowTable::ChunkBytes(layout.row.bytes()));
  EmbeddingStripe stripe({1, 0, 0}, layout, pool);
  RowAges ages(100);
  ages.Note(0, 1000);
  ASSERT_OK(stripe.LoadAges(ages.Encode(UpdateNumber::kLast)));  // update 2^31 - 1
  stripe.BeginPush();
  uint32_t row = RowTable::kNone;
  int64_t made = 0;
  stripe.Take(5, row, made);
  // 2^30 updates later.
  ASSERT_OK(stripe.LoadAges(ages.Encode(stripe.updates() + (uint32_t{1} << 30))));
  DirtyList dirty;
  const std::optional<uint32_t> expired = stripe.NoteAges(2000, dirty);
  ASSERT_TRUE(expired.has_value());
  EXPECT_FALSE(stripe.Old(stripe.table().last_update(row), *expired));
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
