// TensorOps in host memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/numeric_type.h"
#include "worker/ops/tensor_kernels_cuda.h"
#include "worker/ops/tensor_ops.h"

namespace cairn {
namespace {

template <typename T>
void CombineSpan(ElementOp op, const T* values, size_t count, T* to) {
  // One loop per operation, so that the compiler vectorizes each.
  switch (op) {
    case ElementOp::kSet: std::copy_n(values, count, to); return;
    case ElementOp::kAdd:
      for (size_t i = 0; i < count; ++i) to[i] += values[i];
      return;
    case ElementOp::kSub:
      for (size_t i = 0; i < count; ++i) to[i] -= values[i];
      return;
    default:
      for (size_t i = 0; i < count; ++i) to[i] = kernels::Combined(op, to[i], values[i]);
  }
}

class HostOps final : public TensorOps {
 public:
  void Fill(DType dtype, double value, size_t count, void* to) override {
    if (Is16Bit(dtype)) {
      const std::vector<float> values(count, static_cast<float>(value));
      FromFloat32(dtype, values.data(), count, to);
      return;
    }
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(static_cast<T*>(to), count, static_cast<T>(value));
    });
  }

  void Cast(DType from_type, const void* from, size_t count, DType to_type, void* to) override {
    if (from_type == to_type) {
      CopyBlocks(from, 0, 1, count * DTypeBytes(to_type), to, 0);
    } else if (Is16Bit(from_type)) {
      std::vector<float> floats(count);
      ToFloat32(from_type, from, count, floats.data());
      CastNumbers(floats.data(), count, to_type, to);
    } else {
      WithNumericType(from_type, [&](auto zero) {
        CastNumbers(static_cast<const decltype(zero)*>(from), count, to_type, to);
      });
    }
  }

  void Combine(ElementOp op, DType dtype, const void* from, size_t count, void* to) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      CombineSpan(op, static_cast<const T*>(from), count, static_cast<T*>(to));
    });
  }

  void CombineRows(ElementOp op, DType dtype, const RowSegments& segments, size_t width,
                   const void* from, void* to) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (size_t s = 0; s < segments.count; ++s) {
        T* const row = static_cast<T*>(to) + static_cast<size_t>(segments.rows[s]) * width;
        const bool grouped = segments.starts != nullptr;
        const auto first = grouped ? segments.starts[s] : static_cast<int64_t>(s);
        const auto end = grouped ? segments.starts[s + 1] : first + 1;
        for (int64_t n = first; n < end; ++n) {
          const auto at = static_cast<size_t>(grouped ? segments.order[n] : n);
          CombineSpan(op, static_cast<const T*>(from) + at * width, width, row);
        }
      }
    });
  }

  void Divide(DType dtype, double divisor, size_t count, void* x) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      auto* const values = static_cast<T*>(x);
      const auto by = static_cast<T>(divisor);
      for (size_t i = 0; i < count; ++i) values[i] = kernels::Quotient(values[i], by);
    });
  }

  void SumMiddle(DType dtype, const void* from, size_t outer, size_t extent, size_t inner,
                 size_t chunk, void* to) override {
    const size_t chunks = ChunksOf(extent, chunk);
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto* terms = static_cast<const T*>(from);
      auto* sums = static_cast<T*>(to);
      std::fill_n(sums, outer * chunks * inner, T{0});
      for (size_t o = 0; o < outer; ++o, sums += chunks * inner) {
        for (size_t k = 0; k < extent; ++k, terms += inner) {
          CombineSpan(ElementOp::kAdd, terms, inner, sums + k / chunk * inner);
        }
      }
    });
  }

  void CopyBlocks(const void* from, size_t from_stride, size_t blocks, size_t bytes, void* to,
                  size_t to_stride) override {
    if (bytes == 0) return;
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    for (size_t b = 0; b < blocks; ++b) {
      std::memcpy(target + b * to_stride, source + b * from_stride, bytes);
    }
  }

  void TakeRows(const void* from, const int64_t* rows, size_t row_count, size_t bytes,
                void* to) override {
    if (bytes == 0) return;
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    for (size_t n = 0; n < row_count; ++n, target += bytes) {
      std::memcpy(target, source + static_cast<size_t>(rows[n]) * bytes, bytes);
    }
  }

 private:
  template <typename From>
  static void CastNumbers(const From* from, size_t count, DType to_type, void* to) {
    if (Is16Bit(to_type)) {
      const std::vector<float> floats(from, from + count);
      FromFloat32(to_type, floats.data(), count, to);
      return;
    }
    WithNumericType(to_type, [&](auto zero) {
      using To = decltype(zero);
      auto* const numbers = static_cast<To*>(to);
      for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<To>(from[i]);
    });
  }
};

}  // namespace

TensorOps& HostTensorOps() {
  static HostOps* const ops = new HostOps();
  return *ops;
}

}  // namespace cairn
