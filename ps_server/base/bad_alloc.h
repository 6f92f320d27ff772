// Turns std::bad_alloc into a status.
#pragma once

#include <new>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace cairn {

// Returns what `call` returns, or kResourceExhausted if it throws std::bad_alloc.
inline absl::Status CatchBadAlloc(absl::FunctionRef<absl::Status()> call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the machine has no memory left");
  }
}

}  // namespace cairn
