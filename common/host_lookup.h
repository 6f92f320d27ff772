// Addresses of host names, with a deadline. getaddrinfo has none: with name servers that do not
// answer it takes as long as /etc/resolv.conf says, often half a minute.
#pragma once

#include <netdb.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/deadline.h"

namespace cairn {

// A list, as getaddrinfo's. Never null.
using HostAddresses = std::shared_ptr<const addrinfo>;
// getaddrinfo, or what stands for it in a test.
using HostLookup =
    std::function<int(const char* host, const char* port, const addrinfo* hints, addrinfo** found)>;

// Stream addresses of `host`, a name or a number, at `port`. Numbers are not looked up. A name is
// looked up in a thread of its own, one for all callers that ask for the same at a time; it goes on
// without them when they give up. kUnavailable: no such name, or the system says why not.
// kDeadlineExceeded: names the host. Thread safety: any thread may call it.
absl::StatusOr<HostAddresses> LookUpHost(const std::string& host, const std::string& port,
                                         Deadline deadline, const HostLookup& look_up = nullptr);

}  // namespace cairn
