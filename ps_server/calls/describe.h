// The RPC describe.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/statistics.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Describes the named variables of the job, or all of them, and the server. kNotFound: a variable
// is unknown; the message names the most similar one.
absl::Status Describe(const StatisticsReader& statistics, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply);

// The variable's shards on this server.
wire::VariableInfo InfoOf(const Variable& variable);

}  // namespace cairn
