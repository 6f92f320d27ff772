#include "worker/client/delivery/client_thread.h"

#include <thread>
#include <utility>

#include "common/log.h"
#include "common/start_thread.h"

namespace cairn {

ClientThread StartClientThread(std::function<void()> body) {
  absl::StatusOr<std::thread> thread = StartThread(std::move(body));
  if (!thread.ok()) {
    LOG_EVERY_T(WARNING, 10) << "the client: " << thread.status().message();
    return nullptr;
  }
  const auto join = [](std::thread* joined) {
    joined->join();
    delete joined;
  };
  return std::shared_ptr<std::thread>(new std::thread(*std::move(thread)), join);
}

}  // namespace cairn
