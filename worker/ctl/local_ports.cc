#include "worker/ctl/local_ports.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
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
  return absl::InvalidArgumentError(
      absl::StrCat("host '", address.host, "' is not known here (", gai_strerror(error), ")"));
}

absl::StatusOr<int> BoundPort(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return absl::ErrnoToStatus(errno, "asking for the port of a socket");
  }
  // Both families have it in the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

LocalPorts::~LocalPorts() {
  for (const int socket : held_) close(socket);
}

absl::StatusOr<std::string> LocalPorts::Hold(const std::string& address, bool must_be_free) {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  ASSIGN_OR_RETURN(const AddressInfo info, Resolve(parsed));
  const int file = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return absl::ErrnoToStatus(errno, "making a socket");
  held_.push_back(file);
  // As the servers do: a port whose last connections are still closing is free. Not for port 0:
  // sockets that may share a port are given the same one.
  const int shares = parsed.port != 0 ? 1 : 0;
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &shares, sizeof shares);
  if (bind(file, info->ai_addr, info->ai_addrlen) != 0) {
    if (errno == EADDRINUSE) {
      if (!must_be_free) return address;
      return absl::AlreadyExistsError(
          absl::StrCat(address,
                       " is in use: end what listens there, or give the task another "
                       "port; 0 means one that is free"));
    }
    if (errno == EADDRNOTAVAIL) {
      return absl::InvalidArgumentError(absl::StrCat(
          address,
          " is not an address of this machine, and launch starts processes on this one "
          "alone: start cairn-ps and cairn-worker there, under Slurm or Kubernetes"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(address, " cannot be listened on: ", std::strerror(errno)));
  }
  if (parsed.port != 0) return address;
  ASSIGN_OR_RETURN(const int port, BoundPort(file));
  return HostPortText(parsed.host, port);
}

}  // namespace cairn
