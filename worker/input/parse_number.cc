#include "worker/input/parse_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace number_internal {

const char* ParseFloatSlow(const char* begin, const char* end, float* value) {
  if (begin != end && *begin == '+') ++begin;  // from_chars does not accept a plus sign
  const std::from_chars_result result = std::from_chars(begin, end, *value);
  if (result.ec == std::errc()) return std::isfinite(*value) ? result.ptr : nullptr;
  if (result.ec != std::errc::result_out_of_range) return nullptr;
  // from_chars does not say whether a number is too large or too small; parsing it as a double
  // does. The exponent decides for numbers outside a double's range.
  double wide = 0;
  const std::from_chars_result again = std::from_chars(begin, end, wide);
  if (again.ec == std::errc::result_out_of_range) {
    const char* exponent = std::find_if(begin, again.ptr, [](char c) { return (c | 0x20) == 'e'; });
    if (exponent + 1 >= again.ptr || exponent[1] != '-') return nullptr;
    wide = 0;
  }
  if (std::abs(wide) > 1) return nullptr;
  *value = static_cast<float>(wide);
  return again.ptr;
}

}  // namespace number_internal

const char* ParseInt64(const char* begin, const char* end, int64_t* value) {
  if (begin != end && *begin == '+') {
    ++begin;
    if (begin == end || !IsDigit(*begin)) return nullptr;
  }
  const std::from_chars_result result = std::from_chars(begin, end, *value);
  return result.ec == std::errc() ? result.ptr : nullptr;
}

std::string QuoteFound(const char* at, const char* end) {
  constexpr int64_t kMaxShown = 32;
  if (at >= end) return "end of line";
  const unsigned char first = static_cast<unsigned char>(*at);
  if (first < 0x20 || first == 0x7f) {
    return first == '\t' ? "a tab" : absl::StrFormat("byte 0x%02x", first);
  }
  const char* stop = at + 1;
  const char* const limit = at + std::min<int64_t>(end - at, kMaxShown);
  const auto is_shown = [](unsigned char byte) { return byte > 0x20 && byte != 0x7f; };
  while (stop < limit && is_shown(static_cast<unsigned char>(*stop))) ++stop;
  return absl::StrCat("'", absl::string_view(at, static_cast<size_t>(stop - at)),
                      stop == limit && limit < end ? "…'" : "'");
}

}  // namespace cairn
