// A server that only moves bytes: the cost of a call without Cairn.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace cairn {

// Answers every `request_bytes` received on a connection with `reply`, using only sockets, epoll
// sets and threads. Loopback. Ends the process if it cannot create a socket.
class RawServer {
 public:
  RawServer(size_t request_bytes, std::string reply, int threads);
  // Closes all connections.
  ~RawServer();
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  int port() const { return port_; }

 private:
  struct Connection;
  void Serve(int epoll) const;
  // False: the peer has closed the connection.
  bool Go(int epoll, Connection& connection) const;

  const size_t request_bytes_;
  const std::string reply_;
  int listener_ = -1;
  int port_ = 0;
  int stop_ = -1;  // an eventfd in every epoll set
  std::vector<int> epolls_;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
