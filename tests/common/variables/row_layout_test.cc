// The positions of a row's parts.
#include "common/variables/row_layout.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr RowFormat kRowFormats[] = {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kBFloat16,
                                     RowFormat::kInt8};

std::vector<RowStorage> AllStorages() {
  std::vector<RowStorage> all;
  for (const RowFormat values : kRowFormats) {
    for (int32_t slots = 0; slots < kSlotFormats; ++slots) {
      all.push_back({.values = values, .slots = static_cast<RowFormat>(slots)});
    }
  }
  return all;
}

std::vector<float> SomeFloats(size_t count) {
  std::vector<float> floats(count);
  for (size_t i = 0; i < count; ++i) floats[i] = 0.37F * static_cast<float>(i + 1) - 2;
  return floats;
}

TEST(RowLayout, BytesOfARow) {
  const auto bytes = [](size_t dim, size_t slots, RowFormat values, RowFormat of_slots) {
    return RowLayout(dim, slots, {.values = values, .slots = of_slots}).bytes();
  };
  EXPECT_EQ(RowLayout(16, 1).bytes(), 128U);
  EXPECT_EQ(bytes(16, 1, RowFormat::kFloat16, RowFormat::kFloat32), 32U + 64);
  EXPECT_EQ(bytes(16, 1, RowFormat::kBFloat16, RowFormat::kBFloat16), 64U);
  EXPECT_EQ(bytes(16, 1, RowFormat::kInt8, RowFormat::kBFloat16), 4U + 16 + 32);
  EXPECT_EQ(bytes(16, 0, RowFormat::kInt8, RowFormat::kFloat32), 20U);
  // One number per part and two slots: padded to a multiple of 4.
  EXPECT_EQ(bytes(1, 2, RowFormat::kFloat16, RowFormat::kFloat16), 8U);
  EXPECT_EQ(bytes(1, 2, RowFormat::kFloat16, RowFormat::kFloat32), 12U);
  EXPECT_EQ(bytes(3, 1, RowFormat::kInt8, RowFormat::kBFloat16), 4U + 3 + 1 + 6 + 2);
}

TEST(RowLayout, OnlyFloatsArePlain) {
  EXPECT_TRUE(RowLayout(4, 2).plain());
  EXPECT_TRUE(RowLayout(4, 0, {.slots = RowFormat::kBFloat16}).plain());
  EXPECT_FALSE(RowLayout(4, 1, {.slots = RowFormat::kBFloat16}).plain());
  EXPECT_FALSE(RowLayout(4, 0, {.values = RowFormat::kInt8}).plain());
}

// Each part can be read separately with the same result, and setting one leaves the others
// unchanged.
TEST(RowLayout, PartsAreWhereTheWholeRowHasThem) {
  for (const RowStorage& storage : AllStorages()) {
    for (const size_t dim : {1U, 3U, 5U, 16U}) {
      for (const size_t slots : {0U, 1U, 3U}) {
        const RowLayout layout(dim, slots, storage);
        const std::vector<float> floats = SomeFloats(layout.floats());
        std::vector<std::byte> row(layout.bytes() + 4, std::byte{0x5a});
        layout.Round(floats.data(), row.data());
        EXPECT_EQ(row[layout.bytes()], std::byte{0x5a});
        std::vector<float> whole(layout.floats());
        layout.Expand(row.data(), whole.data());
        for (size_t part = 0; part <= slots; ++part) {
          std::vector<float> one(dim);
          layout.ExpandPart(part, row.data(), one.data());
          const auto first = whole.begin() + static_cast<ptrdiff_t>(part * dim);
          EXPECT_TRUE(std::equal(one.begin(), one.end(), first)) << part;
          std::vector<float> trip(floats.begin() + static_cast<ptrdiff_t>(part * dim),
                                  floats.begin() + static_cast<ptrdiff_t>((part + 1) * dim));
          layout.RoundTrip(part, trip.data());
          EXPECT_EQ(trip, one);
          // At any alignment, as rows read from disk have.
          std::vector<std::byte> moved(layout.bytes() + 1);
          std::memcpy(moved.data() + 1, row.data(), layout.bytes());
          std::vector<float> again(dim);
          layout.ExpandPart(part, moved.data() + 1, again.data());
          EXPECT_EQ(again, one);
        }
        const std::vector<float> zeros(dim, 0);
        layout.SetPart(slots, zeros.data(), row.data());
        std::vector<float> after(layout.floats());
        layout.Expand(row.data(), after.data());
        const size_t kept = slots * dim;
        EXPECT_TRUE(
            std::equal(after.begin(), after.begin() + static_cast<ptrdiff_t>(kept), whole.begin()));
        for (size_t i = kept; i < after.size(); ++i) EXPECT_EQ(after[i], 0);
      }
    }
  }
}

TEST(RowLayout, PlainBytesAreTheFloats) {
  const RowLayout layout(5, 2);
  const std::vector<float> floats = SomeFloats(15);
  std::vector<std::byte> row(layout.bytes());
  layout.Round(floats.data(), row.data());
  EXPECT_EQ(std::memcmp(row.data(), floats.data(), row.size()), 0);
  layout.RoundAtRandom(floats.data(), 3, row.data());
  EXPECT_EQ(std::memcmp(row.data(), floats.data(), row.size()), 0);
}

// A value and its slot are rounded independently.
TEST(RowLayout, PartsHaveSeparateDraws) {
  const RowLayout layout(64, 1, {.values = RowFormat::kBFloat16, .slots = RowFormat::kBFloat16});
  const std::vector<float> floats(128, 1 + 0x1p-8F);
  std::vector<std::byte> row(layout.bytes());
  layout.RoundAtRandom(floats.data(), 11, row.data());
  EXPECT_NE(std::memcmp(row.data(), row.data() + 128, 128), 0);
}

}  // namespace
}  // namespace cairn
