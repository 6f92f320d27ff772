#include "common/run_in_threads.h"

#include <atomic>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"

namespace cairn {

void RunInThreads(size_t threads, absl::FunctionRef<void()> body) {
  const auto help = [body] {
    try {
      body();
    } catch (const std::bad_alloc&) {  // the other threads continue
    }
  };
  std::vector<std::thread> helpers;
  const absl::Cleanup join = [&helpers] {
    for (std::thread& helper : helpers) helper.join();
  };
  try {
    while (helpers.size() + 1 < threads) helpers.emplace_back(help);
  } catch (const std::system_error&) {  // the system has no more threads
  } catch (const std::bad_alloc&) {
  }
  body();
}

void CallAtOnce(size_t count, absl::FunctionRef<void(size_t)> call) {
  std::atomic<size_t> next = 0;
  RunInThreads(count, [&] {
    for (size_t i = next++; i < count; i = next++) call(i);
  });
}

}  // namespace cairn
