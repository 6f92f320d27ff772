// Whether tasks on one host communicate through shared memory instead of TCP (thrift/LOCAL.md).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class LocalTransport {
  kOff,       // only TCP
  kSameUser,  // shared memory with processes of the same user: "auto"
  kAnyUser,   // shared memory with every caller that may call over TCP
};

// "off", "auto", "any_user".
absl::string_view LocalTransportName(LocalTransport transport);
// Parses the value of --local_transport. kInvalidArgument lists the allowed values.
absl::StatusOr<LocalTransport> LocalTransportFromName(absl::string_view name);

// For --help of programs that connect to servers.
inline constexpr absl::string_view kLocalTransportText =
    "to servers of this host: auto: through shared memory, where server and caller are of one "
    "user; any_user: of any two; off: over TCP; default auto";

}  // namespace cairn
