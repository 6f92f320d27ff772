// Rows of the input in file order: one implementation for line formats, one for idx, one for text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/input/batch.h"

namespace cairn {

// Unit `i` of the input (a row; for text a word) belongs to worker i mod `workers`.
struct RowShard {
  int64_t worker = 0;
  int64_t workers = 1;
};

// Where a row stands, for errors.
struct RowPlace {
  size_t file = 0;  // index among this worker's files
  int64_t at = 0;   // line number, or position in the file
};

// Reads rows in their order, and decodes them in any order. Thread safety: Decode may run in
// several threads, also beside one other call; apart from that, none.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const Schema& schema() const = 0;

  // Goes back to the first row, for `epoch` (text draws new pairs in each epoch).
  virtual absl::Status Rewind(int64_t epoch) = 0;
  // Appends the bytes of this worker's next row to `bytes`, as the input has them. False at the end
  // and on an error: see status().
  virtual bool Next(std::string* bytes, RowPlace* place) = 0;
  virtual const absl::Status& status() const = 0;
  // Appends the row that Next read to `batch`, which ClearBatch has prepared. kInvalidArgument: the
  // row is malformed; `batch` must be discarded.
  virtual absl::Status Decode(absl::string_view bytes, const RowPlace& place,
                              Batch* batch) const = 0;
  // The approximate share of the epoch's input read, in [0, 1]: every file counts the same.
  virtual double epoch_share() const = 0;
  virtual absl::Span<const std::string> vocabulary() const { return {}; }
  // Whether every epoch has the same number of rows.
  virtual bool same_rows_in_epochs() const { return true; }
};

// Empties `batch` but keeps its buffers.
void ClearBatch(Batch* batch);

}  // namespace cairn
