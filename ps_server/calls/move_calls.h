// move: rows go from one live server to another (MOVES.md).
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One step of a move (cairn.thrift, MoveRequest). FAILED_PRECONDITION: not the step that is due, or
// not of the mover that began last.
absl::Status MoveRows(ServerCore& core, const Admitted& admitted, const wire::MoveRequest& request,
                      wire::MoveReply& reply);

}  // namespace cairn
