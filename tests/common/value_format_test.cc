// Compact value formats: the precision lost, and the refusal of invalid bytes.
#include "common/value_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "common/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kValueInfinity = std::numeric_limits<float>::infinity();

std::vector<std::byte> Encoded(ValueFormat format, const std::vector<float>& values,
                               int64_t width) {
  const int64_t rows = static_cast<int64_t>(values.size()) / width;
  std::vector<std::byte> bytes(EncodedBytes(format, rows, width));
  EncodeValues(format, values.data(), rows, width, bytes.data());
  return bytes;
}

std::vector<float> Decoded(ValueFormat format, absl::Span<const std::byte> bytes, int64_t rows,
                           int64_t width) {
  std::vector<float> values(static_cast<size_t>(rows * width), -1);
  EXPECT_OK(DecodeValues(format, bytes, rows, width, values.data()));
  return values;
}

std::vector<float> ThereAndBack(ValueFormat format, const std::vector<float>& values,
                                int64_t width) {
  return Decoded(format, Encoded(format, values, width),
                 static_cast<int64_t>(values.size()) / width, width);
}

// Values of all magnitudes of a float, with both signs.
std::vector<float> ManySizes(size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-140, 120), mantissa(1, 2);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    if (random() % 2 == 0) value = -value;
  }
  return values;
}

TEST(ValueFormat, HalvesEqualTheConversionOfTensors) {
  // Every half, the midpoints between two halves, and their neighbours.
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float half = FloatFromFloat16(static_cast<uint16_t>(bits));
    const float next = FloatFromFloat16(static_cast<uint16_t>(bits + 1));
    const float middle = half + (next - half) / 2;
    for (const float value :
         {half, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kValueInfinity)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::vector<std::byte> wanted(values.size() * 2);
  FromFloat32(DType::kFloat16, values.data(), values.size(), wanted.data());
  const std::vector<std::byte> got = Encoded(ValueFormat::kFloat16, values, 1);
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size()), 0);
  std::vector<float> back(values.size());
  ToFloat32(DType::kFloat16, wanted.data(), values.size(), back.data());
  EXPECT_EQ(ThereAndBack(ValueFormat::kFloat16, values, 1), back);
}

TEST(ValueFormat, BFloatsEqualTheConversionOfTensors) {
  const std::vector<float> values = ManySizes(10007);
  std::vector<std::byte> wanted(values.size() * 2);
  FromFloat32(DType::kBFloat16, values.data(), values.size(), wanted.data());
  EXPECT_EQ(Encoded(ValueFormat::kBFloat16, values, 1), wanted);
  const std::vector<float> back = ThereAndBack(ValueFormat::kBFloat16, values, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(back[i] - values[i]), std::ldexp(std::abs(values[i]), -8) + 1e-38F) << i;
  }
}

TEST(ValueFormat, TooLargeValuesAreClampedAndNanStays) {
  const std::vector<float> values = {1e30F, -1e30F, kValueInfinity, 65519, 65520};
  EXPECT_THAT(ThereAndBack(ValueFormat::kFloat16, values, 1),
              ElementsAre(65504, -65504, 65504, 65504, 65504));
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> large = ThereAndBack(ValueFormat::kBFloat16, {most, -kValueInfinity}, 1);
  EXPECT_TRUE(std::isfinite(large[0]) && std::isfinite(large[1]));
  EXPECT_GT(large[0], 0.99F * most);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ValueFormat format :
       {ValueFormat::kFloat16, ValueFormat::kBFloat16, ValueFormat::kInt8}) {
    EXPECT_TRUE(std::isnan(ThereAndBack(format, {nan}, 1)[0])) << ValueFormatName(format);
  }
}

TEST(ValueFormat, BytesDeviateByAtMostHalfAScale) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int64_t width : {1, 3, 8, 16, 33}) {
    const int64_t rows = 101;
    std::vector<float> values(static_cast<size_t>(rows * width));
    for (float& value : values) value = normal(random);
    for (int64_t i = 5 * width; i < 6 * width; ++i) values[static_cast<size_t>(i)] *= 1e6F;
    const std::vector<float> back = ThereAndBack(ValueFormat::kInt8, values, width);
    const int64_t shared = ScaledRows(width) * width;
    for (int64_t first = 0; first < rows * width; first += shared) {
      const int64_t end = std::min(rows * width, first + shared);
      float largest = 0;
      for (int64_t i = first; i < end; ++i) {
        largest = std::max(largest, std::abs(values[static_cast<size_t>(i)]));
      }
      for (int64_t i = first; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_LE(std::abs(back[at] - values[at]), largest / 253) << width << " " << i;
        if (std::abs(values[at]) == largest) {
          ASSERT_FLOAT_EQ(back[at], values[at]);
        }
      }
    }
  }
}

TEST(ValueFormat, RowsOfZerosAndOfTinyValuesBecomeZeros) {
  EXPECT_THAT(ThereAndBack(ValueFormat::kInt8, std::vector<float>(8, 0), 8), ::testing::Each(0.0F));
  EXPECT_THAT(ThereAndBack(ValueFormat::kInt8, std::vector<float>(8, 1e-41F), 8),
              ::testing::Each(0.0F));
}

TEST(ValueFormat, BytesOfEachFormat) {
  EXPECT_EQ(EncodedBytes(ValueFormat::kPlain, 10, 16), 640U);
  EXPECT_EQ(EncodedBytes(ValueFormat::kFloat16, 10, 16), 320U);
  EXPECT_EQ(EncodedBytes(ValueFormat::kBFloat16, 10, 16), 320U);
  EXPECT_EQ(EncodedBytes(ValueFormat::kInt8, 10, 16), 160U + 40U);
  // Narrow rows share a scale: 64 rows of one value, 22 of three.
  EXPECT_EQ(EncodedBytes(ValueFormat::kInt8, 65, 1), 65U + 2 * 4U);
  EXPECT_EQ(EncodedBytes(ValueFormat::kInt8, 22, 3), 66U + 4U);
  EXPECT_EQ(EncodedBytes(ValueFormat::kInt8, 0, 16), 0U);
}

TEST(ValueFormat, TheLargestValuesAreKeptAndTheFirstOfEqualOnes) {
  const std::vector<float> values = {1, -5, 2, 0, 5, -2, 2};
  std::vector<std::byte> bytes(TopKBytes(4));
  EncodeTopK(values, 4, bytes.data());
  EXPECT_THAT(Decoded(ValueFormat::kTopK, bytes, 7, 1), ElementsAre(0, -5, 2, 0, 5, -2, 0));
  EXPECT_THAT(Decoded(ValueFormat::kTopK, {}, 3, 1), ElementsAre(0, 0, 0));
  EXPECT_EQ(KeptValues(0.01, 7), 1);
  EXPECT_EQ(KeptValues(1, 7), 7);
  EXPECT_EQ(KeptValues(0.01, 0), 0);
  bytes.resize(TopKBytes(7));
  EncodeTopK(values, 7, bytes.data());
  EXPECT_EQ(Decoded(ValueFormat::kTopK, bytes, 7, 1), values);
}

TEST(ValueFormat, TheKeptValuesAreTheFirstOfASort) {
  std::mt19937 random(5);
  std::vector<float> values = ManySizes(3000);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = static_cast<float>(random() % 7) - 3;
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  for (const size_t kept : {1, 2, 500, 1400, 2100, 3000}) {
    std::vector<float> want(values.size(), 0);
    for (size_t i = 0; i < kept; ++i) want[order[i]] = values[order[i]];
    std::vector<std::byte> bytes(TopKBytes(static_cast<int64_t>(kept)));
    EncodeTopK(values, static_cast<int64_t>(kept), bytes.data());
    EXPECT_EQ(Decoded(ValueFormat::kTopK, bytes, 3000, 1), want) << kept;
  }
}

TEST(ValueFormat, InvalidBytesAreRefused) {
  std::vector<float> out(64);
  const auto refused = [&](ValueFormat format, const std::vector<std::byte>& bytes,
                           absl::string_view why) {
    EXPECT_THAT(DecodeValues(format, bytes, 8, 8, out.data()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why))));
  };
  refused(ValueFormat::kFloat16, std::vector<std::byte>(127), "127 bytes, expected 128");
  refused(ValueFormat::kBFloat16, std::vector<std::byte>(130), "130 bytes, expected 128");
  refused(ValueFormat::kInt8, std::vector<std::byte>(64), "64 bytes, expected 96");
  refused(ValueFormat::kTopK, std::vector<std::byte>(12), "12 bytes");
  refused(ValueFormat::kTopK, std::vector<std::byte>(16), "index 0 after 0");
  refused(ValueFormat::kTopK, std::vector<std::byte>(8, std::byte{64}), "below 64");
}

TEST(ValueFormat, NamesEqualThoseOfJobFiles) {
  for (const absl::string_view name : kValueFormatNames) {
    EXPECT_EQ(ValueFormatName(ValueFormatFromName(name)), name);
  }
}

}  // namespace
}  // namespace cairn
