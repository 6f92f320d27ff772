// Sockets without a protocol: the bytes of an unknown, a faulty or a malicious peer.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thrift/transport/TSocket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "thrift/bulk_transport.h"

namespace cairn {

// Owns a connected socket whose reads and writes time out after 20 s. Thread safety: none.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    const timeval timeout = {20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&&) = delete;
  ~RawSocket() { Close(); }

  // `address` must have an IPv4 host.
  static RawSocket Connect(const std::string& address) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
    const std::string host = address.substr(0, address.rfind(':'));
    EXPECT_EQ(::inet_pton(AF_INET, host.c_str(), &to.sin_addr), 1) << address;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0) << address;
    return RawSocket(fd);
  }

  int fd() const { return fd_; }
  // False if the peer does not accept all bytes.
  bool Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t part = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (part <= 0) return false;
      sent += static_cast<size_t>(part);
    }
    return true;
  }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  // Receives at most `bytes`, fewer if the peer closes the connection first.
  std::string Receive(size_t bytes) {
    std::string all;
    char part[4096];
    while (all.size() < bytes) {
      const ssize_t got = ::recv(fd_, part, std::min(sizeof(part), bytes - all.size()), 0);
      if (got <= 0) break;
      all.append(part, static_cast<size_t>(got));
    }
    return all;
  }
  std::string ReceiveUntilClosed() { return Receive(SIZE_MAX); }
  // Receives and discards; false if the peer does not close the connection within the timeout.
  bool ReceiveToEnd() {
    char part[65536];
    for (;;) {
      const ssize_t got = ::recv(fd_, part, sizeof(part), 0);
      if (got == 0) return true;
      if (got < 0) return errno != EAGAIN;
    }
  }
  // The next close sends a reset, so that no port stays in TIME_WAIT.
  void CloseWithReset() {
    const linger now = {1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// A BulkTransport and the raw other end of its connection.
struct TransportPair {
  std::shared_ptr<BulkTransport> transport;
  RawSocket raw;
};

inline TransportPair MakePair(BulkTransportOptions options = {}) {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  options.peer = "peer";
  auto transport = std::make_shared<BulkTransport>(
      std::make_shared<apache::thrift::transport::TSocket>(fds[0]), options);
  transport->SetDeadline(Deadline::In(absl::Seconds(20)));
  return {std::move(transport), RawSocket(fds[1])};
}

// The exception thrown by `call`: the type of a TTransportException, and its text.
template <typename Call>
auto Thrown(Call call) {
  using apache::thrift::transport::TTransportException;
  try {
    call();
  } catch (const TTransportException& error) {
    return std::pair(error.getType(), std::string(error.what()));
  }
  return std::pair(TTransportException::UNKNOWN, std::string("nothing was thrown"));
}

// Integers in TBinaryProtocol's encoding.
inline std::string BigEndian32(int32_t value) {
  const uint32_t net = htonl(static_cast<uint32_t>(value));
  return {reinterpret_cast<const char*>(&net), sizeof(net)};
}
inline std::string BigEndian16(int16_t value) {
  const uint16_t net = htons(static_cast<uint16_t>(value));
  return {reinterpret_cast<const char*>(&net), sizeof(net)};
}

}  // namespace cairn
