#include "common/start_thread.h"

#include <system_error>
#include <utility>
#include <vector>

#include "common/errors.h"

namespace cairn {

absl::StatusOr<std::thread> StartThread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    return ResourceExhausted("the system refuses a thread: ", refused.what(),
                             "; raise the limit of threads (ulimit -u, pids.max)");
  }
}

void CallAtOnce(size_t count, absl::FunctionRef<void(size_t)> call) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::vector<size_t> without_thread;
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<std::thread> thread = StartThread([call, i] { call(i); });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      without_thread.push_back(i);
    }
  }
  for (const size_t i : without_thread) call(i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cairn
