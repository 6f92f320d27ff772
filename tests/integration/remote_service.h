// A server in another process, with the interface of one in this process.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "thrift/ParameterServer.h"

namespace cairn {

// Connects Thrift's own client, with its own transport, so that the wire does not depend on
// WireClient. Calls throw what Thrift throws if the connection breaks, or if the server sends
// nothing for 30 s. Thread safety: none; one thread at a time.
absl::StatusOr<std::unique_ptr<wire::ParameterServerIf>> ConnectToServer(
    const std::string& address);

}  // namespace cairn
