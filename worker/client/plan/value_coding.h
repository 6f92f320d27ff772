// Encodes values of a call in compact wire formats (WIRE_FORMATS.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/value_format.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// One part of a push: float32 values [rows, width].
struct PushCoding {
  ValueFormat format = ValueFormat::kPlain;  // not kPlain
  double kept_fraction = 0;                  // kTopK
  int64_t rows = 0;
  int64_t width = 0;
};

// Encoded size in bytes.
size_t TravelBytes(const PushCoding& coding);
// Writes TravelBytes(coding) bytes to `out`. `values`: [rows, width], finite.
void EncodePush(const PushCoding& coding, const float* values, std::byte* out);
// Encodes values + residual, and stores the rounding error in `residual`. `sums`: scratch memory
// for rows * width floats.
void EncodeWithFeedback(const PushCoding& coding, const float* values, absl::Span<float> residual,
                        float* sums, std::byte* out);

// kInvalidArgument: the format does not apply to the variable or part; the message names both and
// the next step.
absl::Status CheckPushFormat(const VariableSpec& spec, const PushSource& source);
absl::Status CheckPullFormat(const VariableSpec& spec, const PullTarget& target);

}  // namespace cairn
