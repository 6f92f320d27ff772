// The RPC describe.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/statistics.h"
#include "thrift/cairn_types.h"

namespace cairn {

absl::Status Describe(const StatisticsReader& statistics, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply);

// The variable's shards on this server.
wire::VariableInfo InfoOf(const Variable& variable);

}  // namespace cairn
