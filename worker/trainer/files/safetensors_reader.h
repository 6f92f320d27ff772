// Reads arrays from .safetensors files, Cairn's and other programs'. safetensors_writer.h cites the
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/descriptor.h"
#include "common/dtype.h"
#include "common/shape.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class SafetensorsReader {
 public:
  struct Array {
    std::string type;  // as in the file: "F32", or a type that DType lacks
    Shape shape;
    uint64_t begin = 0;  // offset in the file
    uint64_t bytes = 0;
  };

  // kNotFound, kPermissionDenied, …: the file cannot be read. kInvalidArgument: it is no complete
  // .safetensors file; says why.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);

  const std::map<std::string, Array>& arrays() const { return arrays_; }
  // kNotFound: no array of that name; lists similar names. kInvalidArgument: it has another type or
  // shape.
  absl::StatusOr<Array> Find(absl::string_view name, DType dtype, const Shape& shape) const;
  // Reads the array's elements, little-endian, row-major. `out` has array.bytes.
  absl::Status Read(const Array& array, absl::Span<std::byte> out) const;

 private:
  SafetensorsReader(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status ReadHeader();
  absl::Status ReadAt(uint64_t offset, void* to, size_t bytes) const;
  absl::Status Malformed(absl::string_view what) const;

  const std::string path_;
  const Descriptor file_;
  std::map<std::string, Array> arrays_;
};

}  // namespace cairn
