// A client of the local transport that chooses its own bytes at every level.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/client/wire_client.h"
#include "thrift/local/host_id.h"
#include "thrift/local/local_socket.h"

namespace cairn {

// The hello reply to a caller with `host_id`.
inline wire::HelloReply HelloFrom(const std::string& address, const std::string& host_id,
                                  const WireClientOptions& options = {}) {
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  auto client = WireClient::Connect(address, options, deadline);
  EXPECT_OK(client);
  wire::HelloRequest request = ExampleHello();
  request.worker = -1;
  request.incarnation = 0;
  request.host_id = host_id;
  wire::HelloReply reply;
  if (client.ok()) {
    EXPECT_OK((*client)->Call("hello", deadline, [&](auto& stub) { stub.hello(reply, request); }));
  }
  return reply;
}

inline wire::LocalEndpoint OfferFrom(const std::string& address,
                                     const WireClientOptions& options = {}) {
  const wire::HelloReply reply = HelloFrom(address, LocalHostId(), options);
  EXPECT_TRUE(reply.__isset.local);
  return reply.local;
}

// A connected socket on which nothing has been sent.
inline RawSocket ConnectRaw(const std::string& path) {
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), at.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())),
            0);
  return RawSocket(fd);
}

// Sends `bytes` as the messages of a connection, and receives the reply until its end.
inline std::string LocalReplyTo(const std::string& address, const std::string& bytes) {
  const wire::LocalEndpoint offer = OfferFrom(address);
  absl::StatusOr<LocalConnection> connection =
      ConnectLocally(offer.path, offer.ticket, LocalTransport::kSameUser, "server",
                     Deadline::In(absl::Seconds(20)));
  EXPECT_OK(connection);
  if (!connection.ok()) return "";
  SocketStream& stream = *connection->stream;
  for (size_t sent = 0; sent < bytes.size();) {
    const iovec part = {const_cast<char*>(bytes.data()) + sent, bytes.size() - sent};
    const ssize_t moved = stream.Send(&part, 1);
    if (moved < 0) break;
    sent += static_cast<size_t>(moved);
  }
  stream.EndSending();
  std::string all;
  std::vector<char> space(64 << 10);
  for (;;) {
    const iovec to = {space.data(), space.size()};
    const ssize_t got = stream.Receive(&to, 1);
    if (got <= 0) return all;
    all.append(space.data(), static_cast<size_t>(got));
  }
}

}  // namespace cairn
