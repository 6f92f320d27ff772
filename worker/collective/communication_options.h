// How collectives communicate: packing, timeout, implementation (tf.distribute's
// CommunicationOptions).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cairn {

// kAuto: NCCL if every device is a different GPU, otherwise a ring.
enum class CommunicationImplementation { kAuto, kRing, kNccl };

// "AUTO", "RING", "NCCL".
absl::string_view CommunicationImplementationName(CommunicationImplementation implementation);
// Parses one of those names in either case. kInvalidArgument: the message lists the names.
absl::StatusOr<CommunicationImplementation> CommunicationImplementationFromName(
    absl::string_view name);

// A value type. Use designated initializers; functions that take it validate it.
struct CommunicationOptions {
  // A pack ends with the gradient that makes it larger than this; 0: one pack.
  int64_t bytes_per_pack = 0;
  // Timeout of one collective, above 0; absent: the strategy's own limit. (TensorFlow takes 0 or
  // less as no limit.)
  std::optional<absl::Duration> timeout = {};
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;

  // kInvalidArgument: bytes_per_pack < 0, a timeout of 0 or less, or an implementation that is none
  // of the enumerators.
  absl::Status Validate() const;
  // These options, overridden by each field of `per_call` that differs from its default.
  CommunicationOptions Merge(const CommunicationOptions& per_call) const;

  friend bool operator==(const CommunicationOptions&, const CommunicationOptions&) = default;
};

// TensorFlow's former name for the options: implementation is AUTO. kInvalidArgument: as
// Validate().
[[deprecated("use CommunicationOptions")]] absl::StatusOr<CommunicationOptions> CollectiveHints(
    int64_t bytes_per_pack, std::optional<absl::Duration> timeout = std::nullopt);

}  // namespace cairn
