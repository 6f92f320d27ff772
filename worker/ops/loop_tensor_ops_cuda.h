// TensorOps over an engine that runs the bodies of tensor_kernels_cuda.h (loop_ops_cuda.h lists an
// engine's methods; only ForEach is needed).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/numeric_type.h"
#include "worker/ops/tensor_kernels_cuda.h"
#include "worker/ops/tensor_ops.h"

namespace cairn {

template <typename Engine>
class LoopTensorOps final : public TensorOps {
 public:
  explicit LoopTensorOps(Engine& engine) : engine_(engine) {}

  void Fill(DType dtype, double value, size_t count, void* to) override {
    WithElement(dtype, [&](auto element) {
      using T = decltype(element);
      Run(count, kernels::FillBody<T>{kernels::Converted<T>(value), static_cast<T*>(to)});
    });
  }

  void Cast(DType from_type, const void* from, size_t count, DType to_type, void* to) override {
    WithElement(from_type, [&](auto from_element) {
      using From = decltype(from_element);
      WithElement(to_type, [&](auto to_element) {
        using To = decltype(to_element);
        Run(count,
            kernels::CastBody<From, To>{static_cast<const From*>(from), static_cast<To*>(to)});
      });
    });
  }

  void Combine(ElementOp op, DType dtype, const void* from, size_t count, void* to) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      Run(count, kernels::CombineBody<T>{op, static_cast<const T*>(from), static_cast<T*>(to)});
    });
  }

  void CombineRows(ElementOp op, DType dtype, const RowSegments& segments, size_t width,
                   const void* from, void* to) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto* const values = static_cast<const T*>(from);
      const uint64_t count = segments.count * width;
      if (segments.starts == nullptr) {
        Run(count, kernels::CombineDistinctRowsBody<T>{op, segments.rows, width, values,
                                                       static_cast<T*>(to)});
      } else {
        Run(count,
            kernels::CombineSegmentsBody<T>{op, segments.rows, segments.starts, segments.order,
                                            width, values, static_cast<T*>(to)});
      }
    });
  }

  void Divide(DType dtype, double divisor, size_t count, void* x) override {
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      Run(count, kernels::DivideBody<T>{static_cast<T>(divisor), static_cast<T*>(x)});
    });
  }

  void SumMiddle(DType dtype, const void* from, size_t outer, size_t extent, size_t inner,
                 size_t chunk, void* to) override {
    const size_t chunks = ChunksOf(extent, chunk);
    WithNumericType(dtype, [&](auto zero) {
      using T = decltype(zero);
      Run(outer * chunks * inner,
          kernels::SumMiddleBody<T>{static_cast<const T*>(from), extent, inner, chunk, chunks,
                                    static_cast<T*>(to)});
    });
  }

  void CopyBlocks(const void* from, size_t from_stride, size_t blocks, size_t bytes, void* to,
                  size_t to_stride) override {
    // With a single block the strides do not matter.
    const size_t strides = blocks > 1 ? from_stride | to_stride : 0;
    WithUnit(Address(from) | Address(to) | strides | bytes, [&](auto unit) {
      using Unit = decltype(unit);
      Run(blocks * (bytes / sizeof(Unit)),
          kernels::CopyBlocksBody<Unit>{static_cast<const Unit*>(from), from_stride / sizeof(Unit),
                                        bytes / sizeof(Unit), static_cast<Unit*>(to),
                                        to_stride / sizeof(Unit)});
    });
  }

  void TakeRows(const void* from, const int64_t* rows, size_t row_count, size_t bytes,
                void* to) override {
    WithUnit(Address(from) | Address(to) | bytes, [&](auto unit) {
      using Unit = decltype(unit);
      const size_t row = bytes / sizeof(Unit);
      Run(row_count * row, kernels::TakeRowsBody<Unit>{static_cast<const Unit*>(from), rows, row,
                                                       static_cast<Unit*>(to)});
    });
  }

 private:
  static uintptr_t Address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

  // Calls `use` with a zero of the dtype's element type.
  template <typename Use>
  static void WithElement(DType dtype, const Use& use) {
    if (dtype == DType::kFloat16) return use(kernels::Float16{});
    if (dtype == DType::kBFloat16) return use(kernels::BFloat16{});
    WithNumericType(dtype, use);
  }

  // Calls `use` with the widest unit that divides all of `numbers`, which are combined by or.
  template <typename Use>
  static void WithUnit(uintptr_t numbers, const Use& use) {
    if (numbers % 16 == 0) return use(kernels::Pack<4>{});
    if (numbers % 4 == 0) return use(uint32_t{});
    use(uint16_t{});
  }

  template <typename Body>
  void Run(uint64_t count, const Body& body) {
    if (count > 0) engine_.ForEach(count, body);
  }

  Engine& engine_;
};

}  // namespace cairn
