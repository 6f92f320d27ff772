// Rows of the input in file order: one implementation for line formats, one for idx, one for text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/input/batch.h"

namespace cairn {

// Unit `i` of the input (a row; for text a word) belongs to worker i mod `workers`.
struct RowShard {
  int64_t worker = 0;
  int64_t workers = 1;
};

// Thread safety: none.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const Schema& schema() const = 0;

  // Back to the first row, for `epoch` (text draws its pairs anew in each).
  virtual absl::Status Rewind(int64_t epoch) = 0;
  // Appends this worker's next row to `batch`, whose buffers a ClearBatch has prepared. False at
  // the end and on an error: ask status().
  virtual bool Append(Batch* batch) = 0;
  // Passes over one of this worker's rows; false as Append.
  virtual bool Skip() = 0;
  virtual const absl::Status& status() const = 0;
  // Of the epoch's input, in [0, 1], that is read; roughly: every file counts the same.
  virtual double epoch_share() const = 0;
  virtual absl::Span<const std::string> vocabulary() const { return {}; }
};

// Empties `batch` and keeps its buffers.
void ClearBatch(Batch* batch);

}  // namespace cairn
