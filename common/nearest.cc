#include "common/nearest.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Longer names are compared by their first bytes; a table of 256 x 256 suffices for any option.
constexpr size_t kMaxCompared = 256;

// Optimal string alignment distance: insert, delete, replace, swap of two neighbours.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string Nearest(absl::string_view name, absl::Span<const absl::string_view> candidates) {
  const std::string wanted = absl::AsciiStrToLower(name.substr(0, kMaxCompared));
  absl::string_view best;
  size_t best_distance = 0;
  for (const absl::string_view candidate : candidates) {
    const std::string known = absl::AsciiStrToLower(candidate.substr(0, kMaxCompared));
    const size_t distance = EditDistance(wanted, known);
    if (distance * 3 > std::max(wanted.size(), known.size())) continue;
    if (!best.empty() && distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return std::string(best);
}

std::string DidYouMean(absl::string_view name, absl::Span<const absl::string_view> candidates) {
  const std::string nearest = Nearest(name, candidates);
  return nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)");
}

std::string QuotedName(absl::string_view name) {
  constexpr size_t kShownBytes = 60;
  return absl::StrCat("'", name.substr(0, kShownBytes), name.size() > kShownBytes ? "…'" : "'");
}

}  // namespace cairn
