// The arithmetic of tensors in the memory of one device, on which tensor_math.h is built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace cairn {

enum class ElementOp { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax };

// Rows grouped by their number. `starts` null: segment s is row s alone, without an order; the
// host's ops then allow a row several times, and take its values in their order.
struct RowSegments {
  const int64_t* rows = nullptr;  // [count]
  size_t count = 0;
  const int64_t* starts = nullptr;  // [count + 1]
  const int64_t* order = nullptr;
};

// All pointers are memory of the device, aligned to the dtype's size; counts are elements. Only
// Fill, Cast and CopyBlocks take the 16-bit types. Thread safety: none.
class TensorOps {
 public:
  virtual ~TensorOps() = default;

  // Floating-point numbers are truncated to integers as in C++, and otherwise rounded to nearest
  // even.
  virtual void Fill(DType dtype, double value, size_t count, void* to) = 0;
  // to[i] = to[i] op from[i]. Integer divisors must not be 0.
  virtual void Cast(DType from_type, const void* from, size_t count, DType to_type, void* to) = 0;
  // to[i] = to[i] op from[i]. Divisors of integers are not 0.
  virtual void Combine(ElementOp op, DType dtype, const void* from, size_t count, void* to) = 0;
  // Row rows[s] of `to` [.., width] = itself op the rows order[n] of `from`, one after the other,
  // of n in [starts[s], starts[s + 1]), for every segment s. No row is in `rows` twice.
  virtual void CombineRows(ElementOp op, DType dtype, const RowSegments& segments, size_t width,
                           const void* from, void* to) = 0;
  // x[i] /= divisor, which is converted to `dtype` first.
  virtual void Divide(DType dtype, double divisor, size_t count, void* x) = 0;
  // to [outer, ChunksOf(extent, chunk), inner] = sums of from [outer, extent, inner] over chunks of
  // its middle, in order.
  virtual void SumMiddle(DType dtype, const void* from, size_t outer, size_t extent, size_t inner,
                         size_t chunk, void* to) = 0;
  // `blocks` times `bytes` bytes, which stand from_stride and to_stride bytes apart. All three are
  // multiples of 2.
  virtual void CopyBlocks(const void* from, size_t from_stride, size_t blocks, size_t bytes,
                          void* to, size_t to_stride) = 0;
  // Row n of `to` [row_count, bytes] = row rows[n] of `from`; `bytes` in each row, a multiple of 2.
  virtual void TakeRows(const void* from, const int64_t* rows, size_t row_count, size_t bytes,
                        void* to) = 0;
};

// Chunks of `chunk` (the last may be smaller) in `extent`; at least one.
inline size_t ChunksOf(size_t extent, size_t chunk) {
  return extent <= chunk ? 1 : (extent + chunk - 1) / chunk;
}

// In host memory, at once.
TensorOps& HostTensorOps();

}  // namespace cairn
