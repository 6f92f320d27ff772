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

  // Goes back to the first row, for `epoch` (text draws new pairs in each epoch).
  virtual absl::Status Rewind(int64_t epoch) = 0;
  // Appends this worker's next row to `batch`, which ClearBatch has prepared. False at the end and
  // on an error: see status().
  virtual bool Append(Batch* batch) = 0;
  // Skips one of this worker's rows; returns false as Append does.
  virtual bool Skip() = 0;
  virtual const absl::Status& status() const = 0;
  // The approximate share of the epoch's input read, in [0, 1]: every file counts the same.
  virtual double epoch_share() const = 0;
  virtual absl::Span<const std::string> vocabulary() const { return {}; }
};

// Empties `batch` but keeps its buffers.
void ClearBatch(Batch* batch);

}  // namespace cairn
