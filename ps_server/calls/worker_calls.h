// hello, leave, flush: a worker's place on this server.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Grants or accepts an incarnation. Before it answers, everything the worker had applied is
// durable, and so is the incarnation.
absl::Status Hello(ServerCore& core, const wire::HelloRequest& request, wire::HelloReply& reply);

// The incarnation, and what the worker's earlier ones had applied, on disk.
absl::Status MakeIncarnationDurable(ServerCore& core, Session& session);

// Waits until everything the worker pushed is durable, then ends its lease.
absl::Status Leave(ServerCore& core, const Admitted& admitted);

}  // namespace cairn
