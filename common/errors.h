// Errors whose message has several parts, joined as by absl::StrCat:
//   return InvalidArgument("worker is ", worker, "; expected one below ", workers);
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn {

#define CAIRN_ERROR(Name)                             \
  template <typename... Parts>                        \
  absl::Status Name(const Parts&... parts) {          \
    return absl::Name##Error(absl::StrCat(parts...)); \
  }
CAIRN_ERROR(Aborted)
CAIRN_ERROR(AlreadyExists)
CAIRN_ERROR(Cancelled)
CAIRN_ERROR(DataLoss)
CAIRN_ERROR(DeadlineExceeded)
CAIRN_ERROR(FailedPrecondition)
CAIRN_ERROR(Internal)
CAIRN_ERROR(InvalidArgument)
CAIRN_ERROR(NotFound)
CAIRN_ERROR(OutOfRange)
CAIRN_ERROR(PermissionDenied)
CAIRN_ERROR(ResourceExhausted)
CAIRN_ERROR(Unauthenticated)
CAIRN_ERROR(Unavailable)
CAIRN_ERROR(Unimplemented)
CAIRN_ERROR(Unknown)
#undef CAIRN_ERROR

}  // namespace cairn
