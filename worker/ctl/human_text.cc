#include "worker/ctl/human_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace cairn {
namespace {

// Columns on the screen: bytes that are not the continuation of a UTF-8 character.
size_t Columns(absl::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == std::floor(value) || std::abs(value) >= 100;
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, value, kUnits[unit]);
}

std::string SecondsText(double seconds) {
  if (seconds < 10) return absl::StrFormat("%.1fs", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return absl::StrCat(whole, "s");
  if (whole < 3600) return absl::StrCat(whole / 60, "m", whole % 60, "s");
  if (whole < 86400) return absl::StrCat(whole / 3600, "h", whole % 3600 / 60, "m");
  return absl::StrCat(whole / 86400, "d", whole % 86400 / 3600, "h");
}

std::string TextTable::Text(size_t indent) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - Columns(row[i]) + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace cairn
