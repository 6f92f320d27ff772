// Half-precision conversions are exact for every bit pattern and round to nearest, ties to even.
#include "common/dtype.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/base/casts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

struct Format {
  const char* name;
  uint16_t (*narrow)(float);
  float (*widen)(uint16_t);
  uint16_t infinity;
};
constexpr Format kFormats[] = {
    {"float16", &Float16FromFloat, &FloatFromFloat16, 0x7c00},
    {"bfloat16", &BFloat16FromFloat, &FloatFromBFloat16, 0x7f80},
};

TEST(DType, EveryHalfPatternSurvivesTheRoundTrip) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const float wide = format.widen(half);
      const bool is_nan = (half & 0x7fff) > format.infinity;
      ASSERT_EQ(std::isnan(wide), is_nan) << format.name << " " << bits;
      const uint16_t back = format.narrow(wide);
      if (is_nan) {
        ASSERT_TRUE(std::isnan(format.widen(back))) << format.name << " " << bits;
        ASSERT_EQ(back & 0x8000, half & 0x8000) << format.name << " " << bits;
      } else {
        ASSERT_EQ(back, half) << format.name << " " << bits;
      }
    }
  }
}

// Between every two neighbouring numbers: values just below the middle round down, values just
// above round up, and the middle rounds to the number whose last bit is 0.
TEST(DType, RoundsToNearestTiesToEven) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits + 1 < format.infinity; ++bits) {
      const auto low = static_cast<uint16_t>(bits);
      const auto high = static_cast<uint16_t>(bits + 1);
      // Exact: the mean of two halves needs one bit more than a half has.
      const float middle = (format.widen(low) / 2) + (format.widen(high) / 2);
      const uint16_t even = (low & 1) == 0 ? low : high;
      if (middle >= std::numeric_limits<float>::min()) {
        ASSERT_EQ(format.narrow(std::nextafter(middle, 0.0f)), low) << format.name << " " << bits;
        ASSERT_EQ(format.narrow(std::nextafter(middle, kFloatInfinity)), high)
            << format.name << " " << bits;
        ASSERT_EQ(format.narrow(middle), even) << format.name << " " << bits;
        ASSERT_EQ(format.narrow(-middle), even | 0x8000) << format.name << " " << bits;
      }
    }
  }
}

TEST(DType, OverflowGoesToInfinityAndNanStaysNan) {
  EXPECT_EQ(Float16FromFloat(65519.99f), 0x7bff);  // the largest half, 65504
  EXPECT_EQ(Float16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Float16FromFloat(-1e30f), 0xfc00);
  EXPECT_EQ(Float16FromFloat(0x1p-25f), 0);  // half of the smallest subnormal: tie to even
  EXPECT_EQ(Float16FromFloat(0x1.000002p-25f), 1);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  // NaNs whose payload is only in the truncated bits.
  const auto low_nan = absl::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(FloatFromBFloat16(BFloat16FromFloat(low_nan))));
  EXPECT_TRUE(std::isnan(FloatFromFloat16(Float16FromFloat(low_nan))));
}

TEST(DType, ArraysConvertAtAnyAlignment) {
  const std::vector<float> values = {0.0f, 1.5f, -2.25f, 1024.0f};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    std::vector<char> bytes(values.size() * DTypeBytes(dtype) + 1);
    FromFloat32(dtype, values.data(), values.size(), bytes.data() + 1);
    std::vector<float> back(values.size());
    ToFloat32(dtype, bytes.data() + 1, values.size(), back.data());
    EXPECT_EQ(back, values) << DTypeName(dtype);
  }
}

TEST(DType, NamesAndNumbersRoundTrip) {
  for (int32_t number = 1; number <= 6; ++number) {
    const absl::StatusOr<DType> dtype = DTypeFromNumber(number);
    ASSERT_OK(dtype);
    const absl::StatusOr<DType> again = DTypeFromName(DTypeName(*dtype));
    ASSERT_OK(again);
    EXPECT_EQ(*again, *dtype);
    EXPECT_GT(DTypeBytes(*dtype), 0u);
  }
  EXPECT_TRUE(IsFloating(DType::kBFloat16));
  EXPECT_FALSE(IsFloating(DType::kInt64));
  EXPECT_EQ(DTypeName(static_cast<DType>(99)), "unknown");
}

TEST(DType, ErrorsOfUnknownNamesAndNumbersListTheAllowedOnes) {
  EXPECT_THAT(DTypeFromName("flot32"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("did you mean 'float32'?"), HasSubstr("bfloat16"))));
  EXPECT_THAT(DTypeFromNumber(0), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("number 0"), HasSubstr("int64"))));
}

}  // namespace
}  // namespace cairn
