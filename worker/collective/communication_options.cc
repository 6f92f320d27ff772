#include "worker/collective/communication_options.h"

#include "absl/strings/match.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {

absl::string_view CommunicationImplementationName(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::kAuto: return "AUTO";
    case CommunicationImplementation::kRing: return "RING";
    case CommunicationImplementation::kNccl: return "NCCL";
  }
  return "unknown";
}

absl::StatusOr<CommunicationImplementation> CommunicationImplementationFromName(
    absl::string_view name) {
  for (const auto implementation :
       {CommunicationImplementation::kAuto, CommunicationImplementation::kRing,
        CommunicationImplementation::kNccl}) {
    if (absl::EqualsIgnoreCase(name, CommunicationImplementationName(implementation))) {
      return implementation;
    }
  }
  return InvalidArgument("communication implementation '", name,
                         "' is unknown; allowed: AUTO, RING, NCCL");
}

absl::Status CommunicationOptions::Validate() const {
  if (bytes_per_pack < 0) {
    return InvalidArgument("communication options: bytes_per_pack is ", bytes_per_pack,
                           "; it must be >= 0, and 0 means one pack");
  }
  if (timeout.has_value() && *timeout <= absl::ZeroDuration()) {
    return InvalidArgument("communication options: timeout is ", absl::FormatDuration(*timeout),
                           "; it must be above 0, and without one the strategy's own applies");
  }
  if (CommunicationImplementationName(implementation) == "unknown") {
    return InvalidArgument("communication options: implementation is ",
                           static_cast<int>(implementation), "; allowed: AUTO, RING, NCCL");
  }
  return absl::OkStatus();
}

CommunicationOptions CommunicationOptions::Merge(const CommunicationOptions& per_call) const {
  CommunicationOptions merged = *this;
  if (per_call.bytes_per_pack != 0) merged.bytes_per_pack = per_call.bytes_per_pack;
  if (per_call.timeout.has_value()) merged.timeout = per_call.timeout;
  if (per_call.implementation != CommunicationImplementation::kAuto) {
    merged.implementation = per_call.implementation;
  }
  return merged;
}

absl::StatusOr<CommunicationOptions> CollectiveHints(int64_t bytes_per_pack,
                                                     std::optional<absl::Duration> timeout) {
  const CommunicationOptions options = {.bytes_per_pack = bytes_per_pack, .timeout = timeout};
  RETURN_IF_ERROR(options.Validate());
  return options;
}

}  // namespace cairn
