// Whether tasks on one host talk past TCP (thrift/LOCAL.md).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class LocalTransport {
  kOff,       // TCP alone
  kSameUser,  // with processes of this process's user: "auto"
  kAnyUser,   // with whoever may call over TCP
};

// "off", "auto", "any_user".
absl::string_view LocalTransportName(LocalTransport transport);
// Of --local_transport. kInvalidArgument names what there is.
absl::StatusOr<LocalTransport> LocalTransportFromName(absl::string_view name);

// For --help of programs that connect to servers.
inline constexpr absl::string_view kLocalTransportText =
    "to servers of this host: auto: through shared memory, where server and caller are of one "
    "user; any_user: of any two; off: over TCP; default auto";

}  // namespace cairn
