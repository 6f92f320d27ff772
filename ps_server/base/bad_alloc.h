// Turns std::bad_alloc into a status.
#pragma once

#include <new>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace cairn {

// Returns what `call` returns, or kResourceExhausted if it throws std::bad_alloc.
inline absl::Status CatchBadAlloc(absl::FunctionRef<absl::Status()> call) {
  // Made before memory is refused; a copy allocates nothing.
  static const absl::Status& refused =
      *new absl::Status(absl::StatusCode::kResourceExhausted, "the machine has no memory left");
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return refused;
  }
}

}  // namespace cairn
