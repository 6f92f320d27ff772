// Copies the values of one row.
#pragma once

#include <cstddef>
#include <cstring>

namespace cairn {

inline void CopyFloats(const float* from, size_t count, float* to) {
  // For the widths of common tables the compiler unrolls the copies.
  switch (count) {
    case 8: std::memcpy(to, from, 8 * sizeof(float)); return;
    case 16: std::memcpy(to, from, 16 * sizeof(float)); return;
    case 32: std::memcpy(to, from, 32 * sizeof(float)); return;
    case 64: std::memcpy(to, from, 64 * sizeof(float)); return;
    default: std::memcpy(to, from, count * sizeof(float)); return;
  }
}

}  // namespace cairn
