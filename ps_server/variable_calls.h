// create_variables, describe, drop_job.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Makes those that are not there; all or none.
absl::Status CreateVariables(ServerCore& core, const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs);

absl::Status Describe(ServerCore& core, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply);

// The variable's shards here.
wire::VariableInfo InfoOf(const Variable& variable);

absl::Status DropJob(ServerCore& core, const wire::Caller& caller);

// Where no more jobs or workers are allowed: forgets jobs that nothing is lost with (Job::Idle) and
// whose workers were not seen for a lease. For whoever has create_turn.
absl::Status MakeRoom(ServerCore& core);

}  // namespace cairn
