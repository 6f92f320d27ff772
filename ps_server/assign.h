// assign: values or slots set instead of moved.
#pragma once

#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// As ApplyPush: validates all items, then applies all. Counts as no update. The items of one call
// may name one shard several times, for its value and its slots.
absl::Status ApplyAssign(ServerCore& core, const Admitted& admitted,
                         const wire::AssignRequest& request, wire::PushReply& reply);

}  // namespace cairn
