// Rows of text files with one row on each line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/labels.h"
#include "worker/input/reader_options.h"
#include "worker/input/row_source.h"

namespace cairn {

// An error that a LineParser found.
struct LineError {
  const char* at = nullptr;  // position in the line, or its end
  std::string what;          // "found 'x'; a column is number:value, …"
  // Follows `what` if the line is the first of its file, which could have been names.
  absl::string_view in_first_line;
};

// Thread safety: any number of threads.
class LineParser {
 public:
  virtual ~LineParser() = default;
  const Schema& schema() const { return schema_; }
  // The separator of cells that may stand in double quotes; 0: quotes are ordinary text.
  virtual char quoted_separator() const { return 0; }
  // Whether the first line of a file holds names instead of a row.
  virtual bool IsHeader(absl::string_view line) const = 0;
  // Appends the row of `line` to `batch`. The byte after `line` is readable and '\r' or '\n'.
  // False: `error` is set, and the appended data must be discarded.
  virtual bool Parse(absl::string_view line, Batch* batch, LineError* error) const = 0;

 protected:
  explicit LineParser(const ReaderOptions& options) : labels_(options) {}

  const LabelRule labels_;
  Schema schema_;  // the constructors of subclasses fill it
};

// Lines that contain only spaces are not rows. (Tabs are separators.)
inline bool IsBlankLine(absl::string_view line) {
  return line.empty() || (line.front() == ' ' && line.find_first_not_of(' ') == line.npos);
}

// Opens the first file.
absl::StatusOr<std::unique_ptr<RowSource>> MakeLineRows(std::vector<std::string> paths,
                                                        RowShard shard,
                                                        std::unique_ptr<LineParser> parser);

// libsvm: "label column:value column:value …  # comment".
absl::StatusOr<std::unique_ptr<LineParser>> MakeLibsvmParser(const ReaderOptions& options);

// Criteo's click logs: label, 13 integer features, 26 categorical features, separated by tabs or
// commas. A number x becomes log(1 + max(x, 0)), an empty number 0. The key of token T in
// categorical column k (1 … 26) is HashBytes("Ck:T"), for an empty token HashBytes("Ck:").
absl::StatusOr<std::unique_ptr<LineParser>> MakeCriteoParser(const ReaderOptions& options,
                                                             char separator);

// csv: numbers separated by commas (in a .tsv by tabs), one of them the label; an optional first
// line holds names. Cells may be quoted here, in criteo_csv, and in movielens with commas.
absl::StatusOr<std::unique_ptr<LineParser>> MakeCsvParser(const ReaderOptions& options,
                                                          absl::string_view first_line,
                                                          const std::string& path);

// movielens: user, item, rating and, optionally, a timestamp, separated by "::", tabs or commas; an
// optional first line holds names.
absl::StatusOr<std::unique_ptr<LineParser>> MakeMovielensParser(const ReaderOptions& options);

}  // namespace cairn
