#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "tests/support/addresses.h"

namespace cairn::test {
namespace {

sockaddr_in SocketAddress(const std::string& address) {
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
  if (::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &at.sin_addr) != 1) {
    throw std::runtime_error("no IPv4 address: " + address);
  }
  return at;
}

bool PassOn(int to, const char* bytes, ssize_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(to, bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= sent;
  }
  return true;
}

}  // namespace

TcpProxy::TcpProxy(absl::string_view backend) : backend_(backend), address_(OwnAddress()) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in at = SocketAddress(address_);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_, 64) != 0) {
    throw std::runtime_error("the proxy cannot listen on " + address_);
  }
  acceptor_ = std::thread([this] { Accept(); });
}

TcpProxy::~TcpProxy() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  absl::MutexLock lock(&mutex_);
  for (Pair& pair : pairs_) {
    ::shutdown(pair.client, SHUT_RDWR);
    ::shutdown(pair.server, SHUT_RDWR);
    pair.thread.join();
    ::close(pair.client);
    ::close(pair.server);
  }
}

void TcpProxy::Shut() {
  open_ = false;
  absl::MutexLock lock(&mutex_);
  for (Pair& pair : pairs_) {
    ::shutdown(pair.client, SHUT_RDWR);
    ::shutdown(pair.server, SHUT_RDWR);
  }
}

void TcpProxy::Open() { open_ = true; }

void TcpProxy::Accept() {
  for (;;) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0 || stopping_) {
      if (client >= 0) ::close(client);
      return;
    }
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = SocketAddress(backend_);
    absl::MutexLock lock(&mutex_);
    if (!open_ ||
        ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      ::close(client);
      ::close(server);
      continue;
    }
    const int one = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pairs_.push_back({client, server, {}});
    pairs_.back().thread = std::thread([this, client, server] { Pump(client, server); });
  }
}

// Only the destructor closes descriptors, so that no other connection gets their numbers.
void TcpProxy::Pump(int client, int server) {
  char buffer[16384];
  for (;;) {
    pollfd fds[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) break;
    if (fds[0].revents != 0) {
      const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0 || !PassOn(server, buffer, got)) break;
    }
    if (fds[1].revents != 0) {
      const ssize_t got = ::recv(server, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      if (drop_replies_ > 0) {
        --drop_replies_;
        break;
      }
      if (!PassOn(client, buffer, got)) break;
    }
  }
  ::shutdown(client, SHUT_RDWR);
  ::shutdown(server, SHUT_RDWR);
}

}  // namespace cairn::test
