#include "tests/support/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::abort();
}

// Leaves 127.0.x.y to the system's own services.
std::string HostOf(uint32_t number) {
  return absl::StrCat("127.", 1 + number % 254, ".", number / 254 % 256, ".",
                      1 + number / (254 * 256) % 254);
}

// True if no other process has claimed `host`. The socket stays open for the lifetime of the
// process.
bool Claim(const std::string& host) {
  const std::string name = absl::StrCat("cairn-test-host ", host);
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  name.copy(at.sun_path + 1, sizeof at.sun_path - 1);  // after a zero byte: an abstract name
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("a socket to claim a host");
  const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (::bind(fd, reinterpret_cast<sockaddr*>(&at), static_cast<socklen_t>(size)) == 0) return true;
  if (errno != EADDRINUSE) Fail("claiming a host of 127.0.0.0/8");
  ::close(fd);
  return false;
}

// False if a program outside the tests listens on `port` of every address.
bool IsFree(int32_t port) {
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, OwnHost().c_str(), &at.sin_addr) != 1) Fail("reading the own host");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("a socket to try a port");
  const bool is_free = ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  ::close(fd);
  return is_free;
}

}  // namespace

std::string ClaimHost(absl::FunctionRef<uint32_t()> draw) {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    std::string host = HostOf(draw());
    if (Claim(host)) return host;
  }
  std::fprintf(stderr, "no host of 127.0.0.0/8 is free after %d tries\n", kTries);
  std::abort();
}

const std::string& OwnHost() {
  static const std::string& host = *new std::string([] {
    std::random_device random;
    return ClaimHost([&] { return random(); });
  }());
  return host;
}

int32_t OwnPort() {
  static std::atomic<int32_t> next = kFirstPort;
  for (;;) {
    const int32_t port = next++;
    if (port >= kEndOfPorts) Fail("this process has used all of its ports");
    if (IsFree(port)) return port;
  }
}

std::string OwnAddress() { return absl::StrCat(OwnHost(), ":", OwnPort()); }

std::string NobodysAddress() { return absl::StrCat(OwnHost(), ":1"); }

int32_t PortOf(const std::string& address) {
  return std::atoi(address.c_str() + address.rfind(':') + 1);
}

}  // namespace cairn
