// Servers that come and go.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// The calls of the IDL. Where a server has left, it says so instead of what it knows of others.
absl::Status TellMembers(ServerCore& core, const wire::Caller& caller, wire::Members& reply);
absl::Status ChangeMembers(ServerCore& core, const wire::ChangeMembersRequest& request,
                           wire::ChangeMembersReply& reply);

}  // namespace cairn
