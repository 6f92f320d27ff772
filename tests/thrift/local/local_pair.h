// Both ends of a local connection, or one end and a peer that a test controls byte by byte.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/descriptor.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/bulk_transport.h"
#include "thrift/local/local_stream.h"
#include "thrift/local/shared_rings.h"

namespace cairn {

inline std::array<Descriptor, 2> SocketPair() {
  std::array<int, 2> fds = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

// The same memory as two processes see it, in two mappings.
struct RingViews {
  SharedRings client;
  SharedRings server;
};

inline RingViews MakeRings(uint32_t ring_bytes) {
  Descriptor memory;
  absl::StatusOr<SharedRings> client = SharedRings::Create(ring_bytes, &memory);
  EXPECT_OK(client);
  absl::StatusOr<SharedRings> server = SharedRings::Adopt(memory.get(), ring_bytes);
  EXPECT_OK(server);
  return {*std::move(client), *std::move(server)};
}

struct LocalStreamPair {
  std::array<Descriptor, 2> fds = SocketPair();
  std::unique_ptr<LocalStream> client;
  std::unique_ptr<LocalStream> server;
};

inline LocalStreamPair MakeStreams(uint32_t ring_bytes = kLocalRingBytes) {
  RingViews rings = MakeRings(ring_bytes);
  LocalStreamPair pair;
  pair.client = std::make_unique<LocalStream>(pair.fds[0].get(), std::move(rings.client),
                                              LocalStream::Side::kClient, "the server");
  pair.server = std::make_unique<LocalStream>(pair.fds[1].get(), std::move(rings.server),
                                              LocalStream::Side::kServer, "the client");
  return pair;
}

// A BulkTransport of either side. A test writes to the other end through `raw` and `rings`.
struct LocalTransportPair {
  std::shared_ptr<BulkTransport> transport;
  RawSocket raw;
  SharedRings rings;

  void Say(LocalRecord::Kind kind, uint32_t bytes, uint32_t room = 0) {
    const LocalRecord record = {kind, bytes, room};
    raw.Send({reinterpret_cast<const char*>(&record), sizeof(record)});
  }
  LocalRecord Hear() {
    const std::string bytes = raw.Receive(sizeof(LocalRecord));
    LocalRecord record;
    if (bytes.size() == sizeof(record)) std::memcpy(&record, bytes.data(), sizeof(record));
    return record;
  }
};

// The transport is the server's if `options` have a stall.
inline LocalTransportPair MakeLocalPair(BulkTransportOptions options = {}) {
  RingViews rings = MakeRings(kLocalRingBytes);
  std::array<Descriptor, 2> fds = SocketPair();
  const bool serves = options.stall > absl::ZeroDuration();
  options.peer = "peer";
  const auto socket =
      std::make_shared<apache::thrift::transport::TSocket>(fds[serves ? 1 : 0].Release());
  auto stream = std::make_unique<LocalStream>(
      socket->getSocketFD(), std::move(serves ? rings.server : rings.client),
      serves ? LocalStream::Side::kServer : LocalStream::Side::kClient, "peer");
  auto transport = std::make_shared<BulkTransport>(socket, options, std::move(stream));
  transport->SetDeadline(Deadline::In(absl::Seconds(20)));
  return {std::move(transport), RawSocket(fds[serves ? 0 : 1].Release()),
          std::move(serves ? rings.client : rings.server)};
}

}  // namespace cairn
