// move: rows go from one live server to another (MOVES.md).
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/admission.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/core/row_access.h"
#include "ps_server/moves/moves.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One step of a move (cairn.thrift, MoveRequest). kFailedPrecondition: another step is due, or a
// newer mover has begun.
absl::Status MoveRows(JobCatalog& catalog, Moves& moves, Admission& admission,
                      const RowAccess& rows, const Admitted& admitted,
                      const wire::MoveRequest& request, wire::MoveReply& reply);

}  // namespace cairn
