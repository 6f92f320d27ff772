#include "worker/client/delivery/client_thread.h"

#include <thread>
#include <utility>

namespace cairn {

ClientThread StartClientThread(std::function<void()> body) {
  const auto join = [](std::thread* thread) {
    thread->join();
    delete thread;
  };
  return std::shared_ptr<std::thread>(new std::thread(std::move(body)), join);
}

}  // namespace cairn
