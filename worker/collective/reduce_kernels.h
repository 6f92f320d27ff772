// Sums of several buffers, element by element, in a fixed order.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "common/dtype.h"

namespace cairn {

// For i in [0, count), for every output o:
//   outputs[o][i] = (…((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + …) / divisor
// A `divisor` of 1 skips the division; any other requires a floating dtype. float16 and bfloat16
// are added and divided in float32, then rounded once. Integers wrap around. At least one input. An
// output may be exactly an input; no other overlap is allowed.
void SumBuffers(DType dtype, absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                size_t count, int divisor);

}  // namespace cairn
