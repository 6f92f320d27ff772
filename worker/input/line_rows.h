// Rows of text files that have one row a line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// What a LineParser found wrong.
struct LineError {
  const char* at = nullptr;  // inside the line, or its end
  std::string what;          // "found 'x'; a column is number:value, …"
};

// Thread safety: none.
class LineParser {
 public:
  virtual ~LineParser() = default;
  virtual const Schema& schema() const = 0;
  // What separates cells that may stand in double quotes, for the file whose first line IsHeader
  // saw last; 0: quotes are text.
  virtual char quoted_separator() const { return 0; }
  // Called with the first line of each file: true where it holds names and no row. `path` tells
  // the separator where the format leaves that open.
  virtual bool IsHeader(absl::string_view line, const std::string& path) = 0;
  // Appends the row of `line` to `batch`. The byte after `line` is readable and '\r' or '\n'.
  // False: `error` is filled, and what was appended is to be thrown away.
  virtual bool Parse(absl::string_view line, Batch* batch, LineError* error) = 0;
};

// Lines of nothing but spaces are no rows. (Tabs are separators.)
inline bool IsBlankLine(absl::string_view line) {
  return line.empty() || (line.front() == ' ' && line.find_first_not_of(' ') == line.npos);
}

// Opens the first file.
absl::StatusOr<std::unique_ptr<RowSource>> MakeLineRows(std::vector<std::string> paths,
                                                        RowShard shard,
                                                        std::unique_ptr<LineParser> parser);

// libsvm: "label column:value column:value …  # comment".
absl::StatusOr<std::unique_ptr<LineParser>> MakeLibsvmParser(const ReaderOptions& options);

// Criteo's click logs: label, 13 integer features, 26 categorical ones, separated by tabs or
// commas. A number x becomes log(1 + max(x, 0)), an empty one 0. Key of token T in categorical
// column k (1 … 26): HashBytes("Ck:T"); the empty token has the key of "Ck:".
absl::StatusOr<std::unique_ptr<LineParser>> MakeCriteoParser(const ReaderOptions& options,
                                                             char separator);

// csv: numbers separated by commas (by tabs in a .tsv), one of them the label; with or without a
// line of names first. Of this and of criteo_csv, and of movielens with commas, cells may be
// quoted.
absl::StatusOr<std::unique_ptr<LineParser>> MakeCsvParser(const ReaderOptions& options,
                                                          absl::string_view first_line,
                                                          const std::string& path);

// movielens: user, item, rating and, optionally, a timestamp, separated by "::", tabs or commas;
// with or without a line of names first.
absl::StatusOr<std::unique_ptr<LineParser>> MakeMovielensParser(const ReaderOptions& options);

}  // namespace cairn
