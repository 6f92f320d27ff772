#include "worker/ctl/local_ports.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

struct FreeAddressInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddressInfo = std::unique_ptr<addrinfo, FreeAddressInfo>;

absl::StatusOr<AddressInfo> Resolve(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error == 0) return AddressInfo(found);
  return InvalidArgument("host '", address.host, "' is not known here (", gai_strerror(error), ")");
}

// Returns the end of the range of ports that Linux assigns neither to port 0 nor to outgoing
// connections. The end itself is not in the range.
int EndOfSteadyPorts() {
  int end = 0;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  return range >> end ? end : 32768;
}

// Binds `socket` to a port that the system does not assign to others while the task that listens on
// it restarts. Returns the port; 0 on failure, with errno set.
int BindToSteadyPort(int socket, addrinfo* info) {
  constexpr int kFirst = 10000;
  constexpr int kTries = 1000;
  const int end = std::max(EndOfSteadyPorts(), kFirst + 1);
  std::random_device seed;
  std::minstd_rand random(seed());
  std::uniform_int_distribution<int> ports(kFirst, end - 1);
  for (int i = 0; i < kTries; ++i) {
    const int port = ports(random);
    // sockaddr_in and sockaddr_in6 have the port at the same offset.
    reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
    if (bind(socket, info->ai_addr, info->ai_addrlen) == 0) return port;
    if (errno != EADDRINUSE) break;
  }
  return 0;
}

absl::Status BindError(const std::string& address) {
  if (errno == EADDRINUSE) {
    return AlreadyExists(address,
                         " is in use: end what listens there, or give the task another "
                         "port; 0 means one that is free");
  }
  if (errno == EADDRNOTAVAIL) {
    return InvalidArgument(
        address,
        " is not an address of this machine, and launch starts processes on this one "
        "only: start cairn-ps and cairn-worker there, under Slurm or Kubernetes");
  }
  return InvalidArgument(address, " cannot be listened on: ", std::strerror(errno));
}

}  // namespace

absl::StatusOr<std::string> LocalPorts::Hold(const std::string& address, bool must_be_free) {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  ASSIGN_OR_RETURN(const AddressInfo info, Resolve(parsed));
  const int file = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return absl::ErrnoToStatus(errno, "making a socket");
  held_.emplace_back(file);
  if (parsed.port == 0) {
    const int port = BindToSteadyPort(file, info.get());
    if (port == 0) return BindError(address);
    return HostPortText(parsed.host, port);
  }
  // SO_REUSEADDR, which servers use too, allows a port whose last connections are still closing.
  const int shares = 1;
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &shares, sizeof shares);
  if (bind(file, info->ai_addr, info->ai_addrlen) == 0) return address;
  if (errno == EADDRINUSE && !must_be_free) return address;
  return BindError(address);
}

}  // namespace cairn
