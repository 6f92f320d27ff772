#include "thrift/socket_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace cairn {

ssize_t PlainStream::Receive(const iovec* parts, size_t count) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);  // only read
  message.msg_iovlen = count;
  const ssize_t got = ::recvmsg(fd_, &message, waits() ? 0 : MSG_DONTWAIT);
  if (got >= 0) return got;
  error_ = errno;
  return error_ == EINTR || error_ == EAGAIN ? kNotYet : kFailed;
}

ssize_t PlainStream::Send(const iovec* parts, size_t count) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | (waits() ? 0 : MSG_DONTWAIT));
  if (sent >= 0) return sent;
  error_ = errno;
  return error_ == EINTR || error_ == EAGAIN ? kNotYet : kFailed;
}

void PlainStream::EndSending() { ::shutdown(fd_, SHUT_WR); }

bool PlainStream::PeerHasData() {
  char byte = 0;
  const ssize_t got = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

absl::Status PlainStream::failure() const { return absl::UnavailableError(std::strerror(error_)); }

}  // namespace cairn
