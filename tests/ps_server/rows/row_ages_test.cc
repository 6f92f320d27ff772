// Ages of rows from a few records of the update count: no row is taken for older than it is.
#include "ps_server/rows/row_ages.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace cairn
