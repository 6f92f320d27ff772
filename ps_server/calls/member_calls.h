// members, change_members: servers that join and leave the cluster (MEMBERS.md).
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/moves/members.h"
#include "ps_server/moves/moves.h"
#include "thrift/cairn_types.h"

namespace cairn {

// kFailedPrecondition: this server has left, and no longer knows the list.
absl::Status TellMembers(const Members& members, const wire::Caller& caller, wire::Members& reply);
// Adds a server, closes this server to rows so that it can leave, or removes a server that has left
// (cairn.thrift, ChangeMembersRequest). Errors as in Members; kFailedPrecondition also if this
// server still has rows.
absl::Status ChangeMembers(JobCatalog& catalog, Moves& moves, Members& members,
                           const wire::ChangeMembersRequest& request,
                           wire::ChangeMembersReply& reply);

}  // namespace cairn
