// The RPC assign: sets values or slots.
#pragma once

#include "absl/status/status.h"
#include "ps_server/calls/step_closing.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Checks all items, then sets all of them, as Push. Does not count as an update, but may set the
// number of updates. The items of one call may name one shard several times, for its value and its
// slots.
absl::Status Assign(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                    const Admitted& admitted, const wire::AssignRequest& request,
                    wire::PushReply& reply);

}  // namespace cairn
