// How collectives communicate: packing, timeout, implementation (tf.distribute's
// CommunicationOptions).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cairn {

// kAuto: NCCL where every device is a GPU of its own, else a ring.
enum class CommunicationImplementation { kAuto, kRing, kNccl };

// "AUTO", "RING", "NCCL".
absl::string_view CommunicationImplementationName(CommunicationImplementation implementation);
// One of those names in either case. kInvalidArgument lists them.
absl::StatusOr<CommunicationImplementation> CommunicationImplementationFromName(
    absl::string_view name);

// A value type. Built with designated initializers, and checked by whoever takes it.
struct CommunicationOptions {
  // Gradients are packed until a pack is larger than this, then the next pack begins; 0: one pack.
  int64_t bytes_per_pack = 0;
  // Of one collective; absent: the strategy's own limit. Zero or less has expired at once.
  std::optional<absl::Duration> timeout = {};
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;

  // kInvalidArgument: bytes_per_pack < 0.
  absl::Status Validate() const;
  // These options, overridden by each field of `per_call` that differs from its default.
  CommunicationOptions Merge(const CommunicationOptions& per_call) const;

  friend bool operator==(const CommunicationOptions&, const CommunicationOptions&) = default;
};

// TensorFlow's first name for the options: the same with implementation AUTO, checked.
// kInvalidArgument as Validate().
[[deprecated("use CommunicationOptions")]] absl::StatusOr<CommunicationOptions> CollectiveHints(
    int64_t bytes_per_pack, std::optional<absl::Duration> timeout = std::nullopt);

}  // namespace cairn
