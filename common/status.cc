#include "common/status.h"

namespace cairn {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

absl::string_view CodeName(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return "OK";
    case absl::StatusCode::kCancelled: return "Cancelled";
    case absl::StatusCode::kInvalidArgument: return "Invalid argument";
    case absl::StatusCode::kDeadlineExceeded: return "Deadline exceeded";
    case absl::StatusCode::kNotFound: return "Not found";
    case absl::StatusCode::kAlreadyExists: return "Already exists";
    case absl::StatusCode::kPermissionDenied: return "Permission denied";
    case absl::StatusCode::kUnauthenticated: return "Unauthenticated";
    case absl::StatusCode::kResourceExhausted: return "Resource exhausted";
    case absl::StatusCode::kFailedPrecondition: return "Failed precondition";
    case absl::StatusCode::kAborted: return "Aborted";
    case absl::StatusCode::kOutOfRange: return "Out of range";
    case absl::StatusCode::kUnimplemented: return "Unimplemented";
    case absl::StatusCode::kInternal: return "Internal";
    case absl::StatusCode::kUnavailable: return "Unavailable";
    case absl::StatusCode::kDataLoss: return "Data loss";
    default: return "Unknown";
  }
}

}  // namespace cairn
