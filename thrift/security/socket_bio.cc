#include "thrift/security/socket_bio.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace cairn {

const BIO_METHOD* SocketBio::Method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cairn socket");
    BIO_meth_set_read_ex(made, &SocketBio::Read);
    BIO_meth_set_write_ex(made, &SocketBio::Write);
    BIO_meth_set_ctrl(made, &SocketBio::Control);
    return made;
  }();
  return method;
}

BIO* SocketBio::NewBio() {
  BIO* const bio = BIO_new(Method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

bool SocketBio::HasMemory(std::unique_ptr<uint8_t[]>* buffer, size_t bytes) {
  if (*buffer == nullptr) buffer->reset(new (std::nothrow) uint8_t[bytes]);
  if (*buffer == nullptr) error_ = ENOMEM;
  return *buffer != nullptr;
}

int SocketBio::Read(BIO* bio, char* to, size_t bytes, size_t* got) {
  auto& self = *static_cast<SocketBio*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *got = 0;
  if (self.holds_bytes()) {
    *got = std::min(bytes, self.ahead_end_ - self.ahead_begin_);
    std::memcpy(to, self.ahead_.get() + self.ahead_begin_, *got);
    self.ahead_begin_ += *got;
    return 1;
  }
  if (self.reads_left_ <= 0) {
    BIO_set_retry_read(bio);
    return 0;
  }
  if (!self.HasMemory(&self.ahead_, kAheadBytes)) return 0;
  --self.reads_left_;
  std::array<iovec, 2> parts = {{{to, bytes}, {self.ahead_.get(), kAheadBytes}}};
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t part = ::recvmsg(self.fd_, &message, self.waits_ ? 0 : MSG_DONTWAIT);
  if (part > 0) {
    self.received_bytes_ += part;
    *got = std::min(bytes, static_cast<size_t>(part));
    self.ahead_begin_ = 0;
    self.ahead_end_ = static_cast<size_t>(part) - *got;
    return 1;
  }
  if (part == 0) {
    self.ended_ = true;
  } else if (errno == EAGAIN || errno == EINTR) {
    BIO_set_retry_read(bio);
  } else {
    self.error_ = errno;
  }
  return 0;
}

int SocketBio::Write(BIO* bio, const char* from, size_t bytes, size_t* taken) {
  auto& self = *static_cast<SocketBio*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *taken = 0;
  if (!self.HasMemory(&self.gathered_, kGatherBytes)) return 0;
  if (self.end_ == kGatherBytes && !self.Flush()) {
    if (self.error_ == 0) BIO_set_retry_write(bio);
    return 0;
  }
  const size_t part = std::min(bytes, kGatherBytes - self.end_);
  std::memcpy(self.gathered_.get() + self.end_, from, part);
  self.end_ += part;
  *taken = part;
  return 1;
}

bool SocketBio::Flush() {
  if (begin_ < end_) {
    const ssize_t sent = ::send(fd_, gathered_.get() + begin_, end_ - begin_,
                                MSG_NOSIGNAL | (waits_ ? 0 : MSG_DONTWAIT));
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) error_ = errno;
      return false;
    }
    begin_ += static_cast<size_t>(sent);
    if (begin_ < end_) return false;
  }
  begin_ = end_ = 0;
  return true;
}

long SocketBio::Control(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  auto& self = *static_cast<SocketBio*>(BIO_get_data(bio));
  if (command == BIO_CTRL_EOF) return static_cast<long>(self.ended_);
  if (command != BIO_CTRL_FLUSH) return 0;
  BIO_clear_retry_flags(bio);
  if (self.Flush()) return 1;
  if (self.error_ == 0) BIO_set_retry_write(bio);
  return 0;
}

std::string TakeOpensslError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* const reason = ERR_reason_error_string(code);
  if (reason != nullptr) return reason;
  char text[256];
  ERR_error_string_n(code, text, sizeof(text));
  return text;
}

}  // namespace cairn
