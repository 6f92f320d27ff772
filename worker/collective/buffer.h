// Memory of one device with an element type, which collectives read and write. The caller owns the
// memory, aligns it to the element size, and keeps it valid until the call returns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace cairn {

struct ConstBuffer {
  DType dtype = DType::kFloat32;
  const void* data = nullptr;
  int64_t count = 0;  // elements; 0 allows data == nullptr

  size_t bytes() const { return static_cast<size_t>(count) * DTypeBytes(dtype); }
};

struct MutableBuffer {
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  int64_t count = 0;  // elements; 0 allows data == nullptr

  size_t bytes() const { return static_cast<size_t>(count) * DTypeBytes(dtype); }
  operator ConstBuffer() const { return {dtype, data, count}; }  // NOLINT: a view of the same
};

}  // namespace cairn
