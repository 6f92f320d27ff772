// Work that nobody waits for.
#pragma once

#include <functional>

namespace cairn {

// Runs `work`, which must not throw, in a thread of the process that does such work in the order in
// which it comes. Throws std::bad_alloc or std::system_error if there is no memory or no thread for
// it; then it does not run. Work that has not run when the process exits is lost. Thread safety:
// may be called from several threads at once.
void RunInBackground(std::function<void()> work);

}  // namespace cairn
