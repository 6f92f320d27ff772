// Bytes arrive complete and in order, views are not copied, and no wait exceeds its deadline.
#include "thrift/bulk_transport.h"

#include <poll.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/thrift/raw_socket.h"

namespace cairn {
namespace {

using apache::thrift::transport::TTransportException;
using ::testing::HasSubstr;

TEST(BulkTransport, SmallAndLargeWritesAreSentInOrder) {
  TransportPair pair = MakePair();
  std::string expected;
  std::vector<std::string> views;  // alive until flush
  views.reserve(500);
  for (size_t i = 0; i < 500; ++i) {
    const std::string small(i % 300, static_cast<char>('a' + i % 26));
    pair.transport->write(reinterpret_cast<const uint8_t*>(small.data()),
                          static_cast<uint32_t>(small.size()));
    expected += small;
    if (i % 3 == 0) {
      views.emplace_back(10 + i, static_cast<char>('A' + i % 26));
      pair.transport->WriteView(reinterpret_cast<const std::byte*>(views.back().data()),
                                views.back().size());
      expected += views.back();
    }
  }
  std::string large(3 * BulkTransport::kBufferBytes, 'L');
  std::string received;
  const size_t bytes = expected.size() + large.size();
  std::thread reader([&] { received = pair.raw.Receive(bytes); });
  pair.transport->write(reinterpret_cast<const uint8_t*>(large.data()),
                        static_cast<uint32_t>(large.size()));
  const std::string sent = expected + large;
  large.assign(large.size(), 'X');  // write, unlike WriteView, has copied or sent it
  pair.transport->flush();
  reader.join();
  EXPECT_TRUE(received == sent);
}

TEST(BulkTransport, EveryMessageMayHaveMaxMessageBytes) {
  BulkTransportOptions options;
  options.max_message_bytes = 1000;
  TransportPair pair = MakePair(options);
  ASSERT_TRUE(pair.raw.Send(std::string(5000, 'x')));
  uint8_t bytes[1000];
  for (int message = 0; message < 3; ++message) {
    pair.transport->BeginMessage();
    pair.transport->readAll(bytes, 1000);
    EXPECT_EQ(pair.transport->remaining_bytes(), 0);
  }
  EXPECT_THROW(pair.transport->readAll(bytes, 1), RefusedMessage);
}

TEST(BulkTransport, AReadEndsAtTheDeadline) {
  TransportPair pair = MakePair();
  ASSERT_TRUE(pair.raw.Send("abc"));
  const absl::Duration start = MonotonicNow();
  pair.transport->SetDeadline(Deadline::In(absl::Milliseconds(50)));
  uint8_t bytes[8];
  const auto [type, text] = Thrown([&] { pair.transport->readAll(bytes, 8); });
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("after 3 bytes"));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(49));
  EXPECT_LT(MonotonicNow() - start, absl::Seconds(10));
}

TEST(BulkTransport, AWriteEndsAtTheDeadline) {
  TransportPair pair = MakePair();
  pair.transport->SetDeadline(Deadline::In(absl::Milliseconds(50)));
  const std::string bytes(64 << 20, 'x');  // larger than any socket buffer; the peer does not read
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("while sending"));
}

TEST(BulkTransport, AnExpiredDeadlineIsNotWaitedFor) {
  TransportPair pair = MakePair();
  pair.transport->SetDeadline(Deadline::In(absl::Seconds(-1)));
  uint8_t byte = 0;
  EXPECT_EQ(Thrown([&] { pair.transport->readAll(&byte, 1); }).first,
            TTransportException::TIMED_OUT);
}

TEST(BulkTransport, AServerWaitsBetweenMessagesButNotInsideOne) {
  BulkTransportOptions options;
  options.stall = absl::Milliseconds(100);
  TransportPair pair = MakePair(options);
  pair.transport->BeginMessage();
  uint8_t bytes[4];
  // No bytes for three stall periods: the connection is idle. Then the peer starts a message and
  // stops.
  const absl::Duration start = MonotonicNow();
  std::thread peer([raw = pair.raw.fd()] {
    pollfd never = {raw, 0, 0};
    ::poll(&never, 1, 300);
    EXPECT_EQ(::send(raw, "ab", 2, MSG_NOSIGNAL), 2);
  });
  const auto [type, text] = Thrown([&] { pair.transport->readAll(bytes, 4); });
  peer.join();
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("peer stalled in the middle of a message, after 2 bytes"));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(399));
}

TEST(BulkTransport, ATrickleOfBytesCountsAsAStall) {
  BulkTransportOptions options;
  options.stall = absl::Milliseconds(200);
  TransportPair pair = MakePair(options);
  pair.transport->BeginMessage();
  std::atomic<bool> is_done = false;
  std::thread peer([&] {
    pollfd never = {pair.raw.fd(), 0, 0};
    while (!is_done && ::send(pair.raw.fd(), "x", 1, MSG_NOSIGNAL) == 1) ::poll(&never, 1, 10);
  });
  std::vector<uint8_t> bytes(1 << 20);
  const auto [type, text] = Thrown([&] { pair.transport->readAll(bytes.data(), 1 << 20); });
  is_done = true;
  peer.join();
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("stalled"));
}

TEST(BulkTransport, AClosedPeerIsReportedWithThePosition) {
  TransportPair pair = MakePair();
  ASSERT_TRUE(pair.raw.Send("abc"));
  pair.raw.Close();
  uint8_t bytes[8];
  const auto [type, text] = Thrown([&] { pair.transport->readAll(bytes, 8); });
  EXPECT_EQ(type, TTransportException::END_OF_FILE);
  EXPECT_EQ(text, "peer closed the connection in the middle of a message, after 3 bytes");
}

TEST(BulkTransport, SendingToAClosedPeerIsAnErrorNotASignal) {
  TransportPair pair = MakePair();
  pair.raw.Close();
  const auto [type, text] = Thrown([&] {
    pair.transport->write(reinterpret_cast<const uint8_t*>("x"), 1);
    pair.transport->flush();
  });
  EXPECT_EQ(type, TTransportException::NOT_OPEN);
  EXPECT_THAT(text, HasSubstr("sending to peer"));
}

TEST(BulkTransport, DiscardedBytesAreCountedAndSkipped) {
  BulkTransportOptions options;
  options.max_message_bytes = 200000;
  TransportPair pair = MakePair(options);
  ASSERT_TRUE(pair.raw.Send(std::string(100000, 'x') + "end"));
  pair.transport->Discard(100000);
  EXPECT_EQ(pair.transport->remaining_bytes(), 100000);
  uint8_t bytes[3];
  pair.transport->readAll(bytes, 3);
  EXPECT_EQ(std::string(bytes, bytes + 3), "end");
  EXPECT_THROW(pair.transport->Discard(100000), RefusedMessage);
}

}  // namespace
}  // namespace cairn
