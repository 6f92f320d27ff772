// Cells in double quotes (RFC 4180), as spreadsheets and data frames write them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/input/line_rows.h"

namespace cairn {

// Removes the quotes from a line's cells, for parsers that do not handle quotes: `"1","a ""b"""`
// becomes `1,a "b"`. A separator in quotes becomes a space, and is an error. Spaces around a quoted
// cell are dropped. A quote inside a cell that does not begin with one is ordinary text. Thread
// safety: none.
class QuotedLine {
 public:
  // True: `text()` has every cell. False: `error` says what no parser can read; text() still has
  // the right number of cells.
  bool Read(absl::string_view line, char separator, LineError* error);

  // Without a line end; the byte after it is '\n'. Valid until the next Read.
  absl::string_view text() const { return {text_.data(), text_.size() - 1}; }
  // The position in the line of the byte at `at` of text(); both may be one past the end.
  const char* Origin(const char* at) const;

 private:
  void ReadQuoted(LineError* error);
  void Put(const char* from, char c);

  absl::string_view line_;
  char separator_ = ',';
  const char* next_ = nullptr;
  std::string text_ = "\n";
  std::vector<const char*> origins_;  // origin of each byte of text_
};

}  // namespace cairn
