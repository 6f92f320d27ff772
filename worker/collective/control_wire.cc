#include "worker/collective/control_wire.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/host_lookup.h"
#include "common/status.h"

namespace cairn {
namespace {

// Limit for resolving the name of a listen address, which is this machine's.
constexpr absl::Duration kOwnNamePatience = absl::Seconds(10);

absl::Status SystemError(absl::string_view address, absl::string_view what, int error) {
  return Unavailable(address, ": ", what, ": ", std::generic_category().message(error));
}

absl::StatusOr<HostAddresses> Resolve(const std::string& address, Deadline deadline) {
  ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  absl::StatusOr<HostAddresses> found = LookUpHost(at.host, std::to_string(at.port), deadline);
  if (!found.ok()) return Annotate(found.status(), address);
  return found;
}

// Waits until the socket is ready for `events`.
absl::Status Await(int fd, int16_t events, absl::string_view address, Deadline deadline) {
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline.Remaining() + absl::Microseconds(999));
    pollfd entry = {fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError(address, "poll", errno);
    if (deadline.Expired()) return DeadlineExceeded(address, ": no answer");
  }
}

absl::StatusOr<Descriptor> ConnectTo(const std::string& address, Deadline deadline) {
  ASSIGN_OR_RETURN(const HostAddresses found, Resolve(address, deadline));
  absl::Status failed;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Descriptor fd(::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return SystemError(address, "socket", errno);
    if (::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    int error = errno;
    if (error == EINPROGRESS) {
      RETURN_IF_ERROR(Await(fd.get(), POLLOUT, address, deadline));
      socklen_t size = sizeof(error);
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return fd;
    failed = SystemError(address, "connect", error);
  }
  return failed;
}

absl::Status SendAll(const Descriptor& fd, absl::string_view bytes, absl::string_view address,
                     Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(Await(fd.get(), POLLOUT, address, deadline));
    } else if (errno != EINTR) {
      return SystemError(address, "send", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(const Descriptor& fd, char* to, size_t size, absl::string_view address,
                        Deadline deadline) {
  while (size > 0) {
    RETURN_IF_ERROR(Await(fd.get(), POLLIN, address, deadline));
    const ssize_t got = ::recv(fd.get(), to, size, 0);
    if (got == 0) return Unavailable(address, ": the connection ended");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return SystemError(address, "recv", errno);
    if (got <= 0) continue;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

std::string ControlReader::Bytes() {
  const auto size = Value<uint32_t>();
  if (size > left_.size()) Fail();
  if (!ok_) return "";
  std::string bytes(left_.substr(0, size));
  left_.remove_prefix(size);
  return bytes;
}

absl::StatusOr<Descriptor> ListenAt(const std::string& address) {
  ASSIGN_OR_RETURN(const HostAddresses found, Resolve(address, Deadline::In(kOwnNamePatience)));
  absl::Status failed;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Descriptor fd(::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return SystemError(address, "socket", errno);
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) {
      return fd;
    }
    failed = SystemError(address, "cannot be listened at", errno);
  }
  return failed;
}

std::string ListenAddress(const Descriptor& listener, const std::string& address) {
  sockaddr_storage at = {};
  socklen_t size = sizeof(at);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) return address;
  const uint16_t port = at.ss_family == AF_INET6
                            ? reinterpret_cast<const sockaddr_in6*>(&at)->sin6_port
                            : reinterpret_cast<const sockaddr_in*>(&at)->sin_port;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", ntohs(port));
}

absl::StatusOr<std::string> AskAt(const std::string& address, absl::string_view request,
                                  Deadline deadline, const std::function<void()>& late) {
  if (request.size() > kMaxControlRequestBytes) {
    return InvalidArgument(address, ": request of ", request.size(), " bytes, at most ",
                           kMaxControlRequestBytes);
  }
  ASSIGN_OR_RETURN(const Descriptor fd, ConnectTo(address, deadline));
  const std::string message = ControlWriter().Bytes(request).Take();
  RETURN_IF_ERROR(SendAll(fd, message, address, deadline));
  uint32_t size = 0;
  const absl::Status answered =
      ReceiveAll(fd, reinterpret_cast<char*>(&size), sizeof(size), address, deadline);
  if (absl::IsDeadlineExceeded(answered) && late) late();
  RETURN_IF_ERROR(answered);
  if (size > kMaxControlReplyBytes) {
    return Unavailable(address, ": reply of ", size, " bytes, at most ", kMaxControlReplyBytes,
                       "; another program may listen there");
  }
  std::string reply(size, '\0');
  RETURN_IF_ERROR(ReceiveAll(fd, reply.data(), size, address, deadline));
  return reply;
}

}  // namespace cairn
