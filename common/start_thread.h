// Starts threads without exceptions.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cairn {

// A thread that runs `body`. kResourceExhausted: the system refuses another thread.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

// Calls `call` with 0 to `count` - 1, each in its own thread, and returns when all calls have
// returned. If the system refuses a thread, the calling thread makes that call.
void CallAtOnce(size_t count, absl::FunctionRef<void(size_t)> call);

}  // namespace cairn
