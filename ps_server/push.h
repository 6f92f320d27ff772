// push: gradients moved into variables.
#pragma once

#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Validates all items, then applies all of them; nothing where one is refused. Does not wait for
// the disk. Errors as the IDL says; NOT_FINITE by the server's policy.
absl::Status ApplyPush(ServerCore& core, const Admitted& admitted, const wire::PushRequest& request,
                       wire::PushReply& reply);

}  // namespace cairn
