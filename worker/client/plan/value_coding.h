// Values of a call that travel in fewer bytes.
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

size_t TravelBytes(const PushCoding& coding);
// Writes TravelBytes to `out`. Values are finite.
void EncodePush(const PushCoding& coding, const float* values, std::byte* out);
// Encodes the sums of values and residual, and leaves in `residual` what that lost of them. `sums`:
// memory for as many floats.
void EncodeWithFeedback(const PushCoding& coding, const float* values, absl::Span<float> residual,
                        float* sums, std::byte* out);

// kInvalidArgument: the variable, or the part of it, has no such format; names it and what to do.
absl::Status CheckPushFormat(const VariableSpec& spec, const PushSource& source);
absl::Status CheckPullFormat(const VariableSpec& spec, const PullTarget& target);

}  // namespace cairn
