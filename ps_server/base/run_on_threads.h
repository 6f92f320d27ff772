// Runs a function on several threads, or on as many as the system allows.
#pragma once

#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"

namespace cairn {

// Calls `work` on this thread and on at most `threads` - 1 others at once; returns when all calls
// have returned. `work` must not throw on another thread.
inline void RunOnThreads(size_t threads, absl::FunctionRef<void()> work) {
  std::vector<std::thread> helpers;
  const auto join = absl::MakeCleanup([&helpers] {
    for (std::thread& helper : helpers) helper.join();
  });
  try {
    helpers.reserve(threads);
    while (helpers.size() + 1 < threads) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no thread left: those that run do the work
  } catch (const std::bad_alloc&) {
  }
  work();
}

}  // namespace cairn
