// Tables of numbers: one column is the label, all others are features.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "worker/input/line_rows.h"
#include "worker/input/parse_number.h"
#include "worker/input/quoted_cells.h"

namespace cairn {
namespace {

bool IsGap(char c) { return c == ' '; }

class CsvParser : public LineParser {
 public:
  CsvParser(const ReaderOptions& options, char separator, int64_t cells)
      : LineParser(options),
        separator_(separator),
        cells_(cells),
        label_cell_(options.data.label_column) {
    schema_.dense_columns = cells - 1;
  }

  char quoted_separator() const override { return separator_; }

  // The line holds names if no cell is a number.
  bool IsHeader(absl::string_view line) const override {
    const char* const end = line.data() + line.size();
    for (const char* p = line.data(); p <= end;) {
      float ignored = 0;
      while (p != end && IsGap(*p)) ++p;
      if (p != end && ParseFloat(p, end, &ignored) != nullptr) return false;
      const void* next = std::memchr(p, separator_, static_cast<size_t>(end - p));
      if (next == nullptr) break;
      p = static_cast<const char*>(next) + 1;
    }
    return true;
  }

  bool Parse(absl::string_view line, Batch* batch, LineError* error) const override {
    const char* const end = line.data() + line.size();
    const char* p = line.data();
    const size_t first = batch->dense.size();
    batch->dense.resize(first + static_cast<size_t>(schema_.dense_columns));
    float* out = batch->dense.data() + first;
    float label = 0;
    for (int64_t cell = 0; cell < cells_; ++cell) {
      while (IsGap(*p)) ++p;
      float number = 0;
      const char* const start = p;
      p = ParseFloat(p, end, &number);
      while (p != nullptr && p != end && IsGap(*p)) ++p;
      if (p == nullptr || (p != end && *p != separator_)) return BadCell(start, end, cell, error);
      if (cell != label_cell_) {
        *out++ = number;
      } else {
        label = number;
        if (!labels_.Apply(&label)) {
          error->at = start;
          error->what = absl::StrCat("label ", QuoteFound(start, p), "; ", labels_.Allowed());
          return false;
        }
      }
      if ((p == end) != (cell == cells_ - 1)) return BadWidth(line, error);
      ++p;
    }
    batch->labels.push_back(label);
    ++batch->rows;
    return true;
  }

 private:
  bool BadCell(const char* at, const char* end, int64_t cell, LineError* error) const {
    const char* const stop = std::find(at, end, separator_);
    error->at = at;
    error->what = absl::StrCat("column ", cell, " is ", at == stop ? "empty" : QuoteFound(at, stop),
                               "; a cell of csv is a finite number");
    error->in_first_line = "; a first line of names has no number in any cell";
    return false;
  }

  bool BadWidth(absl::string_view line, LineError* error) const {
    error->at = line.data() + line.size();
    error->what = absl::StrCat("row has ", 1 + std::ranges::count(line, separator_),
                               " cells; the first line has ", cells_);
    return false;
  }

  const char separator_;
  const int64_t cells_;
  const int64_t label_cell_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> MakeCsvParser(const ReaderOptions& options,
                                                          absl::string_view first_line,
                                                          const std::string& path) {
  const bool tabs = absl::EndsWith(path, ".tsv") || absl::EndsWith(path, ".tsv.gz");
  const char separator = tabs ? '\t' : ',';
  QuotedLine line;
  LineError ignored;  // names may contain any bytes
  line.Read(first_line, separator, &ignored);
  const absl::string_view text = line.text();
  const int64_t cells = 1 + std::ranges::count(text, separator);
  const int64_t label = options.data.label_column;
  if (cells < 2 || label < 0 || label >= cells) {
    return InvalidArgument(path, ":1: first line has ", cells, cells == 1 ? " cell" : " cells",
                           " separated by ", tabs ? "tabs" : "commas",
                           "; csv needs a label in data.label_column ", label,
                           " (the first is 0) and at least one other column");
  }
  if (options.data.features > 0 && options.data.features != cells - 1) {
    return InvalidArgument(path, ":1: first line has ", cells - 1,
                           " columns beside the label; data.features says ", options.data.features);
  }
  return std::make_unique<CsvParser>(options, separator, cells);
}

}  // namespace cairn
