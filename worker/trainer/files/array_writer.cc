#include "worker/trainer/files/array_writer.h"

#include <algorithm>

#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"

namespace cairn {

absl::Status CheckArrayBytes(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                             size_t data_bytes) {
  ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  const size_t wanted = static_cast<size_t>(count) * DTypeBytes(dtype);
  if (data_bytes == wanted) return absl::OkStatus();
  return InvalidArgument("array '", name, "' of shape ", ShapeText(shape), " takes ", wanted,
                         " bytes, got ", data_bytes);
}

size_t StringWidth(absl::Span<const std::string> strings) {
  size_t width = 1;
  for (const std::string& text : strings) width = std::max(width, text.size());
  return width;
}

std::string PaddedStrings(absl::Span<const std::string> strings, size_t width) {
  std::string bytes;
  bytes.reserve(strings.size() * width);
  for (const std::string& text : strings) {
    bytes += text;
    bytes.append(width - text.size(), '\0');
  }
  return bytes;
}

}  // namespace cairn
