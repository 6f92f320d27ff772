// push: gradients moved into variables.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "ps_server/stripe.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Validates all items, then applies all of them; nothing where one is refused. Does not wait for
// the disk. Errors as the IDL says; NOT_FINITE by the server's policy.
// A push for a step is kept instead, until the step closes.
absl::Status ApplyPush(ServerCore& core, const Admitted& admitted, const wire::PushRequest& request,
                       wire::PushReply& reply);

// One update of what `items` name, which have passed every check when their workers pushed them.
absl::Status ApplyStep(ServerCore& core, const VariableMap& variables,
                       const std::vector<wire::PushItem>& items, const Origin& origin);

}  // namespace cairn
