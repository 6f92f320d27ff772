// TensorOps as loop bodies, in the style of kernels_cuda.h: a GPU runs them in parallel, the tests
// as loops on the CPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/float16.h"
#include "worker/ops/kernels_cuda.h"
#include "worker/ops/tensor_ops.h"

namespace cairn::kernels {

// The element types float16 and bfloat16.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

CAIRN_ANYWHERE inline float Widened(Float16 value) { return DecodeFloat16(value.bits); }
CAIRN_ANYWHERE inline float Widened(BFloat16 value) { return DecodeBFloat16(value.bits); }
template <typename Number>
CAIRN_ANYWHERE inline Number Widened(Number number) {
  return number;
}

template <typename To, typename From>
CAIRN_ANYWHERE inline To Converted(From from) {
  if constexpr (std::is_same_v<To, Float16>) {
    return {EncodeFloat16(static_cast<float>(Widened(from)))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {EncodeBFloat16(static_cast<float>(Widened(from)))};
  } else {
    return static_cast<To>(Widened(from));
  }
}

template <typename To>
struct FillBody {
  To value;
  To* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    to[i] = value;
  }
};

template <typename From, typename To>
struct CastBody {
  const From* from;
  To* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    to[i] = Converted<To>(from[i]);
  }
};

// `old` / `divisor`. The smallest integer by -1 wraps around to itself; a processor would trap.
template <typename T>
CAIRN_ANYWHERE inline T Quotient(T old, T divisor) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    if (divisor == -1) return static_cast<T>(Bits{0} - static_cast<Bits>(old));
  }
  return old / divisor;
}

// As std::min and std::max, these return the first argument if the two are unordered.
template <typename T>
CAIRN_ANYWHERE inline T Combined(ElementOp op, T old, T value) {
  switch (op) {
    case ElementOp::kSet: return value;
    case ElementOp::kAdd: return old + value;
    case ElementOp::kSub: return old - value;
    case ElementOp::kMul: return old * value;
    case ElementOp::kDiv: return Quotient(old, value);
    case ElementOp::kMin: return value < old ? value : old;
    case ElementOp::kMax: return old < value ? value : old;
  }
  return value;
}

template <typename T>
struct CombineBody {
  ElementOp op;
  const T* from;
  T* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    to[i] = Combined(op, to[i], from[i]);
  }
};

// i: listed row x column.
template <typename T>
struct CombineDistinctRowsBody {
  ElementOp op;
  const int64_t* rows;
  uint64_t width;
  const T* from;
  T* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    T& element = to[static_cast<uint64_t>(rows[i / width]) * width + i % width];
    element = Combined(op, element, from[i]);
  }
};

// i: segment x column. One thread does all rows of its segment, because their order matters.
template <typename T>
struct CombineSegmentsBody {
  ElementOp op;
  const int64_t* rows;
  const int64_t* starts;
  const int64_t* order;
  uint64_t width;
  const T* from;
  T* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index segment = i / width, column = i % width;
    T& element = to[static_cast<uint64_t>(rows[segment]) * width + column];
    T combined = element;
    for (int64_t n = starts[segment]; n < starts[segment + 1]; ++n) {
      combined = Combined(op, combined, from[static_cast<uint64_t>(order[n]) * width + column]);
    }
    element = combined;
  }
};

template <typename T>
struct DivideBody {
  T divisor;
  T* x;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    x[i] = Quotient(x[i], divisor);
  }
};

// i: outer x chunk of the middle x inner.
template <typename T>
struct SumMiddleBody {
  const T* from;
  uint64_t extent, inner, chunk, chunks;
  T* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const uint64_t first = i / inner % chunks * chunk;
    const uint64_t end = extent - first < chunk ? extent : first + chunk;
    const T* term = from + i / inner / chunks * extent * inner + i % inner;
    T sum = 0;
    for (uint64_t k = first; k < end; ++k) sum += term[k * inner];
    to[i] = sum;
  }
};

// Strides and blocks in Units. i: block x unit.
template <typename Unit>
struct CopyBlocksBody {
  const Unit* from;
  uint64_t from_stride, block;
  Unit* to;
  uint64_t to_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    to[i / block * to_stride + i % block] = from[i / block * from_stride + i % block];
  }
};

// i: taken row x unit.
template <typename Unit>
struct TakeRowsBody {
  const Unit* from;
  const int64_t* rows;
  uint64_t row;
  Unit* to;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    to[i] = from[static_cast<uint64_t>(rows[i / row]) * row + i % row];
  }
};

}  // namespace cairn::kernels
