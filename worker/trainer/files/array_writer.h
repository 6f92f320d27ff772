// Writes named arrays to a file; subclasses implement the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"

namespace cairn {

// The file is atomic: it appears in Finish. Thread safety: none.
class ArrayWriter {
 public:
  virtual ~ArrayWriter() = default;

  // Adds the array `name` ("dense_0/kernel"), row-major. kInvalidArgument: data.size() does not fit
  // `shape`; a repeated name.
  virtual absl::Status Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                           absl::Span<const std::byte> data) = 0;
  // Adds `strings`, each padded with zeros to the longest.
  virtual absl::Status AddStrings(absl::string_view name,
                                  absl::Span<const std::string> strings) = 0;
  virtual absl::Status Finish() = 0;
};

// kInvalidArgument if `data_bytes` is not the size of an array of that shape.
absl::Status CheckArrayBytes(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                             size_t data_bytes);
// Concatenates `strings`, each in `width` bytes; the width is that of the longest, at least 1.
size_t StringWidth(absl::Span<const std::string> strings);
std::string PaddedStrings(absl::Span<const std::string> strings, size_t width);

}  // namespace cairn
