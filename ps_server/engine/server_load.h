// A server's start, apart from its threads: what its store has, into memory.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ps_server/core/server_core.h"

namespace cairn {

// Before any call. Returns how many variables there are. Errors as LoadVariables and as those of
// the store.
absl::StatusOr<int64_t> LoadServer(ServerCore& core);

}  // namespace cairn
