// The optimizers' formulas, one element at a time in double: what the kernels are compared with.
// Written from the formulas in Keras' documentation, independently of the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optimizer/optimizer.h"

namespace cairn::test {

// One element of a variable with its slots, in the optimizer's order.
struct ReferenceElement {
  double value = 0;
  std::vector<double> slots;
};

// Update `t` (1 for the first) at rate `rate`. `config` has every default written down.
void ReferenceUpdate(const OptimizerConfig& config, int64_t t, double rate, double gradient,
                     ReferenceElement* element);

}  // namespace cairn::test
