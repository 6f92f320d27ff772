// Work that nobody waits for.
#pragma once

#include <functional>

namespace cairn {

// Runs `work`, which must not throw, in a thread of the process that does such work in the order in
// which it comes. False: there is no memory or no thread for it, and it will not run. Work that has
// not run when the process exits is lost. Thread safety: may be called from several threads at
// once.
bool RunInBackground(std::function<void()> work) noexcept;

}  // namespace cairn
