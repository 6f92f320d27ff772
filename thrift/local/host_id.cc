#include "thrift/local/host_id.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

std::string ReadHostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::array<char, 64> space = {};
  const ssize_t bytes = ::readlink("/proc/self/ns/net", space.data(), space.size());
  if (!(file >> boot) || bytes <= 0) return "";
  return absl::StrCat(boot, " ", absl::string_view(space.data(), static_cast<size_t>(bytes)));
}

// An address without the port; IPv4 mapped into IPv6.
struct Address {
  std::array<uint8_t, 16> bytes = {};

  bool operator==(const Address&) const = default;
  bool is_loopback() const {
    in6_addr address;
    std::memcpy(&address, bytes.data(), bytes.size());
    return IN6_IS_ADDR_LOOPBACK(&address) ||
           (IN6_IS_ADDR_V4MAPPED(&address) && bytes[12] == IN_LOOPBACKNET);
  }
};

bool ReadAddress(int fd, decltype(&::getpeername) which, Address* address) {
  sockaddr_storage found = {};
  socklen_t size = sizeof(found);
  if (which(fd, reinterpret_cast<sockaddr*>(&found), &size) != 0) return false;
  if (found.ss_family == AF_INET6) {
    sockaddr_in6 at;
    std::memcpy(&at, &found, sizeof(at));
    std::memcpy(address->bytes.data(), &at.sin6_addr, sizeof(at.sin6_addr));
    return true;
  }
  if (found.ss_family != AF_INET) return false;
  sockaddr_in at;
  std::memcpy(&at, &found, sizeof(at));
  address->bytes[10] = address->bytes[11] = 0xff;
  std::memcpy(&address->bytes[12], &at.sin_addr, sizeof(at.sin_addr));
  return true;
}

}  // namespace

const std::string& LocalHostId() {
  static const std::string& id = *new std::string(ReadHostId());
  return id;
}

bool PeerMayBeLocal(int fd) {
  Address own;
  Address peer;
  if (!ReadAddress(fd, &::getsockname, &own) || !ReadAddress(fd, &::getpeername, &peer)) {
    return false;
  }
  return own == peer || peer.is_loopback();
}

}  // namespace cairn
