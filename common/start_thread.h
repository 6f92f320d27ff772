// Starts threads without exceptions.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace cairn {

// A thread that runs `body`. kResourceExhausted: the system refuses another thread.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

}  // namespace cairn
