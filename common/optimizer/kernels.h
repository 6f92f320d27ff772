// The inner loops of optimizers, compiled for every instruction set; the best one for this machine
// is chosen at run time.
#pragma once

#include <cstddef>

#include "common/optimizer/optimizer_loop.h"

namespace cairn {

inline constexpr size_t kKernelConstants = 8;  // size of UpdateStep::f32 and f64

// `constants`: UpdateStep::f32 or f64. [0] is the bound of clipvalue and [1] is weight_decay * rate
// (only `guarded` kernels read these); from [2] on the constants of the rule (formulas-inl.h).
// Pointers need no alignment; arrays do not overlap.
template <typename T>
using ApplyFunction = void (*)(const T* constants, T* value, T* const* slots, const T* gradient,
                               size_t count);

// Arguments as in Optimizer::ApplyRows.
using ApplyRowsFunction = void (*)(const float* constants, float* const* rows, size_t row_count,
                                   size_t width, const float* gradients);

// The loops of one rule. Plain functions without state.
struct Kernels {
  ApplyFunction<float> apply_f32;
  ApplyFunction<double> apply_f64;
  ApplyRowsFunction apply_rows;
};

// The kernels of `loop`, which must not be kNone.
Kernels KernelsFor(const OptimizerLoop& loop);

}  // namespace cairn
