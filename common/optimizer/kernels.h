// The optimizers' inner loops, compiled for every instruction set and chosen for this machine's.
#pragma once

#include <cstddef>

#include "common/optimizer/optimizer_loop.h"

namespace cairn {

// `constants` is UpdateStep::f32 or f64: [0] the bound of clipvalue, [1] weight_decay * rate (both
// read by the `guarded` kernels only), from [2] on the rule's own, named beside each function.
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

// `guarded`: clip the gradient and decay the weights first.

// rate.
Kernels SgdKernels(bool guarded);
// rate, momentum. Slot: momentum.
Kernels MomentumKernels(bool nesterov, bool guarded);
// rate, epsilon. Slot: accumulator.
Kernels AdagradKernels(bool guarded);
// rate, rho, 1 - rho, epsilon. Slots: accumulated_grad, accumulated_delta_var.
Kernels AdadeltaKernels(bool guarded);
// rate, rho, 1 - rho, epsilon, momentum. Slots: velocity, momentum (if any), average_gradient (if
// centered).
Kernels RmspropKernels(bool momentum, bool centered, bool guarded);
// alpha, 1 - beta_1, 1 - beta_2, epsilon. Slots: momentum, velocity, velocity_hat (if amsgrad).
Kernels AdamKernels(bool amsgrad, bool guarded);
// rate / (1 - beta_1^t), 1 - beta_1, beta_2, epsilon. Slots: momentum, norm.
Kernels AdamaxKernels(bool guarded);
// rate * u_next / (1 - u_product_next), rate * (1 - u) / (1 - u_product), 1 - beta_1, 1 - beta_2,
// 1 / (1 - beta_2^t), epsilon. Slots: momentum, velocity.
Kernels NadamKernels(bool guarded);
// rate, beta_1, 1 - beta_1, beta_2, 1 - beta_2. Slot: momentum.
Kernels LionKernels(bool guarded);
// 1 / rate, l1, 2 * l2_shrinkage, 2 * l2 + beta / rate, -learning_rate_power. Slots: accumulator,
// linear. `square_root`: the power is -0.5, the default, and the last constant is not read.
Kernels FtrlKernels(bool square_root, bool guarded);

}  // namespace cairn
