// The arithmetic of tensors in the memory of one device, on which tensor_math.h is built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace cairn {

enum class ElementOp { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax };

// Rows grouped into segments, one for each distinct row. If `starts` is null, segment s has just
// row s, and there is no `order`; ops in host memory then accept repeated rows and take values in
// their order.
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

  // Fill: to[i] = value. Cast: to[i] = from[i]. Conversions to integers truncate as in C++; all
  // others round to nearest even. Those from float64 and integers to 16-bit types round twice, as
  // TensorFlow's do: first to float32.
  virtual void Fill(DType dtype, double value, size_t count, void* to) = 0;
  virtual void Cast(DType from_type, const void* from, size_t count, DType to_type, void* to) = 0;
  // to[i] = to[i] op from[i]. Integer divisors must not be 0.
  virtual void Combine(ElementOp op, DType dtype, const void* from, size_t count, void* to) = 0;
  // For every segment s, combines row rows[s] of `to` [.., width] with the rows order[n] of `from`,
  // for n in [starts[s], starts[s + 1]), one after the other: row = row op from. No row is in
  // `rows` twice.
  virtual void CombineRows(ElementOp op, DType dtype, const RowSegments& segments, size_t width,
                           const void* from, void* to) = 0;
  // x[i] /= divisor. The divisor is first converted to `dtype`.
  virtual void Divide(DType dtype, double divisor, size_t count, void* x) = 0;
  // to [outer, ChunksOf(extent, chunk), inner] = the sums of from [outer, extent, inner] over
  // chunks of the middle axis, added in order.
  virtual void SumMiddle(DType dtype, const void* from, size_t outer, size_t extent, size_t inner,
                         size_t chunk, void* to) = 0;
  // Copies `blocks` blocks of `bytes` bytes, which are from_stride and to_stride bytes apart.
  // `bytes` and both strides are multiples of 2.
  virtual void CopyBlocks(const void* from, size_t from_stride, size_t blocks, size_t bytes,
                          void* to, size_t to_stride) = 0;
  // Row n of `to` [row_count, bytes] = row rows[n] of `from`. `bytes` is the size of a row, a
  // multiple of 2.
  virtual void TakeRows(const void* from, const int64_t* rows, size_t row_count, size_t bytes,
                        void* to) = 0;
};

// The number of chunks of `chunk` elements (the last may be smaller) in `extent`; at least one.
inline size_t ChunksOf(size_t extent, size_t chunk) {
  return extent <= chunk ? 1 : (extent + chunk - 1) / chunk;
}

// Computes in host memory; an op is done when its call returns.
TensorOps& HostTensorOps();

}  // namespace cairn
