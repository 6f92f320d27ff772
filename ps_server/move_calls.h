// move: rows go from one live server to another.
#pragma once

#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One step of a move (cairn.thrift, MoveRequest).
absl::Status MoveRows(ServerCore& core, const Admitted& admitted, const wire::MoveRequest& request,
                      wire::MoveReply& reply);

}  // namespace cairn
