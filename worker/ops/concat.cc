#include "worker/ops/concat.h"

#include <cstddef>
#include <cstring>

namespace cairn {

void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width, float* to,
                 int64_t to_stride) {
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  if (bytes == 0) return;
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, bytes);
  }
}

}  // namespace cairn
