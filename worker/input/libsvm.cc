// libsvm's text format (Chang and Lin, "LIBSVM", README): a label, then ascending column:value.
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "worker/input/line_rows.h"
#include "worker/input/parse_number.h"

namespace cairn {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

class LibsvmParser : public LineParser {
 public:
  explicit LibsvmParser(const ReaderOptions& options)
      : LineParser(options),
        base_(options.data.index_base),
        limit_(options.data.index_base + options.data.features) {
    schema_.sparse_columns = options.data.features;
  }

  bool IsHeader(absl::string_view) const override { return false; }

  bool Parse(absl::string_view line, Batch* batch, LineError* error) const override {
    const char* const end = line.data() + line.size();
    const char* p = line.data();
    while (IsBlank(*p)) ++p;
    float label = 0;
    const char* const after = ParseFloat(p, end, &label);
    if (after == nullptr || (after != end && !IsBlank(*after))) return BadLabel(p, end, error);
    if (!labels_.Apply(&label)) return BadLabel(p, end, error);

    // An entry has at least the four bytes "1:1 ", so the line's size bounds the number of entries.
    const size_t first = batch->columns.size();
    const size_t room = first + static_cast<size_t>(end - after) / 4 + 1;
    batch->columns.resize(room);
    batch->values.resize(room);
    int32_t* column = batch->columns.data() + first;
    float* value = batch->values.data() + first;
    if (!ParseEntries(after, end, &column, value, error)) return false;
    const size_t size = static_cast<size_t>(column - batch->columns.data());
    batch->columns.resize(size);
    batch->values.resize(size);
    batch->labels.push_back(label);
    batch->row_offsets.push_back(static_cast<int64_t>(size));
    ++batch->rows;
    return true;
  }

 private:
  bool ParseEntries(const char* p, const char* end, int32_t** column, float* value,
                    LineError* error) const {
    int32_t* out = *column;
    int64_t last = base_ - 1;
    for (;;) {
      while (IsBlank(*p)) ++p;
      if (p >= end || *p == '#') break;
      const char* const start = p;
      int64_t number = 0;
      // Reads at most 11 digits, which cannot overflow; no column number has more than ten.
      while (IsDigit(*p) && p - start < 11) number = number * 10 + (*p++ - '0');
      if (p == start || *p != ':') return BadEntry(start, p, end, error);
      if (number <= last || number >= limit_) return BadColumn(number, last, start, error);
      const char* const after = ParseFloat(++p, end, value);
      if (after == nullptr || (after != end && !IsBlank(*after))) {
        error->at = p;
        error->what = absl::StrCat("found ", QuoteFound(p, end), "; a value is a finite number");
        return false;
      }
      p = after;
      ++value;
      *out++ = static_cast<int32_t>(number - base_);
      last = number;
    }
    *column = out;
    return true;
  }

  bool BadLabel(const char* at, const char* end, LineError* error) const {
    error->at = at;
    error->what = absl::StrCat("label ", QuoteFound(at, end), "; ", labels_.Allowed());
    return false;
  }

  bool BadEntry(const char* start, const char* stop, const char* end, LineError* error) const {
    error->at = stop > start && *stop != '-' ? stop : start;
    error->what = absl::StrCat("found ", QuoteFound(start, end),
                               "; an entry is column:value with a whole column number");
    return false;
  }

  bool BadColumn(int64_t number, int64_t last, const char* at, LineError* error) const {
    error->at = at;
    if (number < base_ || number >= limit_) {
      error->what = absl::StrCat("column ", number, " is outside [", base_, ", ", limit_ - 1,
                                 "] (data.index_base ", base_, ", data.features ",
                                 schema_.sparse_columns, ")");
    } else {
      error->what =
          absl::StrCat("column ", number, number == last ? " twice" : " after ",
                       number == last ? "" : absl::StrCat(last), "; columns of a row must ascend");
    }
    return false;
  }

  const int64_t base_;
  const int64_t limit_;  // the lowest column number that is too large
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> MakeLibsvmParser(const ReaderOptions& options) {
  if (options.data.features < 1 || options.data.features > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("data.features is ", options.data.features,
                           "; libsvm needs the number of columns, 1 to 2147483647");
  }
  if (options.data.index_base < 0 || options.data.index_base > 1) {
    return InvalidArgument("data.index_base is ", options.data.index_base,
                           "; libsvm columns start at 0 or 1");
  }
  return std::make_unique<LibsvmParser>(options);
}

}  // namespace cairn
