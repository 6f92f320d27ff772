// Compact row formats: what one rounding may lose, and that roundings lose nothing on average.
#include "common/variables/row_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "common/value_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kRowInfinity = std::numeric_limits<float>::infinity();
constexpr RowFormat kNarrow[] = {RowFormat::kFloat16, RowFormat::kBFloat16, RowFormat::kInt8};

// The heap aligns its memory more strictly than any format requires.
using Bytes = std::vector<std::byte>;

std::vector<float> Expanded(RowFormat format, const Bytes& bytes, size_t count) {
  std::vector<float> numbers(count, -1);
  ExpandNumbers(format, bytes.data(), count, numbers.data());
  return numbers;
}

Bytes Nearest(RowFormat format, const std::vector<float>& numbers) {
  Bytes bytes(RowFormatBytes(format, numbers.size()));
  RoundToNearest(format, numbers.data(), numbers.size(), bytes.data());
  return bytes;
}

Bytes AtRandom(RowFormat format, const std::vector<float>& numbers, uint64_t draws,
               uint32_t first = 0) {
  Bytes bytes(RowFormatBytes(format, numbers.size()));
  RoundAtRandom(format, numbers.data(), numbers.size(), draws, first, bytes.data());
  return bytes;
}

std::vector<float> NearestBack(RowFormat format, const std::vector<float>& numbers) {
  return Expanded(format, Nearest(format, numbers), numbers.size());
}

std::vector<float> RandomBack(RowFormat format, const std::vector<float>& numbers, uint64_t draws) {
  return Expanded(format, AtRandom(format, numbers, draws), numbers.size());
}

// Magnitudes across the range of float16 and below, with both signs.
std::vector<float> ManySizes(size_t count, float least, float most) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(least, most), mantissa(1, 2);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = std::ldexp(mantissa(random), static_cast<int>(std::floor(exponent(random))));
    if (random() % 2 == 0) number = -number;
  }
  return numbers;
}

// The distance from the format's number near `number` to the next; `largest` is the largest number
// that shares the scale.
float StepAt(RowFormat format, float number, float largest) {
  if (format == RowFormat::kInt8) return largest / 127;
  const int digits = format == RowFormat::kFloat16 ? 10 : 7;
  const int least = format == RowFormat::kFloat16 ? -14 : -126;
  return std::ldexp(1.0F, std::max(std::ilogb(number), least) - digits);
}

TEST(RowRounding, BytesOfEachFormat) {
  EXPECT_EQ(RowFormatBytes(RowFormat::kFloat32, 5), 20U);
  EXPECT_EQ(RowFormatBytes(RowFormat::kFloat16, 5), 10U);
  EXPECT_EQ(RowFormatBytes(RowFormat::kBFloat16, 5), 10U);
  EXPECT_EQ(RowFormatBytes(RowFormat::kInt8, 5), 9U);
}

TEST(RowRounding, HalvesRoundedToNearestEqualThoseOfTheWire) {
  const std::vector<float> numbers = ManySizes(10007, -30, 20);
  for (const auto& [row, wire] : {std::pair(RowFormat::kFloat16, ValueFormat::kFloat16),
                                  std::pair(RowFormat::kBFloat16, ValueFormat::kBFloat16)}) {
    Bytes wanted(numbers.size() * 2);
    EncodeValues(wire, numbers.data(), static_cast<int64_t>(numbers.size()), 1, wanted.data());
    EXPECT_EQ(Nearest(row, numbers), wanted) << RowFormatName(row);
  }
}

TEST(RowRounding, TheMeanOfManyRoundingsIsTheNumber) {
  constexpr int kRoundings = 20000;
  for (const RowFormat format : kNarrow) {
    const bool bytes = format == RowFormat::kInt8;
    const std::vector<float> numbers = bytes ? ManySizes(64, -12, 2) : ManySizes(64, -26, 14);
    float largest = 0;
    for (const float number : numbers) largest = std::max(largest, std::abs(number));
    std::vector<double> sums(numbers.size());
    for (int i = 0; i < kRoundings; ++i) {
      const std::vector<float> back = RandomBack(format, numbers, static_cast<uint64_t>(i) << 20);
      for (size_t d = 0; d < numbers.size(); ++d) {
        ASSERT_LE(std::abs(back[d] - numbers[d]),
                  1.0001F * StepAt(format, numbers[d], largest) + 1e-6F * std::abs(numbers[d]))
            << RowFormatName(format) << " " << numbers[d];
        sums[d] += back[d];
      }
    }
    for (size_t d = 0; d < numbers.size(); ++d) {
      // The root mean square deviation of one rounding is at most half a step.
      const double bound = 5 * 0.5 * StepAt(format, numbers[d], largest) / std::sqrt(kRoundings) +
                           1e-6 * std::abs(numbers[d]);
      EXPECT_NEAR(sums[d] / kRoundings, numbers[d], bound) << RowFormatName(format);
    }
  }
}

TEST(RowRounding, NumbersOfTheFormatAreKept) {
  std::vector<float> halves, bfloats;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    Bytes bytes(2);
    std::memcpy(bytes.data(), &half, 2);
    halves.push_back(Expanded(RowFormat::kFloat16, bytes, 1)[0]);
    halves.push_back(-halves.back());
    bfloats.push_back(Expanded(RowFormat::kBFloat16, bytes, 1)[0]);
    bfloats.push_back(-bfloats.back());
  }
  for (uint64_t draws : {uint64_t{0}, ~uint64_t{0}, uint64_t{12345} << 32}) {
    EXPECT_EQ(RandomBack(RowFormat::kFloat16, halves, draws), halves);
    EXPECT_EQ(RandomBack(RowFormat::kBFloat16, bfloats, draws), bfloats);
  }
  EXPECT_EQ(NearestBack(RowFormat::kFloat16, halves), halves);
  EXPECT_EQ(NearestBack(RowFormat::kBFloat16, bfloats), bfloats);
  // Bytes with a scale that is a power of two, whose products are exact.
  std::vector<float> steps;
  for (int step = -127; step <= 127; ++step) steps.push_back(std::ldexp(float(step), -9));
  EXPECT_EQ(NearestBack(RowFormat::kInt8, steps), steps);
  EXPECT_EQ(RandomBack(RowFormat::kInt8, steps, 99), steps);
}

TEST(RowRounding, TheSameDrawsGiveTheSameBytesAndOthersDoNot) {
  const std::vector<float> numbers = ManySizes(64, -8, 0);
  for (const RowFormat format : kNarrow) {
    const Bytes once = AtRandom(format, numbers, 77);
    EXPECT_EQ(AtRandom(format, numbers, 77), once);
    EXPECT_NE(AtRandom(format, numbers, 78), once);
    EXPECT_NE(AtRandom(format, numbers, 77 | uint64_t{1} << 40), once);
    EXPECT_NE(AtRandom(format, numbers, 77, 64), once);
  }
  // The index of the number decides, not the start of the call.
  const std::vector<float> rest(numbers.begin() + 24, numbers.end());
  const Bytes whole = AtRandom(RowFormat::kBFloat16, numbers, 5);
  const Bytes part = AtRandom(RowFormat::kBFloat16, rest, 5, 24);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 48));
}

// Neighbouring numbers, and consecutive keys and updates, are rounded independently.
TEST(RowRounding, ConsecutiveRoundingsAreIndependent) {
  constexpr size_t kCount = 256;
  constexpr uint64_t kTries = 400;
  // Midpoints between two numbers.
  const std::vector<float> numbers(kCount, 1 + 0x1p-8F);
  std::vector<std::vector<float>> ups;
  for (uint64_t draws = 0; draws < kTries; ++draws) {
    ups.push_back(RandomBack(RowFormat::kBFloat16, numbers, draws * 0x9e3779b97f4a7c15ULL));
    for (float& up : ups.back()) up = up > numbers[0] ? 1.0F : -1.0F;
  }
  double along = 0, across = 0, mean = 0;
  for (uint64_t t = 1; t < kTries; ++t) {
    for (size_t d = 1; d < kCount; ++d) {
      mean += ups[t][d];
      along += ups[t][d] * ups[t][d - 1];
      across += ups[t][d] * ups[t - 1][d];
    }
  }
  const double bound = 5 / std::sqrt(static_cast<double>((kTries - 1) * (kCount - 1)));
  for (const double sum : {mean, along, across}) {
    EXPECT_LT(std::abs(sum) / static_cast<double>((kTries - 1) * (kCount - 1)), bound);
  }
}

TEST(RowRounding, TheScaleOfBytesIsTheLargestNumberOver127) {
  const std::vector<float> numbers = {0.5F, -2.54F, 0.02F, 0};
  for (const Bytes& bytes :
       {Nearest(RowFormat::kInt8, numbers), AtRandom(RowFormat::kInt8, numbers, 3)}) {
    float scale = 0;
    std::memcpy(&scale, bytes.data(), sizeof(scale));
    EXPECT_FLOAT_EQ(scale, 2.54F / 127);
    EXPECT_EQ(static_cast<int8_t>(bytes[5]), -127);
    EXPECT_NEAR(static_cast<int8_t>(bytes[6]), 1, 1e-5);
    EXPECT_EQ(static_cast<int8_t>(bytes[7]), 0);
  }
  EXPECT_THAT(NearestBack(RowFormat::kInt8, std::vector<float>(8, 0)), Each(0.0F));
  EXPECT_THAT(RandomBack(RowFormat::kInt8, std::vector<float>(8, 1e-41F), 1), Each(0.0F));
}

TEST(RowRounding, TooLargeNumbersAreClampedAndNanStays) {
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> large = {1e30F, -1e30F, kRowInfinity, -kRowInfinity, 65519};
  EXPECT_THAT(NearestBack(RowFormat::kFloat16, large),
              ElementsAre(65504, -65504, 65504, -65504, 65504));
  EXPECT_THAT(RandomBack(RowFormat::kFloat16, large, 8),
              ElementsAre(65504, -65504, 65504, -65504, 65504));
  for (const RowFormat format : {RowFormat::kBFloat16, RowFormat::kInt8}) {
    for (const auto& back : {NearestBack(format, {most, -kRowInfinity, kRowInfinity}),
                             RandomBack(format, {most, -kRowInfinity, kRowInfinity}, 4)}) {
      for (const float number : back) {
        EXPECT_TRUE(std::isfinite(number)) << RowFormatName(format);
        EXPECT_GT(std::abs(number), 0.99F * most);
      }
      EXPECT_LT(back[1], 0);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const RowFormat format : kNarrow) {
    EXPECT_TRUE(std::isnan(NearestBack(format, {1, nan})[1])) << RowFormatName(format);
    EXPECT_TRUE(std::isnan(RandomBack(format, {1, nan}, 6)[1])) << RowFormatName(format);
    const bool whole = format == RowFormat::kInt8;
    EXPECT_EQ(std::isnan(RandomBack(format, {1, nan}, 6)[0]), whole) << RowFormatName(format);
  }
}

TEST(RowRounding, RoundingWritesExactlyTheGivenLength) {
  const std::vector<float> numbers = ManySizes(80, -8, 0);
  for (const RowFormat format : kNarrow) {
    for (size_t count = 1; count <= numbers.size(); ++count) {
      const std::vector<float> some(numbers.begin(), numbers.begin() + static_cast<int>(count));
      const size_t size = RowFormatBytes(format, count);
      Bytes bytes(size + 8, std::byte{0x5a});
      RoundAtRandom(format, some.data(), count, 9, 0, bytes.data());
      EXPECT_EQ(std::count(bytes.begin() + static_cast<int>(size), bytes.end(), std::byte{0x5a}),
                8);
      const std::vector<float> back = Expanded(format, bytes, count);
      float largest = 0;
      for (const float number : some) largest = std::max(largest, std::abs(number));
      for (size_t d = 0; d < count; ++d) {
        ASSERT_LE(std::abs(back[d] - some[d]), 1.001F * StepAt(format, some[d], largest));
      }
    }
  }
}

}  // namespace
}  // namespace cairn
