#include "common/run_in_threads.h"

#include <atomic>
#include <new>
#include <system_error>
#include <thread>

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

std::vector<absl::Status> CallAtOnce(size_t count, absl::FunctionRef<absl::Status(size_t)> call) {
  std::vector<absl::Status> results(
      count, absl::ResourceExhaustedError("this process has no memory left"));
  std::atomic<size_t> next = 0;
  RunInThreads(count, [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        results[i] = call(i);
      } catch (const std::bad_alloc&) {  // keeps the status that says so
      }
    }
  });
  return results;
}

}  // namespace cairn
