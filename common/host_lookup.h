// Resolves host names with a deadline. getaddrinfo has none: if the name servers do not answer, it
// takes as long as /etc/resolv.conf says, often half a minute.
#pragma once

#include <netdb.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/deadline.h"

namespace cairn {

// A list in getaddrinfo's format. Never null.
using HostAddresses = std::shared_ptr<const addrinfo>;
// getaddrinfo, or a test's replacement.
using HostLookup =
    std::function<int(const char* host, const char* port, const addrinfo* hints, addrinfo** found)>;

// Stream addresses of `host`, a name or a numeric address, at `port`. Numeric addresses need no
// lookup. Each name is looked up in a separate thread, which concurrent callers for the same name
// share; the thread continues after they give up. kUnavailable: no such name, or the system's
// reason for the failure. kDeadlineExceeded: names the host. Thread safety: may be called from any
// thread.
absl::StatusOr<HostAddresses> LookUpHost(const std::string& host, const std::string& port,
                                         Deadline deadline, const HostLookup& look_up = nullptr);

}  // namespace cairn
