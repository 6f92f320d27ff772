// The RPC push.
#pragma once

#include "absl/status/status.h"
#include "ps_server/calls/step_closing.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Checks all items, then applies all of them; applies nothing if one is rejected. Does not wait for
// the disk. A push for a synchronous step is kept until the step closes. Errors as the IDL says;
// NOT_FINITE by the server's policy.
absl::Status Push(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                  const Admitted& admitted, const wire::PushRequest& request,
                  wire::PushReply& reply);

}  // namespace cairn
