// Memory of one device with an element type: what collectives read and write. The memory belongs to
// the caller, is aligned to its element's size, and stays valid until the call that took it
// returns.
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
