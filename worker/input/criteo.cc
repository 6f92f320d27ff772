// Criteo's click logs (Display Advertising Challenge): label, I1 … I13, C1 … C26.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "worker/input/labels.h"
#include "worker/input/line_rows.h"
#include "worker/input/parse_number.h"

namespace cairn {
namespace {

constexpr int kNumbers = 13;
constexpr int kTokens = 26;
constexpr int kCells = 1 + kNumbers + kTokens;
// Criteo's tokens have 8 characters; a much longer one is a sign of a wrong file.
constexpr size_t kMaxTokenBytes = 256;

class CriteoParser : public LineParser {
 public:
  CriteoParser(const ReaderOptions& options, char separator)
      : labels_(options.model.loss, options.data.label_base, options.model.classes),
        separator_(separator) {
    schema_.dense_columns = kNumbers;
    schema_.key_columns = kTokens;
  }

  const Schema& schema() const override { return schema_; }
  // The tab-separated logs never quote their tokens.
  char quoted_separator() const override { return separator_ == ',' ? ',' : '\0'; }

  // If the first cell of a line of the right width is no number, it is a column's name.
  bool IsHeader(absl::string_view line, const std::string&) override {
    float ignored = 0;
    const char* const end = line.data() + line.size();
    const char* cell = line.data();
    if (*cell == separator_ || ParseFloat(cell, end, &ignored) != nullptr) return false;
    return CountCells(line) == kCells;
  }

  bool Parse(absl::string_view line, Batch* batch, LineError* error) override {
    const char* const end = line.data() + line.size();
    const char* p = line.data();
    float label = 0;
    const char* after = ParseFloat(p, end, &label);
    if (after == nullptr || (after != end && *after != separator_) || !labels_.Apply(&label)) {
      const char* const stop = CellEnd(p, end);
      error->at = p;
      error->what = absl::StrCat("label ", QuoteFound(p, stop), "; ", labels_.Allowed());
      return false;
    }
    if (after == end) return BadWidth(line, error);
    p = after + 1;
    const size_t first_number = batch->dense.size();
    batch->dense.resize(first_number + kNumbers);
    p = ParseNumbers(line, p, batch->dense.data() + first_number, error);
    if (p == nullptr) return false;
    const size_t first_key = batch->keys.size();
    batch->keys.resize(first_key + kTokens);
    if (!ParseTokens(line, p, batch->keys.data() + first_key, error)) return false;
    batch->labels.push_back(label);
    ++batch->rows;
    return true;
  }

 private:
  const char* CellEnd(const char* p, const char* end) const {
    const void* const found = std::memchr(p, separator_, static_cast<size_t>(end - p));
    return found == nullptr ? end : static_cast<const char*>(found);
  }

  int CountCells(absl::string_view line) const {
    int cells = 1;
    for (const char c : line) cells += c == separator_ ? 1 : 0;
    return cells;
  }

  // Returns the start of the first token; nullptr on an error.
  const char* ParseNumbers(absl::string_view line, const char* p, float* out,
                           LineError* error) const {
    const char* const end = line.data() + line.size();
    for (int i = 0; i < kNumbers; ++i) {
      float number = 0;
      const char* after = p;
      if (p == end) {
        BadWidth(line, error);
        return nullptr;
      }
      if (*p != separator_) after = ParseFloat(p, end, &number);
      if (after == end) {
        BadWidth(line, error);
        return nullptr;
      }
      if (after == nullptr || *after != separator_) {
        error->at = p;
        error->what = absl::StrCat("I", i + 1, " is ", QuoteFound(p, CellEnd(p, end)),
                                   "; it must be a number or empty");
        return nullptr;
      }
      out[i] = number > 0 ? std::log1p(number) : 0.0f;
      p = after + 1;
    }
    return p;
  }

  bool ParseTokens(absl::string_view line, const char* p, int64_t* out, LineError* error) const {
    const char* const end = line.data() + line.size();
    char text[4 + kMaxTokenBytes] = {'C'};
    for (int i = 0; i < kTokens; ++i) {
      const char* const stop = CellEnd(p, end);
      const size_t size = static_cast<size_t>(stop - p);
      if ((stop == end) != (i == kTokens - 1)) return BadWidth(line, error);
      if (size > kMaxTokenBytes) {
        error->at = p;
        error->what =
            absl::StrCat("C", i + 1, " has ", size, " bytes; a token has at most ", kMaxTokenBytes);
        return false;
      }
      size_t prefix = 1;
      if (i >= 9) text[prefix++] = static_cast<char>('0' + (i + 1) / 10);
      text[prefix++] = static_cast<char>('0' + (i + 1) % 10);
      text[prefix++] = ':';
      std::memcpy(text + prefix, p, size);
      out[i] = static_cast<int64_t>(HashBytes(absl::string_view(text, prefix + size)));
      p = stop + 1;
    }
    return true;
  }

  bool BadWidth(absl::string_view line, LineError* error) const {
    error->at = line.data() + line.size();
    error->what = absl::StrCat("row has ", CountCells(line), " cells; Criteo's has ", kCells,
                               " (label, 13 numbers, 26 tokens) separated by ",
                               separator_ == '\t' ? "tabs" : "commas");
    return false;
  }

  const LabelRule labels_;
  const char separator_;
  Schema schema_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> MakeCriteoParser(const ReaderOptions& options,
                                                             char separator) {
  return std::make_unique<CriteoParser>(options, separator);
}

}  // namespace cairn
