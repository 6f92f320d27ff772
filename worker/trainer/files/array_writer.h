// Named arrays as a file of some format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"

namespace cairn {

// The file is whole or not there: it appears in Finish. Thread safety: none.
class ArrayWriter {
 public:
  virtual ~ArrayWriter() = default;

  // Adds the array `name` ("dense_0/kernel"), row-major. kInvalidArgument: data.size() does not fit
  // `shape`; a name twice.
  virtual absl::Status Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                           absl::Span<const std::byte> data) = 0;
  // Adds `strings`, each filled up with zeros to the longest.
  virtual absl::Status AddStrings(absl::string_view name,
                                  absl::Span<const std::string> strings) = 0;
  virtual absl::Status Finish() = 0;
};

// kInvalidArgument where `data_bytes` is not what an array of that shape takes.
absl::Status CheckArrayBytes(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                             size_t data_bytes);
// `strings` one after the other, each in `width` bytes; the width of the longest, at least 1.
size_t StringWidth(absl::Span<const std::string> strings);
std::string PaddedStrings(absl::Span<const std::string> strings, size_t width);

}  // namespace cairn
