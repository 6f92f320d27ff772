// pull and scan: copies of variables.
#pragma once

#include "absl/status/status.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/row_access.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Validates all items, then fills `reply`. Payloads that `reply` owns already and that have the
// right size are filled in place, so a caller in this process that keeps its reply allocates once.
// `boot_id`: of this start of the server; copies that the caller holds are valid for it alone.
absl::Status Pull(const RowAccess& rows, int64_t boot_id, const Admitted& admitted,
                  const wire::PullRequest& request, wire::PullReply& reply);

absl::Status Scan(const RowAccess& rows, const Admitted& admitted, const wire::ScanRequest& request,
                  wire::ScanReply& reply);

}  // namespace cairn
