// Work that several threads share.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace cairn {

// Runs `body` in `threads` threads at once, this one among them, and returns when it has returned
// in all. If the system refuses a thread, fewer run it: the work is to be taken from a common
// counter. A std::bad_alloc that `body` throws in another thread ends that thread only.
void RunInThreads(size_t threads, absl::FunctionRef<void()> body);

// Calls `call` with 0 to `count` - 1, all at once, and returns their results when all calls have
// returned: kResourceExhausted for a call that throws std::bad_alloc. If the system refuses a
// thread, some calls follow others.
std::vector<absl::Status> CallAtOnce(size_t count, absl::FunctionRef<absl::Status(size_t)> call);

}  // namespace cairn
