// create_variables, describe, drop_job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Makes those that are not there; all or none. A worker may give others new arguments of their
// optimizer while no other live worker has asked for them as they are.
absl::Status CreateVariables(ServerCore& core, const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs);

absl::Status Describe(ServerCore& core, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply);

// The variable's shards here.
wire::VariableInfo InfoOf(const Variable& variable);

absl::Status DropJob(ServerCore& core, const wire::Caller& caller);

// What this server has of another life of the job than `timeline`: forgotten where that is no
// variable. kFailedPrecondition: there are some.
absl::Status ForgetOtherLife(ServerCore& core, const std::string& job, int64_t timeline);

// Where no more jobs or workers are allowed: forgets jobs that nothing is lost with (Job::Idle) and
// whose workers were not seen for a lease. For whoever has create_slot.
absl::Status MakeRoom(ServerCore& core);

}  // namespace cairn
