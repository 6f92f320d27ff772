// Rows that were written together are read back in order; corrupt or foreign bytes are data loss.
#include "storage/row_segment.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/key.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::_;

std::string Key() {
  StripeKeys keys({5, 2, 17});
  return std::string(keys.Rows(258));
}

std::string ThreeRows(bool every_row) {
  RowSegment segment;
  const std::pair<int64_t, absl::string_view> rows[] = {{-2, "row"}, {7, "two"}, {7, "TWO"}};
  for (const auto& [key, row] : rows) segment.Add(key, row);
  return std::string(segment.Seal(Key(), every_row));
}

absl::Status Ignore(absl::string_view key, absl::string_view value) {
  return ReadRowSegment(key, value).status();
}

TEST(RowSegment, HasItsGoldenBytes) {
  EXPECT_EQ(absl::BytesToHexString(ThreeRows(false)),
            "0300000000feffffffffffffff726f77070000000000000074776f0700000000000000"
            "54574f"
            "189a924b05dcea07");
  EXPECT_FALSE(IsOfEveryRow(ThreeRows(false)));
  EXPECT_TRUE(IsOfEveryRow(ThreeRows(true)));
}

TEST(RowSegment, RowsAreReadBackInOrder) {
  std::vector<std::pair<int64_t, std::string>> rows;
  const std::string value = ThreeRows(true);
  const absl::StatusOr<StoredRows> read = ReadRowSegment(Key(), value);
  ASSERT_OK(read);
  EXPECT_EQ(read->row_bytes(), 3u);
  for (size_t i = 0; i < read->size(); ++i) rows.emplace_back(read->key(i), read->row(i));
  EXPECT_THAT(rows, ::testing::ElementsAre(::testing::Pair(-2, "row"), ::testing::Pair(7, "two"),
                                           ::testing::Pair(7, "TWO")));
}

TEST(RowSegment, TakesRowsOfOneSizeUntilItIsFull) {
  RowSegment segment;
  EXPECT_TRUE(segment.Takes(3));
  segment.Add(1, "row");
  EXPECT_FALSE(segment.Takes(4));
  const std::string large(RowSegment::kFullBytes / 4, 'x');
  segment.Clear();
  int taken = 0;
  for (; segment.Takes(large.size()); ++taken) segment.Add(taken, large);
  EXPECT_EQ(taken, 4);
}

TEST(RowSegment, EveryFlippedBitAndEveryTruncationIsDataLoss) {
  const std::string value = ThreeRows(false);
  for (size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string damaged = value;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(Ignore(Key(), damaged), StatusIs(absl::StatusCode::kDataLoss, _)) << bit;
  }
  for (size_t size = 0; size < value.size(); ++size) {
    EXPECT_THAT(Ignore(Key(), value.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss, _));
  }
}

TEST(RowSegment, IsRefusedUnderAnotherKey) {
  StripeKeys keys({5, 2, 18});
  EXPECT_THAT(Ignore(keys.Rows(258), ThreeRows(false)), StatusIs(absl::StatusCode::kDataLoss, _));
}

}  // namespace
}  // namespace cairn
