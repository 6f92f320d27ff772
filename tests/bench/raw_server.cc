#include "tests/bench/raw_server.h"
#include "tests/support/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace cairn {
namespace {

int Checked(int result, const char* what) {
  if (result >= 0) return result;
  std::fprintf(stderr, "raw server: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void Watch(int epoll, int fd, uint32_t events, int how) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  Checked(::epoll_ctl(epoll, how, fd, &event), "epoll_ctl");
}

bool Later() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

struct RawServer::Connection {
  explicit Connection(int socket) : fd(socket) {}
  ~Connection() { ::close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  size_t got = 0;   // bytes of the request received
  size_t sent = 0;  // bytes of the reply sent, once the request is complete
  bool waits_for_room = false;
};

RawServer::RawServer(size_t request_bytes, std::string reply, int threads)
    : request_bytes_(request_bytes),
      reply_(std::move(reply)),
      listener_(
          Checked(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket")),
      stop_(Checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = inet_addr(OwnHost().c_str());
  socklen_t length = sizeof(at);
  Checked(::bind(listener_, reinterpret_cast<sockaddr*>(&at), length), "bind");
  Checked(::listen(listener_, 1024), "listen");
  Checked(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length), "getsockname");
  port_ = ntohs(at.sin_port);
  for (int i = 0; i < threads; ++i) {
    epolls_.push_back(Checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    Watch(epolls_.back(), stop_, EPOLLIN, EPOLL_CTL_ADD);
    Watch(epolls_.back(), listener_, EPOLLIN | EPOLLEXCLUSIVE, EPOLL_CTL_ADD);
  }
  for (const int epoll : epolls_) threads_.emplace_back([this, epoll] { Serve(epoll); });
}

RawServer::~RawServer() {
  Checked(::eventfd_write(stop_, 1), "eventfd_write");
  for (std::thread& thread : threads_) thread.join();
  for (const int epoll : epolls_) ::close(epoll);
  ::close(listener_);
  ::close(stop_);
}

// A connection stays with the thread that accepted it.
void RawServer::Serve(int epoll) const {
  std::map<int, std::unique_ptr<Connection>> connections;
  while (true) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll, events, 64, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_) return;
      if (fd != listener_) {
        if (!Go(epoll, *connections.at(fd))) connections.erase(fd);
        continue;
      }
      const int taken = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (taken < 0) continue;
      const int one = 1;
      ::setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      connections.emplace(taken, std::make_unique<Connection>(taken));
      Watch(epoll, taken, EPOLLIN, EPOLL_CTL_ADD);
    }
  }
}

bool RawServer::Go(int epoll, Connection& connection) const {
  char buffer[4096];
  while (connection.got < request_bytes_) {
    const size_t most = std::min(sizeof(buffer), request_bytes_ - connection.got);
    const ssize_t got = ::recv(connection.fd, buffer, most, MSG_DONTWAIT);
    if (got < 0 && Later()) return true;
    if (got <= 0) return false;
    connection.got += static_cast<size_t>(got);
  }
  while (connection.sent < reply_.size()) {
    const ssize_t sent = ::send(connection.fd, reply_.data() + connection.sent,
                                reply_.size() - connection.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !Later()) return false;
    if (sent < 0) {
      if (!std::exchange(connection.waits_for_room, true)) {
        Watch(epoll, connection.fd, EPOLLOUT, EPOLL_CTL_MOD);
      }
      return true;
    }
    connection.sent += static_cast<size_t>(sent);
  }
  connection.got = connection.sent = 0;
  if (std::exchange(connection.waits_for_room, false)) {
    Watch(epoll, connection.fd, EPOLLIN, EPOLL_CTL_MOD);
  }
  return true;
}

}  // namespace cairn
