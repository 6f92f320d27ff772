#include "thrift/local/local_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "thrift/local/local_stream.h"
#include "thrift/local/shared_rings.h"

namespace cairn {
namespace {

constexpr int kBacklog = 128;

// Header of a verdict; its text follows.
struct Verdict {
  uint32_t code = 0;
  uint32_t text_bytes = 0;
};

absl::Status SocketCallFailed(const char* what) {
  const bool is_late = errno == EAGAIN || errno == EINTR;
  const std::string text =
      absl::StrCat("local transport: ", what, ": ", is_late ? "not in time" : std::strerror(errno));
  return is_late ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

absl::StatusOr<socklen_t> AddressOf(const std::string& path, sockaddr_un* address) {
  if (path.empty() || path[0] != '\0' || path.size() > sizeof(address->sun_path)) {
    return InvalidArgument("local transport: \"", absl::CEscape(path),
                           "\" is not the name of an abstract socket");
  }
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
}

// Sends the descriptor `memory` along with the bytes.
bool SendOpening(int fd, const LocalOpening& opening, int memory) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec part = {const_cast<LocalOpening*>(&opening), sizeof(opening)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  return ::sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(opening));
}

// Takes every descriptor that came with `message`. Keeps the last one in `memory` and closes the
// others. Returns the number of descriptors.
size_t TakeDescriptors(msghdr& message, Descriptor* memory) {
  size_t taken = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i, ++taken) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(fd), sizeof(fd));
      memory->Reset(fd);
    }
  }
  return taken;
}

// Limits the next wait of the socket for `option` (SO_RCVTIMEO, SO_SNDTIMEO) to the time left.
void LimitWait(int fd, int option, Deadline deadline) {
  const timeval timeout = absl::ToTimeval(std::max(deadline.Remaining(), absl::Milliseconds(1)));
  ::setsockopt(fd, SOL_SOCKET, option, &timeout, sizeof(timeout));
}

absl::Status ReceiveAll(int fd, void* to, size_t bytes, Deadline deadline) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    LimitWait(fd, SO_RCVTIMEO, deadline);
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got > 0 && deadline.Expired()) {  // of a server that sends a few bytes at a time
      errno = EAGAIN;
      return SocketCallFailed("the server's answer");
    }
    if (got == 0) return absl::UnavailableError("local transport: the server closed it");
    if (got < 0) return SocketCallFailed("the server's answer");
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ReceiveVerdict(int fd, Deadline deadline) {
  Verdict verdict;
  RETURN_IF_ERROR(ReceiveAll(fd, &verdict, sizeof(verdict), deadline));
  std::string text(std::min(verdict.text_bytes, kLocalVerdictBytes), '\0');
  RETURN_IF_ERROR(ReceiveAll(fd, text.data(), text.size(), deadline));
  if (verdict.code == 0) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(verdict.code),
          absl::StrCat("local transport: ", PrintableText(text))};
}

}  // namespace

absl::StatusOr<LocalListener> ListenLocally() {
  std::array<char, 16> drawn;
  if (::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(drawn.size())) {
    return SocketCallFailed("getrandom");
  }
  const std::string path =
      absl::StrCat(absl::string_view("\0cairn-", 7),
                   absl::BytesToHexString(absl::string_view(drawn.data(), drawn.size())));
  sockaddr_un address = {};
  ASSIGN_OR_RETURN(const socklen_t size, AddressOf(path, &address));
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0 || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return SocketCallFailed("listen");
  }
  return LocalListener{std::move(fd), path};
}

absl::StatusOr<LocalPeer> CheckLocalPeer(int fd, LocalTransport allowed, const char* whom) {
  ucred found = {};
  socklen_t size = sizeof(found);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &size) != 0)
    return SocketCallFailed("SO_PEERCRED");
  if (found.uid != ::geteuid() && allowed != LocalTransport::kAnyUser) {
    return PermissionDenied(whom, " is of user ", found.uid, ", this process of user ", ::geteuid(),
                            ": --local_transport=any_user on both sides allows that");
  }
  return LocalPeer{found.pid, found.uid};
}

absl::StatusOr<LocalArrival> ReceiveOpening(int fd, LocalOpening* opening, Descriptor* memory) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec part = {opening, sizeof(*opening)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // CMSG_LEN, not CMSG_SPACE, whose padding would hold a second descriptor.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return LocalArrival::kNotYet;
  if (got <= 0) return LocalArrival::kEnded;
  const size_t descriptors = TakeDescriptors(message, memory);
  if (descriptors > 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
    memory->Reset();
    return absl::InvalidArgumentError(
        "the opening brought more than one descriptor, or this server has none left; it takes one");
  }
  if (got != static_cast<ssize_t>(sizeof(*opening)) || opening->magic != LocalOpening::kMagic) {
    return InvalidArgument("what came first, ", got,
                           " bytes, is no opening of this release's local transport");
  }
  return LocalArrival::kOpening;
}

bool SendVerdict(int fd, const absl::Status& verdict) {
  const std::string text(verdict.message().substr(0, kLocalVerdictBytes));
  const Verdict head = {static_cast<uint32_t>(verdict.code()), static_cast<uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += text;
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

absl::StatusOr<LocalConnection> ConnectLocally(const std::string& path, const std::string& ticket,
                                               LocalTransport allowed, const std::string& peer,
                                               Deadline deadline) {
  sockaddr_un address = {};
  ASSIGN_OR_RETURN(const socklen_t size, AddressOf(path, &address));
  LocalOpening opening;
  opening.ring_bytes = kLocalRingBytes;
  if (ticket.size() != opening.ticket.size()) {
    return InvalidArgument("local transport: a ticket of ", ticket.size(), " bytes; it has ",
                           opening.ticket.size());
  }
  std::copy(ticket.begin(), ticket.end(), opening.ticket.begin());
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return SocketCallFailed("socket");
  const Deadline limit =
      Deadline::Earlier(deadline, Deadline::In(absl::Seconds(kLocalConnectSeconds)));
  LimitWait(fd.get(), SO_SNDTIMEO, limit);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return SocketCallFailed("connect");
  }
  RETURN_IF_ERROR(CheckLocalPeer(fd.get(), allowed, "the server").status());
  Descriptor memory;
  ASSIGN_OR_RETURN(SharedRings rings, SharedRings::Create(kLocalRingBytes, &memory));
  // A server that refuses at once may have closed the socket already; its verdict has the reason.
  (void)SendOpening(fd.get(), opening, memory.get());
  RETURN_IF_ERROR(ReceiveVerdict(fd.get(), limit));
  auto stream =
      std::make_unique<LocalStream>(fd.get(), std::move(rings), LocalStream::Side::kClient, peer);
  return LocalConnection{std::move(fd), std::move(stream)};
}

}  // namespace cairn
