#include "worker/client/routing/row_moves.h"

#include <cstring>

namespace cairn {
namespace {

// Calls `move` with common row sizes as constants, so that copying a row compiles to a few vector
// moves instead of a call of memcpy.
template <typename Move>
void WithRowBytes(size_t row_bytes, const Move& move) {
  switch (row_bytes) {
    case 0: return;  // no values; the pointers may be null
    case 4: return move([] { return size_t{4}; });
    case 8: return move([] { return size_t{8}; });
    case 16: return move([] { return size_t{16}; });
    case 32: return move([] { return size_t{32}; });
    case 64: return move([] { return size_t{64}; });
    case 128: return move([] { return size_t{128}; });
    default: return move([row_bytes] { return row_bytes; });
  }
}

}  // namespace

void GatherRows(const std::byte* from, const int32_t* order, int64_t rows, size_t row_bytes,
                std::byte* to) {
  WithRowBytes(row_bytes, [&](auto bytes) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(to + i * bytes(), from + static_cast<size_t>(order[i]) * bytes(), bytes());
    }
  });
}

void ScatterRows(const std::byte* from, const int32_t* order, int64_t rows, size_t row_bytes,
                 std::byte* to) {
  WithRowBytes(row_bytes, [&](auto bytes) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(to + static_cast<size_t>(order[i]) * bytes(), from + i * bytes(), bytes());
    }
  });
}

void AddRows(const float* from, const int32_t* order, int64_t rows, size_t width, float* to) {
  WithRowBytes(width * sizeof(float), [&](auto bytes) {
    const size_t count = bytes() / sizeof(float);
    for (int64_t i = 0; i < rows; ++i) {
      float* const sum = to + static_cast<size_t>(order[i]) * count;
      for (size_t k = 0; k < count; ++k) sum[k] += from[i * count + k];
    }
  });
}

}  // namespace cairn
