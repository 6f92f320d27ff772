#include "worker/client/delivery/client_thread.h"

#include <system_error>
#include <thread>
#include <utility>

#include "common/log.h"

namespace cairn {

ClientThread StartClientThread(std::function<void()> body) {
  const auto join = [](std::thread* thread) {
    thread->join();
    delete thread;
  };
  try {
    return std::shared_ptr<std::thread>(new std::thread(std::move(body)), join);
  } catch (const std::system_error& refused) {
    LOG_EVERY_T(WARNING, 10) << "the system refuses the client a thread: " << refused.what()
                             << "; raise the limit of threads (ulimit -u, pids.max)";
    return nullptr;
  }
}

}  // namespace cairn
