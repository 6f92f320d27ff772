// Threads of the client. The simulator runs them as fibers (tests/simulator/replaced_waits.cc).
#pragma once

#include <functional>
#include <memory>

namespace cairn {

// A running thread; its end is awaited by who lets go of it. Null: none.
using ClientThread = std::shared_ptr<void>;

ClientThread StartClientThread(std::function<void()> body);

}  // namespace cairn
