// Rows of a stripe that were written together, as the value of one record. FORMAT.md specifies the
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/stored_rows.h"

namespace cairn {

// Collects rows of one size. Thread safety: none.
class RowSegment {
 public:
  // A segment ends at this size, so that records do not grow with their stripe. A block then fits
  // the second-level cache and memory that malloc reuses (with 1 MiB, loading took 1.3 times as
  // long).
  static constexpr size_t kFullBytes = 96 << 10;

  bool empty() const { return bytes_.empty(); }
  size_t bytes() const { return bytes_.size(); }
  // False if the row must go to the next segment, because this one is full or has rows of another
  // size.
  bool Takes(size_t row_bytes) const {
    return bytes_.empty() || (row_bytes == row_bytes_ && bytes_.size() < kFullBytes);
  }
  // Takes(row.size()) must be true. An empty row means that its key has no row here any more.
  void Add(int64_t key, absl::string_view row);
  // Completes the record's value under `key`; a view that is valid until the next call.
  // `every_row`: the segment belongs to a write of all rows of its stripe, not only of changed
  // rows.
  absl::string_view Seal(absl::string_view key, bool every_row);
  // Removes the rows and keeps their memory for the next ones.
  void Clear() { bytes_.clear(); }

 private:
  size_t row_bytes_ = 0;
  std::string bytes_;
};

// Whether a record's value belongs to a write of all rows. Accepts any bytes.
bool IsOfEveryRow(absl::string_view value);

// The rows of a record, in the order of Add; a view of `value`. kDataLoss, naming the record: bytes
// that Seal cannot have written.
absl::StatusOr<StoredRows> ReadRowSegment(absl::string_view key, absl::string_view value);

}  // namespace cairn
