// The arithmetic of tensors in the memory of one device, on which tensor_math.h is built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace cairn {

enum class ElementOp { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax };

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
  // Row rows[n] of `to` [.., width] becomes itself op row n of `from`, in the order of n.
  // `distinct`: no row is listed twice.
  virtual void CombineRows(ElementOp op, DType dtype, const int64_t* rows, size_t row_count,
                           bool distinct, size_t width, const void* from, void* to) = 0;
  // x[i] /= divisor, which is converted to `dtype` first.
  virtual void Divide(DType dtype, double divisor, size_t count, void* x) = 0;
  // to [outer, inner] = sums of from [outer, extent, inner] over its middle, in order.
  virtual void SumMiddle(DType dtype, const void* from, size_t outer, size_t extent, size_t inner,
                         void* to) = 0;
  // Copies `blocks` blocks of `bytes` bytes that are from_stride and to_stride bytes apart. All
  // three must be multiples of 2.
  virtual void CopyBlocks(const void* from, size_t from_stride, size_t blocks, size_t bytes,
                          void* to, size_t to_stride) = 0;
  // Row n of `to` [row_count, bytes] = row rows[n] of `from`; `bytes` in each row, a multiple of 2.
  virtual void TakeRows(const void* from, const int64_t* rows, size_t row_count, size_t bytes,
                        void* to) = 0;
};

// Ops on host memory; done when the call returns.
TensorOps& HostTensorOps();

}  // namespace cairn
