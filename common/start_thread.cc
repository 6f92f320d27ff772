#include "common/start_thread.h"

#include <system_error>
#include <utility>

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

}  // namespace cairn
