// pull and scan: copies of variables.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Validates all items, then fills `reply`. Payloads that `reply` owns already and that have the
// right size are filled in place, so a caller in this process that keeps its reply allocates once.
absl::Status Pull(ServerCore& core, const Admitted& admitted, const wire::PullRequest& request,
                  wire::PullReply& reply);

absl::Status Scan(ServerCore& core, const Admitted& admitted, const wire::ScanRequest& request,
                  wire::ScanReply& reply);

}  // namespace cairn
