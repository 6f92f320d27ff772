// Optimizers' updates over an engine that runs the bodies of optimizer_kernels_cuda.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/optimizer_kernels_cuda.h"

namespace cairn {

// The two ApplyOptimizer calls of DeviceQueue. `Engine` is that of LoopOps, and a DeviceQueue.
template <typename Engine>
class LoopOptimizer {
 public:
  LoopOptimizer(Engine& engine, const Optimizer& optimizer, const UpdateStep& step)
      : engine_(engine), optimizer_(optimizer), step_(step) {}

  void Apply(DType dtype, absl::Span<const VariableArrays> variables) {
    Dispatch(dtype, [&](auto rule, const auto& constants) {
      using Rule = decltype(rule);
      RunElements<Rule, PackOf<decltype(constants)>>(constants, variables, /*aligned=*/true);
      RunElements<Rule, 1>(constants, variables, /*aligned=*/false);
    });
  }

  void ApplyToRows(DType dtype, const VariableArrays& variable, const int64_t* rows,
                   size_t row_count, size_t width) {
    if (row_count * width == 0) return;
    Dispatch(dtype, [&](auto rule, const auto& constants) {
      using Rule = decltype(rule);
      constexpr int kPack = PackOf<decltype(constants)>;
      if (IsAligned<Rule>(variable) && width % kPack == 0) {
        RunRows<Rule, kPack>(constants, variable, rows, row_count, width);
      } else {
        RunRows<Rule, 1>(constants, variable, rows, row_count, width);
      }
    });
  }

 private:
  static constexpr size_t kPackBytes = 16;  // the widest load

  template <typename T>
  using Constants = kernels::OptimizerConstants<T>;

  // The number of elements, of the type of these constants, that one load moves.
  template <typename ConstantsReference>
  static constexpr int PackOf = kPackBytes / sizeof(std::declval<ConstantsReference>().values[0]);

  // Calls `run` with the optimizer's rule and the constants of the dtype.
  template <typename Run>
  void Dispatch(DType dtype, const Run& run) {
    if (optimizer_.IsNoOp(step_)) return;
    if (dtype == DType::kFloat32) return Choose(step_.f32, run);
    if (dtype == DType::kFloat64) return Choose(step_.f64, run);
    engine_.Fail(absl::InvalidArgumentError(
        absl::StrCat("optimizer '", optimizer_.config().type, "': found a variable of ",
                     DTypeName(dtype), "; GPUs update float32 and float64")));
  }

  template <typename T, typename Run>
  void Choose(const std::array<T, UpdateStep::kConstants>& values, const Run& run) {
    static_assert(Constants<T>::kCount == UpdateStep::kConstants);
    Constants<T> constants{.values = {}, .guarded = optimizer_.loop().guarded};
    std::copy(values.begin(), values.end(), constants.values);
    kernels::VisitRule(optimizer_.loop(), [&](auto rule) { run(rule, constants); });
  }

  template <class Rule>
  static bool IsAligned(const VariableArrays& variable) {
    const auto is = [](const void* pointer) {
      return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
    };
    return is(variable.value) && is(variable.gradient) &&
           std::all_of(variable.slots, variable.slots + Rule::kSlots, is);
  }

  template <class Rule, typename T>
  static kernels::OptimizerArrays<T> ArraysOf(const VariableArrays& variable) {
    kernels::OptimizerArrays<T> arrays{};
    arrays.value = static_cast<T*>(variable.value);
    arrays.gradient = static_cast<const T*>(variable.gradient);
    for (int s = 0; s < Rule::kSlots; ++s) arrays.slots[s] = static_cast<T*>(variable.slots[s]);
    return arrays;
  }

  // Updates the variables whose arrays are all aligned, or the others.
  template <class Rule, int kPack, typename T>
  void RunElements(const Constants<T>& constants, absl::Span<const VariableArrays> variables,
                   bool aligned) {
    using Body = kernels::UpdateElementsBody<Rule, kPack, T>;
    static_assert(sizeof(Body) <= 4096 - sizeof(uint64_t));
    Body body{};
    body.constants = constants;
    uint64_t packs = 0;
    const auto launch = [&] {
      if (packs > 0) engine_.ForEach(packs, body);
      body.variables = 0;
      packs = 0;
    };
    for (const VariableArrays& variable : variables) {
      if (variable.count == 0 || IsAligned<Rule>(variable) != aligned) continue;
      packs += (variable.count + kPack - 1) / kPack;
      body.at[body.variables] = ArraysOf<Rule, T>(variable);
      body.counts[body.variables] = variable.count;
      body.ends[body.variables] = packs;
      if (++body.variables == kernels::kVariablesAtOnce) launch();
    }
    launch();
  }

  template <class Rule, int kPack, typename T>
  void RunRows(const Constants<T>& constants, const VariableArrays& variable, const int64_t* rows,
               size_t row_count, size_t width) {
    const uint64_t packs = width / kPack;
    engine_.ForEach(row_count * packs, kernels::UpdateRowsBody<Rule, kPack, T>{
                                           constants, ArraysOf<Rule, T>(variable), rows, packs});
  }

  Engine& engine_;
  const Optimizer& optimizer_;
  const UpdateStep& step_;
};

}  // namespace cairn
