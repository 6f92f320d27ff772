// Rows of a stripe that were written together, as the value of one record. FORMAT.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/stored_rows.h"

namespace cairn {

// Gathers rows of one size. Thread safety: none.
class RowSegment {
 public:
  // Segments end here: no record grows with its stripe, and a block that is read fits the
  // second-level cache and memory that malloc has at hand (1 MiB: loading took 1.3 times as long).
  static constexpr size_t kFullBytes = 96 << 10;

  bool empty() const { return bytes_.empty(); }
  size_t bytes() const { return bytes_.size(); }
  // False where the row must go to the next segment: this one is full, or its rows have another
  // size.
  bool Takes(size_t row_bytes) const {
    return bytes_.empty() || (row_bytes == row_bytes_ && bytes_.size() < kFullBytes);
  }
  // The row must be one that it takes. One of no bytes says that its key's row is gone from here.
  void Add(int64_t key, absl::string_view row);
  // The record's value under `key`; the segment is empty then. `every_row`: it is of a write of all
  // rows of its stripe, not of changed ones.
  std::string Seal(absl::string_view key, bool every_row);

 private:
  size_t row_bytes_ = 0;
  std::string bytes_;
};

// Whether a record's value says that it is of a write of all rows. Any bytes.
bool IsOfEveryRow(absl::string_view value);

// The rows of a record, in the order of Add; a view of `value`. kDataLoss, naming the record: bytes
// that Seal cannot have made.
absl::StatusOr<StoredRows> ReadRowSegment(absl::string_view key, absl::string_view value);

}  // namespace cairn
