// Parses decimal text, correctly rounded, without locale and without copies.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

namespace number_internal {
// The powers of ten that a float holds exactly.
inline constexpr float kExactPowerOfTen[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f,
                                             1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
const char* ParseFloatSlow(const char* begin, const char* end, float* value);
}  // namespace number_internal

inline bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') <= 9; }

// Reads a decimal number ("-1", "+0.25", "1e-3", ".5") from [begin, end) and returns its end;
// nullptr if no number starts at `begin` or it does not fit a float32 (NaN and infinity are not
// numbers). Rounds to the nearest float32; numbers that are too small become the nearest subnormal
// or 0. *end must be readable and no part of a number: readers end every line with '\n'.
inline const char* ParseFloat(const char* begin, const char* end, float* value) {
  const char* p = begin;
  const bool negative = *p == '-';
  if (negative || *p == '+') ++p;
  uint32_t mantissa = 0;
  const char* const integer = p;
  for (; IsDigit(*p); ++p) mantissa = mantissa * 10 + static_cast<uint32_t>(*p - '0');
  int64_t digits = p - integer;
  int64_t fraction_digits = 0;
  if (*p == '.') {
    const char* const fraction = ++p;
    for (; IsDigit(*p); ++p) mantissa = mantissa * 10 + static_cast<uint32_t>(*p - '0');
    fraction_digits = p - fraction;
    digits += fraction_digits;
  }
  // Up to nine digits cannot overflow 32 bits. An integer up to 2^24 divided by an exact power of
  // ten is one division of exact numbers, hence correctly rounded (Clinger, PLDI 1990).
  if (digits == 0) return nullptr;
  if (digits > 9 || mantissa > (1u << 24) || (*p | 0x20) == 'e') {
    return number_internal::ParseFloatSlow(begin, end, value);
  }
  const float magnitude =
      fraction_digits == 0
          ? static_cast<float>(mantissa)
          : static_cast<float>(mantissa) / number_internal::kExactPowerOfTen[fraction_digits];
  *value = negative ? -magnitude : magnitude;
  return p;
}

// Reads a decimal integer with an optional sign and returns its end; nullptr if no integer starts
// at `begin` or it does not fit. *end must be readable, as for ParseFloat.
const char* ParseInt64(const char* begin, const char* end, int64_t* value);

// Quotes the text at `at`, up to the next blank or 32 bytes, for messages: "'abc'", "end of line",
// "byte 0x07".
std::string QuoteFound(const char* at, const char* end);

}  // namespace cairn
