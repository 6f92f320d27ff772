#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace cairn::test {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int PortOf(absl::string_view address) {
  return std::atoi(std::string(address.substr(address.rfind(':') + 1)).c_str());
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

TcpProxy::TcpProxy(absl::string_view backend) : backend_port_(PortOf(backend)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port for the proxy");
  }
  port_ = ntohs(address.sin_port);
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

std::string TcpProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

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
    const sockaddr_in address = Loopback(backend_port_);
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

// Descriptors are closed by the destructor alone, so that no other one takes their number.
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
