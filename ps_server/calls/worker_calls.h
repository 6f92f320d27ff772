// hello and leave: a worker's session on this server.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/admission.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/moves/members.h"
#include "ps_server/persistence/flusher.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Grants or accepts an incarnation. When it returns, the incarnation and everything that the worker
// had applied are durable.
absl::Status Hello(JobCatalog& catalog, Admission& admission, const Members& members,
                   const wire::HelloRequest& request, wire::HelloReply& reply);

// Waits until everything the worker pushed is durable, then ends its lease; not if a newer
// incarnation than `incarnation`, the caller's, has said hello in the meantime.
absl::Status Leave(const ServerInfo& info, Admission& admission, Flusher& flusher,
                   const Admitted& admitted, int64_t incarnation);

}  // namespace cairn
