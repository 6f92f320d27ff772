// Rows of a stripe in their form on disk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "storage/bytes.h"

namespace cairn {

// A view of rows of one size, back to back, each preceded by its key (8 bytes, little-endian).
class StoredRows {
 public:
  // `bytes`: a whole number of rows.
  StoredRows(absl::string_view bytes, size_t row_bytes) : bytes_(bytes), row_bytes_(row_bytes) {}

  size_t size() const { return bytes_.size() / stride(); }
  // Bytes of a row without its key.
  size_t row_bytes() const { return row_bytes_; }
  int64_t key(size_t i) const {
    return static_cast<int64_t>(LoadLittleEndian<uint64_t>(bytes_.data() + i * stride()));
  }
  absl::string_view row(size_t i) const {
    return bytes_.substr(i * stride() + kKeyBytes, row_bytes_);
  }
  // Keys and rows.
  absl::string_view bytes() const { return bytes_; }

  static constexpr size_t kKeyBytes = sizeof(uint64_t);

 private:
  size_t stride() const { return kKeyBytes + row_bytes_; }

  absl::string_view bytes_;
  size_t row_bytes_;
};

}  // namespace cairn
