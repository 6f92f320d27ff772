// The optimizers' inner loops, compiled for every instruction set and chosen for this machine's.
#pragma once

#include <cstddef>

#include "common/optimizer/optimizer_loop.h"

namespace cairn {

inline constexpr size_t kKernelConstants = 8;  // of an UpdateStep, for one type of element

// `constants` is UpdateStep::f32 or f64: [0] the bound of clipvalue, [1] weight_decay * rate (both
// read by the `guarded` kernels only), from [2] on the rule's own (formulas-inl.h).
// Pointers need no alignment; arrays do not overlap.
template <typename T>
using ApplyFunction = void (*)(const T* constants, T* value, T* const* slots, const T* gradient,
                               size_t count);

// Rows as Optimizer::ApplyRows has them.
using ApplyRowsFunction = void (*)(const float* constants, float* const* rows, size_t row_count,
                                   size_t width, const float* gradients);

// One rule's loops. Plain functions without state.
struct Kernels {
  ApplyFunction<float> apply_f32;
  ApplyFunction<double> apply_f64;
  ApplyRowsFunction apply_rows;
};

// Those of `loop`, which is not kNone.
Kernels KernelsFor(const OptimizerLoop& loop);

}  // namespace cairn
