// MovieLens ratings (grouplens.org): 1M's "user::item::rating::time", 100K's tabs, latest's commas.
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/input/line_rows.h"
#include "worker/input/parse_number.h"

namespace cairn {
namespace {

class MovielensParser : public LineParser {
 public:
  explicit MovielensParser(const ReaderOptions& options) : LineParser(options) {
    schema_.key_columns = 2;
  }

  char quoted_separator() const override { return ','; }

  bool IsHeader(absl::string_view line) const override {
    int64_t ignored = 0;
    return ParseInt64(line.data(), line.data() + line.size(), &ignored) == nullptr &&
           absl::StartsWithIgnoreCase(absl::StripPrefix(line, "\""), "user");
  }

  bool Parse(absl::string_view line, Batch* batch, LineError* error) const override {
    const char* const end = line.data() + line.size();
    const char* p = line.data();
    const absl::string_view separator = SeparatorOf(line);
    int64_t ids[2] = {0, 0};
    constexpr absl::string_view kNames[] = {"user", "item"};
    for (int i = 0; i < 2; ++i) {
      const char* const after = ParseInt64(p, end, &ids[i]);
      if (after == nullptr || !AtSeparator(after, end, separator)) {
        return Bad(p, separator, absl::StrCat(kNames[i], " ", QuoteFound(p, end)), error);
      }
      p = after + separator.size();
    }
    float rating = 0;
    const char* after = ParseFloat(p, end, &rating);
    if (after == nullptr || (after != end && !AtSeparator(after, end, separator)) ||
        !labels_.Apply(&rating)) {
      return Bad(p, separator, absl::StrCat("rating ", QuoteFound(p, end), "; ", labels_.Allowed()),
                 error);
    }
    if (after != end) {
      int64_t time = 0;
      p = after + separator.size();
      after = ParseInt64(p, end, &time);
      if (after != end) return Bad(p, separator, absl::StrCat("time ", QuoteFound(p, end)), error);
    }
    batch->keys.insert(batch->keys.end(), ids, ids + 2);
    batch->labels.push_back(rating);
    ++batch->rows;
    return true;
  }

 private:
  static absl::string_view SeparatorOf(absl::string_view line) {
    if (absl::StrContains(line, "::")) return "::";
    return absl::StrContains(line, '\t') ? "\t" : ",";
  }
  static bool AtSeparator(const char* p, const char* end, absl::string_view separator) {
    return absl::StartsWith(absl::string_view(p, static_cast<size_t>(end - p)), separator);
  }

  static bool Bad(const char* at, absl::string_view separator, const std::string& what,
                  LineError* error) {
    error->at = at;
    error->what = absl::StrCat("found ", what, "; a row is user", separator, "item", separator,
                               "rating and, optionally, a whole time");
    return false;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> MakeMovielensParser(const ReaderOptions& options) {
  return std::make_unique<MovielensParser>(options);
}

}  // namespace cairn
