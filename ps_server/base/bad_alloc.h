// Turns std::bad_alloc into a status.
#pragma once

#include <new>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace cairn {

constexpr char kNoMemoryText[] = "the machine has no memory left";

// Returns what `call` returns, or kResourceExhausted if it throws std::bad_alloc. Throws nothing
// itself: if there is no memory for the error's text either, the error has none.
inline absl::Status CatchBadAlloc(absl::FunctionRef<absl::Status()> call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
  }
  try {
    return absl::ResourceExhaustedError(kNoMemoryText);
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, ""};  // allocates nothing
  }
}

}  // namespace cairn
