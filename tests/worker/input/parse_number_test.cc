// Numbers are rounded to the nearest float32 on every path, and no other text is read as a number.
#include "worker/input/parse_number.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "worker/input/random.h"

namespace cairn {
namespace {

// The value of `text` if all of it is one number, else NaN.
float Parse(std::string text) {
  text += '\n';
  const char* const end = text.data() + text.size() - 1;
  float value = 0;
  return ParseFloat(text.data(), end, &value) == end ? value : std::nanf("");
}

TEST(ParseFloat, ReadsTheUsualForms) {
  EXPECT_EQ(Parse("0"), 0.0f);
  EXPECT_EQ(Parse("-1"), -1.0f);
  EXPECT_EQ(Parse("+1"), 1.0f);
  EXPECT_EQ(Parse("+1.5e1"), 15.0f);
  EXPECT_EQ(Parse(".5"), 0.5f);
  EXPECT_EQ(Parse("5."), 5.0f);
  EXPECT_EQ(Parse("1E-2"), 0.01f);
  EXPECT_EQ(Parse("16777217"), 16777216.0f);
  EXPECT_EQ(Parse("00000000000000000001.25"), 1.25f);
  EXPECT_TRUE(std::signbit(Parse("-0")));
}

TEST(ParseFloat, RefusesWhatIsNoFiniteNumber) {
  for (const char* text : {"", "-", "+", ".", "-.", "e5", "nan", "inf", "-inf", "1e", "1e+", "++1",
                           "+-1", "0x10", "1e39", "-1e400", "abc", "1,5", " 1"}) {
    EXPECT_TRUE(std::isnan(Parse(text))) << text;
  }
}

TEST(ParseFloat, NumbersTooSmallBecomeSubnormalOrZero) {
  EXPECT_EQ(Parse("1e-45"), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(Parse("1e-46"), 0.0f);
  EXPECT_EQ(Parse("-1e-400"), 0.0f);
}

// strtof is correctly rounded in glibc; the fast path must agree with it everywhere.
TEST(ParseFloat, EqualsStrtofOnRandomDecimals) {
  Random random(7);
  const char* const formats[] = {"%.*f", "%.*e", "%.*g"};
  for (int i = 0; i < 300000; ++i) {
    const double scale = std::pow(10.0, static_cast<double>(random.Below(24)) - 12);
    const double number = (random.Uniform() - 0.5) * scale;
    char text[400];
    std::snprintf(text, sizeof text, formats[random.Below(3)], static_cast<int>(random.Below(12)),
                  number);
    ASSERT_EQ(Parse(text), std::strtof(text, nullptr)) << text;
  }
}

TEST(ParseInt64, ReadsWholeNumbersInRange) {
  const auto parse = [](std::string text) {
    text += '\n';
    int64_t value = -7;
    const char* const end = text.data() + text.size() - 1;
    return ParseInt64(text.data(), end, &value) == end ? value : -7;
  };
  EXPECT_EQ(parse("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse("+5"), 5);
  EXPECT_EQ(parse("-5"), -5);
  for (const char* text : {"", "9223372036854775808", "1.0", "+-5", "x"}) {
    EXPECT_EQ(parse(text), -7) << text;
  }
}

}  // namespace
}  // namespace cairn
