// Bytes arrive complete and in order, whatever their number and whichever side sends at the same
// time. A peer that violates the records' protocol is distinguished from one that closed the
// connection.
#include "thrift/local/local_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/local/local_pair.h"
#include "thrift/local/local_socket.h"

namespace cairn {
namespace {

using apache::thrift::transport::TTransportException;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<uint8_t> RandomBytes(std::mt19937_64& random, size_t bytes) {
  std::vector<uint8_t> all(bytes + 7);
  for (size_t i = 0; i + 8 <= all.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(all.data() + i, &word, sizeof(word));
  }
  all.resize(bytes);
  return all;
}

// Sends or receives bytes in parts of random sizes, one part at a time.
class Pump {
 public:
  Pump(LocalStream& stream, std::vector<uint8_t> bytes)
      : stream_(stream), bytes_(std::move(bytes)) {}

  // False: nothing can be sent now.
  bool Send(std::mt19937_64& random) {
    if (sent_ == bytes_.size()) return false;
    if (offered_ == 0) offered_ = 1 + random() % std::min<size_t>(bytes_.size() - sent_, 2 << 20);
    const size_t cut = random() % (offered_ + 1);
    const iovec parts[3] = {{bytes_.data() + sent_, cut},
                            {bytes_.data() + sent_, 0},
                            {bytes_.data() + sent_ + cut, offered_ - cut}};
    const ssize_t sent = stream_.Send(parts, 3);
    EXPECT_NE(sent, SocketStream::kFailed) << stream_.failure();
    if (sent <= 0) return false;
    offered_ = 0;
    sent_ += static_cast<size_t>(sent);
    return true;
  }
  // The same for receiving; checks the received bytes.
  static bool Receive(LocalStream& from, std::mt19937_64& random, const Pump& sender,
                      size_t& received) {
    std::vector<uint8_t> space(1 + random() % (96 << 10));
    const size_t cut = random() % (space.size() + 1);
    const iovec parts[2] = {{space.data(), cut}, {space.data() + cut, space.size() - cut}};
    const ssize_t got = from.Receive(parts, 2);
    EXPECT_NE(got, SocketStream::kFailed) << from.failure();
    if (got <= 0) return false;
    EXPECT_TRUE(std::equal(space.begin(), space.begin() + got,
                           sender.bytes_.begin() + static_cast<int64_t>(received)))
        << "after " << received << " bytes";
    received += static_cast<size_t>(got);
    return true;
  }
  size_t size() const { return bytes_.size(); }

 private:
  LocalStream& stream_;
  std::vector<uint8_t> bytes_;
  size_t sent_ = 0;
  size_t offered_ = 0;  // offered to a Send that must be repeated
};

TEST(LocalStream, BytesOfEverySizePassBothWaysAtOnceInOrder) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    LocalStreamPair pair = MakeStreams(kMinLocalRingBytes << (seed % 4));
    pair.client->SetWaits(false);
    pair.server->SetWaits(false);
    Pump up(*pair.client, RandomBytes(random, 1 + random() % (6 << 20)));
    Pump down(*pair.server, RandomBytes(random, 1 + random() % (6 << 20)));
    size_t up_received = 0;
    size_t down_received = 0;
    // Nothing blocks: in whatever order the sides act, the bytes arrive within this many turns.
    for (int64_t turn = 0; turn < 1'000'000; ++turn) {
      if (up_received == up.size() && down_received == down.size()) break;
      switch (random() % 4) {
        case 0: up.Send(random); break;
        case 1: down.Send(random); break;
        case 2: Pump::Receive(*pair.server, random, up, up_received); break;
        case 3: Pump::Receive(*pair.client, random, down, down_received); break;
      }
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(up_received, up.size());
    EXPECT_EQ(down_received, down.size());
  }
}

TEST(LocalStream, TwoThreadsExchangeMessagesOfRandomSizes) {
  LocalStreamPair pair = MakeStreams();
  constexpr int kMessages = 200;
  const auto size_of = [](int message) {
    std::mt19937_64 random(static_cast<uint64_t>(message));
    const size_t largest = message % 3 == 0 ? 3 << 20 : message % 3 == 1 ? 9000 : 200;
    return 1 + random() % largest;
  };
  const auto exchange = [&](LocalStream& stream, bool begins) {
    for (int message = 0; message < kMessages; ++message) {
      std::mt19937_64 random(static_cast<uint64_t>(message));
      const bool sends = (message % 2 == 0) == begins;
      const std::vector<uint8_t> expected = RandomBytes(random, size_of(message));
      std::vector<uint8_t> bytes = sends ? expected : std::vector<uint8_t>(expected.size());
      for (size_t done = 0; done < bytes.size();) {
        const iovec part = {bytes.data() + done, bytes.size() - done};
        const ssize_t moved = sends ? stream.Send(&part, 1) : stream.Receive(&part, 1);
        if (moved == SocketStream::kNotYet) continue;
        ASSERT_GT(moved, 0) << stream.failure();
        done += static_cast<size_t>(moved);
      }
      ASSERT_TRUE(bytes == expected) << message;
    }
  };
  std::thread other([&] { exchange(*pair.server, false); });
  exchange(*pair.client, true);
  other.join();
}

TEST(LocalStream, SmallMessagesUseNoSharedMemoryAndRoomIsReportedOnlyOnRequest) {
  LocalStreamPair pair = MakeStreams();
  pair.client->SetWaits(false);
  std::vector<uint8_t> bytes(kLocalInlineBytes - 1, 7);
  std::vector<uint8_t> large(kLocalRingBytes / 2, 9);
  for (const std::vector<uint8_t>& sent : {bytes, large}) {
    iovec part = {const_cast<uint8_t*>(sent.data()), sent.size()};
    for (size_t done = 0; done < sent.size();) {
      done += static_cast<size_t>(pair.client->Send(&part, 1));
      part = {const_cast<uint8_t*>(sent.data()) + done, sent.size() - done};
    }
    std::vector<uint8_t> received(sent.size());
    for (size_t done = 0; done < received.size();) {
      const iovec to = {received.data() + done, received.size() - done};
      done += static_cast<size_t>(pair.server->Receive(&to, 1));
    }
    EXPECT_TRUE(received == sent);
    EXPECT_FALSE(pair.client->PeerHasData());
  }
}

TEST(LocalStream, AClosedPeersBytesAreReadToTheirEnd) {
  LocalStreamPair pair = MakeStreams();
  std::vector<uint8_t> bytes(100'000, 5);
  const iovec part = {bytes.data(), bytes.size()};
  ASSERT_EQ(pair.client->Send(&part, 1), 100'000);
  pair.client.reset();
  pair.fds[0].Reset();
  EXPECT_TRUE(pair.server->PeerHasData());
  std::vector<uint8_t> space(200'000);
  const iovec to = {space.data(), space.size()};
  EXPECT_EQ(pair.server->Receive(&to, 1), 100'000);
  EXPECT_EQ(pair.server->Receive(&to, 1), 0);
}

std::pair<TTransportException::TTransportExceptionType, std::string> ReadOne(
    LocalTransportPair& pair, uint32_t bytes = 1) {
  std::vector<uint8_t> space(bytes);
  return Thrown([&] { pair.transport->readAll(space.data(), bytes); });
}

TEST(LocalTransport, AReadEndsAtTheDeadline) {
  LocalTransportPair pair = MakeLocalPair();
  pair.Say(LocalRecord::kRing, 3);
  pair.transport->SetDeadline(Deadline::In(absl::Milliseconds(50)));
  const auto [type, text] = ReadOne(pair, 8);
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("after 3 bytes"));
}

TEST(LocalTransport, AWriteEndsAtTheDeadlineWhereNobodyReads) {
  LocalTransportPair pair = MakeLocalPair();
  const std::string bytes(4 << 20, 'x');
  const absl::Duration start = MonotonicNow();
  pair.transport->SetDeadline(Deadline::In(absl::Seconds(1)));  // the ring fills within it
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("while sending, after 524288 bytes"));
  EXPECT_LT(MonotonicNow() - start, absl::Seconds(20));
}

TEST(LocalTransport, APeerThatSendsWithoutReadingDoesNotKeepTheSenderBusy) {
  LocalTransportPair pair = MakeLocalPair();
  // More than is held for the reader: the sender waits without polling for each record.
  pair.Say(LocalRecord::kInline, 2 * kLocalHeldBytes);
  pair.raw.Send(std::string(2 * kLocalHeldBytes, 'x'));
  const std::string bytes(4 << 20, 'x');
  pair.transport->SetDeadline(Deadline::In(absl::Milliseconds(200)));
  timespec before = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  timespec after = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  EXPECT_EQ(type, TTransportException::TIMED_OUT) << text;
  EXPECT_LT(absl::DurationFromTimespec(after) - absl::DurationFromTimespec(before),
            absl::Milliseconds(100));
}

// The end of the connection is behind the bytes that are held for the reader, so reading does not
// show it.
TEST(LocalTransport, APeerThatClosesWhileItsBytesAreHeldEndsTheSending) {
  LocalTransportPair pair = MakeLocalPair();
  pair.Say(LocalRecord::kInline, 2 * kLocalHeldBytes);
  pair.raw.Send(std::string(2 * kLocalHeldBytes, 'x'));
  std::thread closer([&] {
    // Once the ring is full, the sender waits and sends nothing that the close would break.
    for (uint32_t heard = 0; heard < kLocalRingBytes;) heard += pair.Hear().bytes;
    pair.raw.Close();
  });
  const std::string bytes(4 << 20, 'x');
  pair.transport->SetDeadline(Deadline::In(absl::Seconds(5)));
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  closer.join();
  EXPECT_EQ(type, TTransportException::NOT_OPEN);
  EXPECT_THAT(text, HasSubstr("closed the connection"));
}

// A server that sends a byte at a time does not keep its client waiting for longer.
TEST(LocalTransport, ATrickledAnswerToTheOpeningHasOneDeadline) {
  const absl::StatusOr<LocalListener> listener = ListenLocally();
  ASSERT_OK(listener);
  std::thread server([fd = listener->fd.get()] {
    pollfd arrival = {fd, POLLIN, 0};
    ASSERT_EQ(::poll(&arrival, 1, 20000), 1);
    RawSocket raw(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    const std::string head("\x01\x00\x00\x00\x00\x10\x00\x00", 8);  // an error with a long text
    const Deadline end = Deadline::In(absl::Seconds(20));
    for (size_t i = 0; !end.Expired(); ++i) {
      if (!raw.Send(std::string(1, i < head.size() ? head[i] : 'x'))) return;
      pollfd closed = {raw.fd(), 0, 0};  // POLLHUP
      if (::poll(&closed, 1, 20) != 0) return;
    }
  });
  const Deadline generous = Deadline::In(absl::Seconds(10));
  EXPECT_THAT(ConnectLocally(listener->path, std::string(sizeof(LocalOpening().ticket), 't'),
                             LocalTransport::kSameUser, "peer", Deadline::In(absl::Seconds(0.3))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not in time")));
  EXPECT_FALSE(generous.Expired());
  server.join();
}

TEST(LocalTransport, AServerWaitsBetweenMessagesButNotInsideOne) {
  LocalTransportPair pair = MakeLocalPair({.stall = absl::Milliseconds(100)});
  pair.transport->BeginMessage();
  pair.Say(LocalRecord::kRing, 2);
  const auto [type, text] = ReadOne(pair, 4);
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("peer stalled in the middle of a message, after 2 bytes"));
}

TEST(LocalTransport, AStallOfTheReaderEndsAServersReply) {
  LocalTransportPair pair = MakeLocalPair({.stall = absl::Milliseconds(100)});
  pair.transport->BeginWrite();
  const std::string bytes(4 << 20, 'x');
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  EXPECT_EQ(type, TTransportException::TIMED_OUT);
  EXPECT_THAT(text, HasSubstr("peer stalled after 524288 bytes of a message"));
}

TEST(LocalTransport, AMessageBeyondTheLimitIsRefused) {
  LocalTransportPair pair = MakeLocalPair({.max_message_bytes = 1000});
  pair.Say(LocalRecord::kRing, 5000);
  std::vector<uint8_t> bytes(1000);
  pair.transport->BeginMessage();
  pair.transport->readAll(bytes.data(), 1000);
  EXPECT_THROW(pair.transport->readAll(bytes.data(), 1), RefusedMessage);
}

TEST(LocalTransport, APeerThatClosesInTheMiddleIsNamed) {
  {
    LocalTransportPair pair = MakeLocalPair();
    pair.Say(LocalRecord::kRing, 3);
    pair.raw.Close();
    const auto [type, text] = ReadOne(pair, 8);
    EXPECT_EQ(type, TTransportException::END_OF_FILE);
    EXPECT_EQ(text, "peer closed the connection in the middle of a message, after 3 bytes");
  }
  LocalTransportPair pair = MakeLocalPair();
  pair.raw.EndSending();
  const std::string bytes(4 << 20, 'x');
  const auto [type, text] = Thrown([&] {
    pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    pair.transport->flush();
  });
  EXPECT_EQ(type, TTransportException::NOT_OPEN);
  EXPECT_THAT(text, AllOf(HasSubstr("sending to peer"), HasSubstr("closed the connection")));
}

TEST(LocalTransport, ARefusalIsReadDuringAWaitForRoom) {
  LocalTransportPair pair = MakeLocalPair();
  pair.Say(LocalRecord::kInline, 2);
  pair.raw.Send("no");
  pair.raw.EndSending();
  const std::string bytes(4 << 20, 'x');
  EXPECT_EQ(Thrown([&] {
              pair.transport->WriteView(reinterpret_cast<const std::byte*>(bytes.data()),
                                        bytes.size());
              pair.transport->flush();
            }).first,
            TTransportException::NOT_OPEN);
  uint8_t said[2];
  pair.transport->readAll(said, 2);
  EXPECT_EQ(std::string(said, said + 2), "no");
}

TEST(LocalTransport, APeerThatOverwritesItsRingHarmsOnlyItself) {
  LocalTransportPair pair = MakeLocalPair({.stall = absl::Seconds(20)});
  std::atomic<bool> is_done = false;
  std::thread scribbler([&] {
    std::mt19937_64 random(1);
    for (uint64_t i = 0; !is_done; ++i) {
      const uint64_t word = random();
      std::memcpy(pair.rings.ring(static_cast<int>(i % 2)) + word % (kLocalRingBytes - 8), &word,
                  8);
    }
  });
  std::vector<uint8_t> space(kLocalRingBytes / 2);
  for (int round = 0; round < 200; ++round) {
    pair.Say(LocalRecord::kRingAndAsks, static_cast<uint32_t>(space.size()));
    pair.transport->readAll(space.data(), static_cast<uint32_t>(space.size()));
    const LocalRecord told = pair.Hear();
    EXPECT_EQ(told.kind, LocalRecord::kRoom);
    EXPECT_EQ(told.room, space.size());
  }
  is_done = true;
  scribbler.join();
}

TEST(LocalTransport, FalseRecordsAreReportedWithTheReason) {
  const auto refused = [](LocalRecord::Kind kind, uint32_t bytes, uint32_t room, const char* why) {
    LocalTransportPair pair = MakeLocalPair();
    pair.Say(kind, bytes, room);
    const auto [type, text] = ReadOne(pair);
    EXPECT_EQ(type, TTransportException::CORRUPTED_DATA) << why;
    EXPECT_THAT(text,
                AllOf(HasSubstr("peer broke the rules of the local transport"), HasSubstr(why)));
    EXPECT_EQ(pair.transport->failure().code(), absl::StatusCode::kInternal);
  };
  refused(LocalRecord::kRing, kLocalRingBytes + 1, 0, "524289 bytes more, and 524288 were free");
  refused(LocalRecord::kRingAndAsks, UINT32_MAX, 0, "bytes more");
  refused(LocalRecord::kRing, 5, 1, "says that it read 1 bytes, and there were 0");
  refused(LocalRecord::kRoom, 0, UINT32_MAX, "says that it read");
  refused(LocalRecord::kRoom, 1, 0, "kind 4 with 1 bytes");
  refused(LocalRecord::kRoom, 0, 0, "room for 0");
  refused(LocalRecord::kRingAndAsks, 0, 0, "has written nothing since it last asked");
  refused(LocalRecord::kInline, 0, 0, "kind 1 with 0 bytes");
  refused(LocalRecord::kRing, 0, 0, "kind 2 with 0 bytes");
  refused(static_cast<LocalRecord::Kind>(0), 4, 0, "kind 0");
  refused(static_cast<LocalRecord::Kind>(77), 4, 0, "kind 77");
}

TEST(LocalTransport, ARingIsNotOverfilledByManyRecords) {
  LocalTransportPair pair = MakeLocalPair();
  for (int i = 0; i < 4; ++i) pair.Say(LocalRecord::kRing, kLocalRingBytes / 4);
  std::vector<uint8_t> space(kLocalRingBytes);
  pair.transport->readAll(space.data(), kLocalRingBytes);
  // The bytes were read, but the peer was not notified, so it cannot know.
  pair.Say(LocalRecord::kRing, 1);
  EXPECT_THAT(ReadOne(pair).second, HasSubstr("1 bytes more, and 0 were free"));
}

// A peer cannot keep this side busy with empty records.
TEST(LocalTransport, RequestsForRoomWithoutBytesBetweenThemEndTheConnection) {
  LocalTransportPair pair = MakeLocalPair();
  std::vector<uint8_t> space(2);
  pair.Say(LocalRecord::kRing, 1);
  pair.Say(LocalRecord::kRingAndAsks, 0);
  pair.Say(LocalRecord::kRing, 1);
  pair.transport->readAll(space.data(), 2);
  pair.Say(LocalRecord::kRingAndAsks, 0);
  pair.Say(LocalRecord::kRingAndAsks, 0);
  EXPECT_THAT(ReadOne(pair).second, HasSubstr("has written nothing since it last asked"));
}

TEST(LocalTransport, APeerThatAsksForRoomButDoesNotReadIsNamed) {
  LocalTransportPair pair = MakeLocalPair({.stall = absl::Seconds(20)});
  const int small = 4096;
  ::setsockopt(pair.raw.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  ::setsockopt(pair.transport->fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  std::string text = "nothing was thrown";
  for (int i = 0; i < 100'000 && text == "nothing was thrown"; ++i) {
    pair.Say(LocalRecord::kRingAndAsks, 1);
    text = ReadOne(pair).second;
  }
  EXPECT_THAT(text, HasSubstr("asks for room, and does not read what it is told"));
}

// The seeds determine the garbage and its sizes.
TEST(LocalTransport, GarbageOnTheSocketEndsOnlyTheConnection) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    LocalTransportPair pair = MakeLocalPair();
    std::string garbage;
    for (int i = 0; i < 20; ++i) {
      const LocalRecord record = {static_cast<uint32_t>(random() % 6),
                                  static_cast<uint32_t>(random() >> (40 + random() % 24)),
                                  random() % 8 == 0 ? static_cast<uint32_t>(random()) : 0};
      garbage.append(reinterpret_cast<const char*>(&record), sizeof(record) - random() % 2);
    }
    pair.raw.Send(garbage);
    pair.raw.EndSending();
    const auto type = ReadOne(pair, 2 << 20).first;
    EXPECT_TRUE(type == TTransportException::CORRUPTED_DATA ||
                type == TTransportException::END_OF_FILE)
        << seed;
  }
}

TEST(LocalTransport, ControlCharactersOfARefusalAreShownAsText) {
  const absl::StatusOr<LocalListener> listener = ListenLocally();
  ASSERT_OK(listener);
  int accepted = -1;  // open until the client has read the refusal
  std::thread server([&] {
    pollfd waiting = {listener->fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 20'000), 1);
    accepted = ::accept(listener->fd.get(), nullptr, nullptr);
    EXPECT_TRUE(SendVerdict(accepted, absl::PermissionDeniedError("no\x1b[2J")));
  });
  const absl::Status refused =
      ConnectLocally(listener->path, std::string(kLocalTicketBytes, 't'), LocalTransport::kSameUser,
                     "server", Deadline::In(absl::Seconds(20)))
          .status();
  server.join();
  const Descriptor end(accepted);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("no\\x1b[2J")));
}

}  // namespace
}  // namespace cairn
