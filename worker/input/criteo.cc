// Criteo's click logs (Display Advertising Challenge): label, I1 … I13, C1 … C26.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "worker/input/line_rows.h"
#include "worker/input/parse_number.h"

namespace cairn {
namespace {

constexpr int kNumbers = 13;
constexpr int kTokens = 26;
constexpr int kCells = 1 + kNumbers + kTokens;
// Criteo's tokens have 8 characters; a much longer one is a sign of a wrong file.
constexpr size_t kMaxTokenBytes = 256;
// Most numbers are small integers, whose logarithms a table holds.
constexpr int kTabledNumbers = 1024;

// Whether a key identifies its column too.
bool NamesColumns(const ReaderOptions& options) {
  return options.model.tables != "shared_vocabulary";
}

// FNV-1a after "C1:" … "C26:", with which the hashed text of each column's tokens begins if it
// `names` the column.
std::array<uint64_t, kTokens> ColumnPrefixes(bool names) {
  std::array<uint64_t, kTokens> prefixes;
  for (size_t i = 0; i < kTokens; ++i) {
    prefixes[i] = names ? FnvAfter(kFnvStart, absl::StrCat("C", i + 1, ":")) : kFnvStart;
  }
  return prefixes;
}

std::array<float, kTabledNumbers> Logarithms() {
  std::array<float, kTabledNumbers> logarithms;
  for (size_t i = 0; i < kTabledNumbers; ++i) logarithms[i] = std::log1p(static_cast<float>(i));
  return logarithms;
}

// True if one of the eight bytes at `p` is `byte`.
bool HasByte(const char* p, char byte) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  word ^= 0x0101010101010101ULL * static_cast<unsigned char>(byte);
  return ((word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL) != 0;
}

class CriteoParser : public LineParser {
 public:
  CriteoParser(const ReaderOptions& options, char separator)
      : LineParser(options),
        separator_(separator),
        prefixes_(ColumnPrefixes(NamesColumns(options))) {
    schema_.dense_columns = kNumbers;
    schema_.key_columns = kTokens;
    schema_.keys_name_columns = NamesColumns(options);
  }

  // The tab-separated logs never quote their tokens.
  char quoted_separator() const override { return separator_ == ',' ? ',' : '\0'; }

  // If the first cell of a line of the right width is no number, it is a column's name.
  bool IsHeader(absl::string_view line) const override {
    float ignored = 0;
    const char* const end = line.data() + line.size();
    const char* cell = line.data();
    while (*cell == ' ') ++cell;  // a blank before a number makes the row malformed, and no name
    if (*cell == separator_ || ParseFloat(cell, end, &ignored) != nullptr) return false;
    return CountCells(line) == kCells;
  }

  bool Parse(absl::string_view line, Batch* batch, LineError* error) const override {
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

  float Logarithm(float number) const {
    if (!(number > 0)) return 0;
    const int rounded = number < kTabledNumbers ? static_cast<int>(number) : 0;
    if (static_cast<float>(rounded) == number) return logarithms_[static_cast<size_t>(rounded)];
    return std::log1p(number);
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
      out[i] = Logarithm(number);
      p = after + 1;
    }
    return p;
  }

  bool ParseTokens(absl::string_view line, const char* p, int64_t* out, LineError* error) const {
    const char* const end = line.data() + line.size();
    for (int i = 0; i < kTokens; ++i) {
      // Without a search and a loop for the tokens of eight bytes, which almost all are.
      const bool usual = end - p > 8 && p[8] == separator_ && !HasByte(p, separator_);
      const char* const stop = usual ? p + 8 : CellEnd(p, end);
      const size_t size = static_cast<size_t>(stop - p);
      if ((stop == end) != (i == kTokens - 1)) return BadWidth(line, error);
      if (size > kMaxTokenBytes) {
        error->at = p;
        error->what =
            absl::StrCat("C", i + 1, " has ", size, " bytes; a token has at most ", kMaxTokenBytes);
        return false;
      }
      const uint64_t hash = FnvAfter(prefixes_[static_cast<size_t>(i)],
                                     usual ? absl::string_view(p, 8) : absl::string_view(p, size));
      out[i] = static_cast<int64_t>(MixBits(hash));
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

  const char separator_;
  const std::array<uint64_t, kTokens> prefixes_;
  const std::array<float, kTabledNumbers> logarithms_ = Logarithms();
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> MakeCriteoParser(const ReaderOptions& options,
                                                             char separator) {
  return std::make_unique<CriteoParser>(options, separator);
}

}  // namespace cairn
