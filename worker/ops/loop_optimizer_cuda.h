// Optimizers' updates over an engine that runs the bodies of optimizer_kernels_cuda.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/optimizer_kernels_cuda.h"

namespace cairn {

// DeviceQueue's two calls. `Engine` is that of LoopOps, and a DeviceQueue.
template <typename Engine>
class LoopOptimizer {
 public:
  LoopOptimizer(Engine& engine, const Optimizer& optimizer, const UpdateStep& step)
      : engine_(engine), optimizer_(optimizer), step_(step) {}

  void Apply(DType dtype, void* value, void* const* slots, const void* gradient, size_t count) {
    if (count == 0 || optimizer_.IsNoOp(step_)) return;
    const Work work{value, slots, gradient, nullptr, count, 0};
    Dispatch(dtype, work);
  }

  void ApplyToRows(DType dtype, void* value, void* const* slots, const int64_t* rows,
                   size_t row_count, size_t width, const void* gradients) {
    if (row_count * width == 0 || optimizer_.IsNoOp(step_)) return;
    const Work work{value, slots, gradients, rows, row_count, width};
    Dispatch(dtype, work);
  }

 private:
  static constexpr size_t kPackBytes = 16;  // the widest load

  struct Work {
    void* value;
    void* const* slots;
    const void* gradient;
    const int64_t* rows;  // null: all elements
    size_t count;         // elements, or rows
    size_t width;         // of rows
  };

  void Dispatch(DType dtype, const Work& work) {
    if (dtype == DType::kFloat32) return Choose(step_.f32.data(), work);
    if (dtype == DType::kFloat64) return Choose(step_.f64.data(), work);
    engine_.Fail(absl::InvalidArgumentError(
        absl::StrCat("optimizer '", optimizer_.config().type, "': found a variable of ",
                     DTypeName(dtype), "; GPUs update float32 and float64")));
  }

  template <typename T>
  void Choose(const T* constants, const Work& work) {
    kernels::VisitRule(optimizer_.loop(), [&](auto rule) { Run<decltype(rule)>(constants, work); });
  }

  static bool IsAligned(const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
  }

  template <class Rule, typename T>
  void Run(const T* constants, const Work& work) {
    constexpr int kPack = kPackBytes / sizeof(T);
    using Arrays = kernels::OptimizerArrays<T>;
    static_assert(Arrays::kConstants == UpdateStep::kConstants);
    Arrays at{};
    std::copy_n(constants, UpdateStep::kConstants, at.constants);
    at.guarded = optimizer_.loop().guarded;
    at.value = static_cast<T*>(work.value);
    at.gradient = static_cast<const T*>(work.gradient);
    bool aligned = IsAligned(work.value) && IsAligned(work.gradient);
    for (int s = 0; s < Rule::kSlots; ++s) {
      at.slots[s] = static_cast<T*>(work.slots[s]);
      aligned = aligned && IsAligned(work.slots[s]);
    }
    if (work.rows == nullptr) {
      RunElements<Rule, kPack>(at, work, aligned);
    } else {
      RunRows<Rule, kPack>(at, work, aligned);
    }
  }

  template <class Rule, int kPack, typename T>
  void RunElements(const kernels::OptimizerArrays<T>& at, const Work& work, bool aligned) {
    if (aligned) {
      engine_.ForEach((work.count + kPack - 1) / kPack,
                      kernels::UpdateElementsBody<Rule, kPack, T>{at, work.count});
    } else {
      engine_.ForEach(work.count, kernels::UpdateElementsBody<Rule, 1, T>{at, work.count});
    }
  }

  template <class Rule, int kPack, typename T>
  void RunRows(const kernels::OptimizerArrays<T>& at, const Work& work, bool aligned) {
    if (aligned && work.width % kPack == 0) {
      const uint64_t packs = work.width / kPack;
      engine_.ForEach(work.count * packs,
                      kernels::UpdateRowsBody<Rule, kPack, T>{at, work.rows, packs});
    } else {
      engine_.ForEach(work.count * work.width,
                      kernels::UpdateRowsBody<Rule, 1, T>{at, work.rows, work.width});
    }
  }

  Engine& engine_;
  const Optimizer& optimizer_;
  const UpdateStep& step_;
};

}  // namespace cairn
