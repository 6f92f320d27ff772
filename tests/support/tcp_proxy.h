// A TCP proxy that cuts connections on request of a test.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace cairn::test {

// Listens on an OwnAddress() and forwards bytes to a server's address.
// Thread safety: every method may be called from several threads at once.
class TcpProxy {
 public:
  explicit TcpProxy(absl::string_view backend);
  ~TcpProxy();

  const std::string& address() const { return address_; }

  // For the next `count` answers of a server, discards the bytes and closes the connection: the
  // server has done its work, the client does not know.
  void DropReplies(int count) { drop_replies_ = count; }
  // Number of replies still to be dropped.
  int replies_to_drop() const { return drop_replies_; }
  // Closes every connection and refuses new ones; the port stays taken. Open accepts them again.
  void Shut();
  void Open();

 private:
  struct Pair {
    int client = -1;
    int server = -1;
    std::thread thread;
  };
  void Accept();
  void Pump(int client, int server);

  const std::string backend_;
  const std::string address_;
  int listener_ = -1;
  std::atomic<int> drop_replies_{0};
  std::atomic<bool> open_{true};
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  absl::Mutex mutex_;
  std::list<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::test
