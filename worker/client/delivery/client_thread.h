// Threads of the client. The simulator runs them as fibers (tests/simulator/replaced_waits.cc).
#pragma once

#include <functional>
#include <memory>

namespace cairn {

// A running thread. Releasing the last reference joins it. Null: no thread.
using ClientThread = std::shared_ptr<void>;

// Null: the system refuses a thread.
ClientThread StartClientThread(std::function<void()> body);

}  // namespace cairn
