// Callers on the server's host connect with a ticket that hello gave them, and keep the identity
// that they had at hello; others learn why they are refused. Whatever a caller does and whenever it
// dies, it leaves nothing behind.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/own_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/local/raw_local.h"
#include "thrift/errors.h"
#include "thrift/local/local_stream.h"
#include "thrift/local/shared_rings.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kSameUser = LocalTransport::kSameUser;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

absl::Status Push(WireClient& client) {
  wire::PushReply reply;
  return client.Call("push", Soon(), [&](auto& stub) { stub.push(reply, ExamplePush()); });
}

// Lets other threads run for `time`.
void LetPass(absl::Duration time) {
  for (const Deadline lapse = Deadline::In(time); !lapse.Expired();) std::this_thread::yield();
}

// Sends `bytes` of the opening, with `messages` control messages of `each` copies of the descriptor
// `memory`.
void SayOpeningWith(const RawSocket& socket, const LocalOpening& opening, int memory,
                    size_t messages, size_t each, size_t bytes = sizeof(LocalOpening)) {
  const std::vector<int> descriptors(each, memory);
  const size_t payload = each * sizeof(int);
  std::vector<std::max_align_t> control(messages * CMSG_SPACE(payload) / sizeof(std::max_align_t) +
                                        1);
  iovec part = {const_cast<LocalOpening*>(&opening), bytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = messages > 0 ? control.data() : nullptr;
  message.msg_controllen = messages * CMSG_SPACE(payload);
  for (cmsghdr* header = messages > 0 ? CMSG_FIRSTHDR(&message) : nullptr; messages-- > 0;
       header = CMSG_NXTHDR(&message, header)) {
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(payload);
    std::memcpy(CMSG_DATA(header), descriptors.data(), payload);
  }
  EXPECT_EQ(::sendmsg(socket.fd(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

// Sends the opening, with a descriptor unless `memory` is negative.
void SayOpening(const RawSocket& socket, const LocalOpening& opening, int memory,
                size_t bytes = sizeof(LocalOpening)) {
  SayOpeningWith(socket, opening, memory, memory >= 0 ? 1 : 0, 1, bytes);
}

class LocalListenerTest : public ::testing::Test {
 protected:
  void Start(const ListenerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(engine_, OnOwnAddress(options));
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
  }
  std::string address() const { return listener_->address(); }
  std::unique_ptr<WireClient> Connect(WireClientOptions options = {}) {
    options.local = kSameUser;
    auto client = WireClient::Connect(address(), options, Soon());
    EXPECT_OK(client);
    return *std::move(client);
  }
  static LocalOpening OpeningWith(const std::string& ticket) {
    LocalOpening opening;
    opening.ring_bytes = kLocalRingBytes;
    std::copy_n(ticket.begin(), std::min(ticket.size(), opening.ticket.size()),
                opening.ticket.begin());
    return opening;
  }
  // The server's answer to an opening.
  std::string AnswerTo(const std::string& path, const LocalOpening& opening, int memory,
                       size_t bytes = sizeof(LocalOpening)) {
    RawSocket socket = ConnectRaw(path);
    SayOpening(socket, opening, memory, bytes);
    return socket.ReceiveUntilClosed();
  }
  // Waits, because the server's own threads notice that connections are over.
  void ExpectConnectionsAtMost(int64_t count) {
    const Deadline deadline = Soon();
    while (listener_->statistics().connections > count && !deadline.Expired())
      std::this_thread::yield();
    EXPECT_LE(listener_->statistics().connections, count);
  }
  void ExpectNobody() {
    ExpectConnectionsAtMost(0);
    EXPECT_EQ(engine_.message_bytes(), 0);
    EXPECT_EQ(SharedRingMappings(), 0);
  }
  void ExpectStillServing() {
    const auto client = Connect();
    EXPECT_TRUE(client->is_local()) << client->local_failure();
    EXPECT_OK(Heartbeat(*client));
  }

  FakeEngine engine_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(LocalListenerTest, IsOfferedToCallersOfThisHostAlone) {
  Start();
  const wire::LocalEndpoint offer = OfferFrom(address());
  EXPECT_EQ(offer.path[0], '\0');
  EXPECT_EQ(offer.ticket.size(), kLocalTicketBytes);
  EXPECT_NE(OfferFrom(address()).ticket, offer.ticket);
  EXPECT_FALSE(HelloFrom(address(), "").__isset.local);
  EXPECT_FALSE(HelloFrom(address(), LocalHostId() + "x").__isset.local);
  // A caller over the local transport gets no further offer.
  EXPECT_FALSE(HelloFrom(address(), LocalHostId(), {.local = kSameUser}).__isset.local);
}

TEST_F(LocalListenerTest, IsOffWhereItIsSwitchedOff) {
  Start({.local_transport = LocalTransport::kOff});
  EXPECT_FALSE(HelloFrom(address(), LocalHostId()).__isset.local);
  const auto client = Connect();
  EXPECT_FALSE(client->is_local());
  EXPECT_OK(client->local_failure());
  EXPECT_OK(Heartbeat(*client));
}

TEST_F(LocalListenerTest, ClientsSwitchItOffToo) {
  Start();
  const auto client = WireClient::Connect(address(), {}, Soon());
  ASSERT_OK(client);
  EXPECT_FALSE((*client)->is_local());
}

TEST_F(LocalListenerTest, MemoryIsChargedWhileItIsShared) {
  Start();
  {
    const auto client = Connect();
    ASSERT_OK(Heartbeat(*client));
    EXPECT_EQ(engine_.message_bytes(), 2 * int64_t{kLocalRingBytes});
    EXPECT_EQ(SharedRingMappings(), 2);  // both sides are in this process
  }
  ExpectNobody();
}

TEST_F(LocalListenerTest, WithoutMemoryForItClientsGoOnOverTcp) {
  FakeEngine small(FakeEngineOptions{.message_budget_bytes = 64 << 10});
  const auto listener = Listener::Start(small, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto client = WireClient::Connect((*listener)->address(), {.local = kSameUser}, Soon());
  ASSERT_OK(client);
  EXPECT_FALSE((*client)->is_local());
  EXPECT_THAT((*client)->local_failure(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("connect to " + OwnHost()), HasSubstr("local transport: "),
                             HasSubstr("the budget is 65536"))));
  EXPECT_OK(Heartbeat(**client));
}

TEST_F(LocalListenerTest, CountsAmongAllConnections) {
  Start({.max_connections = 2});
  const auto tcp = WireClient::Connect(address(), {}, Soon());
  ASSERT_OK(tcp);
  ASSERT_OK(Heartbeat(**tcp));
  const auto client = Connect();  // TCP admits one more connection, and then none
  EXPECT_FALSE(client->is_local());
  EXPECT_THAT(client->local_failure(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--max_connections")));
  EXPECT_OK(Heartbeat(*client));
}

TEST_F(LocalListenerTest, CallersOfThisHostCountAsOnePeer) {
  Start({.max_connections_per_peer = 2});
  const auto first = Connect();
  const auto second = Connect();
  const auto third = Connect();
  EXPECT_TRUE(first->is_local());
  EXPECT_TRUE(second->is_local());
  EXPECT_FALSE(third->is_local());
  EXPECT_THAT(third->local_failure().message(),
              AllOf(HasSubstr("2 connections of this host"), HasSubstr("_per_peer")));
}

TEST_F(LocalListenerTest, ATicketIsGoodOnceAndOthersNever) {
  Start();
  Descriptor memory;
  const auto rings = SharedRings::Create(kLocalRingBytes, &memory);
  ASSERT_OK(rings);
  const wire::LocalEndpoint offer = OfferFrom(address());
  const std::string unknown(kLocalTicketBytes, 'x');
  EXPECT_THAT(AnswerTo(offer.path, OpeningWith(unknown), memory.get()),
              HasSubstr("the ticket was not issued by this server, was used, or has expired"));
  {
    RawSocket socket = ConnectRaw(offer.path);
    SayOpening(socket, OpeningWith(offer.ticket), memory.get());
    EXPECT_EQ(socket.Receive(8), std::string(8, '\0'));  // admitted
  }
  EXPECT_THAT(AnswerTo(offer.path, OpeningWith(offer.ticket), memory.get()), HasSubstr("was used"));
  ExpectStillServing();
}

TEST_F(LocalListenerTest, ATicketIsTooOldAfterHandshakeSeconds) {
  Start({.handshake_seconds = 0.05});
  const wire::LocalEndpoint offer = OfferFrom(address());
  LetPass(absl::Milliseconds(60));
  const auto late = ConnectLocally(offer.path, offer.ticket, kSameUser, "ps:0", Soon());
  EXPECT_THAT(late.status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("has expired")));
}

TEST_F(LocalListenerTest, MemoryThatCannotBeReliedOnIsRefused) {
  Start();
  constexpr off_t kBytes = 2 * off_t{kLocalRingBytes};
  const auto refused = [&](const Descriptor& memory, uint32_t ring_bytes, const char* why) {
    const wire::LocalEndpoint offer = OfferFrom(address());
    LocalOpening opening = OpeningWith(offer.ticket);
    opening.ring_bytes = ring_bytes;
    EXPECT_THAT(AnswerTo(offer.path, opening, memory.get()), HasSubstr(why));
  };
  const auto memory = [](off_t bytes, int seals) {
    Descriptor fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  refused(Descriptor(), kLocalRingBytes, "no memory descriptor was sent");
  refused(memory(kBytes, 0), kLocalRingBytes, "is not sealed");
  refused(memory(kBytes / 2, kSeals), kLocalRingBytes, "has 524288 bytes; two rings of 524288");
  refused(memory(kBytes, kSeals), 3, "rings of 3 bytes");
  refused(memory(int64_t{1} << 40, kSeals), 1U << 31, "rings of 2147483648 bytes");
  refused(Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)), kLocalRingBytes, "no memfd");
  ExpectStillServing();
  ExpectNobody();
}

TEST_F(LocalListenerTest, WhatIsNoOpeningIsRefused) {
  Start();
  const wire::LocalEndpoint offer = OfferFrom(address());
  LocalOpening other = OpeningWith(offer.ticket);
  other.magic[7] = '2';
  EXPECT_THAT(AnswerTo(offer.path, other, -1), HasSubstr("28 bytes, is no opening"));
  EXPECT_THAT(AnswerTo(offer.path, OpeningWith(offer.ticket), -1, 5),
              HasSubstr("5 bytes, is no opening"));
  RawSocket thrift = ConnectRaw(offer.path);
  thrift.Send(ExampleFrames()[0].bytes);
  EXPECT_THAT(thrift.ReceiveUntilClosed(), HasSubstr("is no opening"));
  { const RawSocket goes = ConnectRaw(offer.path); }
  const int64_t before = OpenDescriptors();
  for (int i = 0; i < 20; ++i) AnswerTo(offer.path, other, STDIN_FILENO);
  ExpectNobody();
  EXPECT_LE(OpenDescriptors(), before);
  ExpectStillServing();
}

// The control buffer has space for two descriptors if it is sized by CMSG_SPACE. 253 is the
// kernel's SCM_MAX_FD.
TEST_F(LocalListenerTest, DescriptorsBeyondTheOneOfAnOpeningAreClosed) {
  Start();
  const wire::LocalEndpoint offer = OfferFrom(address());
  const int64_t before = OpenDescriptors();
  for (const auto& [messages, each] : {std::pair{1, 2}, {2, 1}, {1, 3}, {3, 2}, {1, 253}}) {
    for (int i = 0; i < 8; ++i) {
      RawSocket socket = ConnectRaw(offer.path);
      SayOpeningWith(socket, OpeningWith(offer.ticket), STDIN_FILENO, static_cast<size_t>(messages),
                     static_cast<size_t>(each));
      EXPECT_THAT(socket.ReceiveUntilClosed(), HasSubstr("more than one descriptor"));
    }
  }
  ExpectNobody();
  EXPECT_LE(OpenDescriptors(), before);
  ExpectStillServing();
}

TEST_F(LocalListenerTest, WhoSaysNothingHasHandshakeSeconds) {
  Start({.handshake_seconds = 0.1});
  RawSocket silent = ConnectRaw(OfferFrom(address()).path);
  EXPECT_THAT(silent.ReceiveUntilClosed(), HasSubstr("it sent nothing in time"));
}

TEST_F(LocalListenerTest, AServerThatDoesNotLetInIsGivenUp) {
  const absl::StatusOr<LocalListener> mute = ListenLocally();
  ASSERT_OK(mute);
  const std::string ticket(kLocalTicketBytes, 't');
  EXPECT_THAT(
      ConnectLocally(mute->path, ticket, kSameUser, "ps:0", Deadline::In(absl::Milliseconds(50)))
          .status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not in time")));
  EXPECT_THAT(ConnectLocally(mute->path + "x", ticket, kSameUser, "ps:0", Soon()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Connection refused")));
  EXPECT_THAT(
      ConnectLocally("/tmp/x", ticket, kSameUser, "ps:0", Soon()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not the name of an abstract")));
  EXPECT_THAT(ConnectLocally(mute->path, "short", kSameUser, "ps:0", Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a ticket of 5 bytes")));
}

TEST_F(LocalListenerTest, AFloodOfSilentCallersPushesItselfOut) {
  Start({.max_handshakes = 4});
  const std::string path = OfferFrom(address()).path;
  std::vector<RawSocket> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(ConnectRaw(path));
  ExpectStillServing();
  ExpectConnectionsAtMost(4);
  EXPECT_EQ(silent.front().ReceiveUntilClosed(), "");
}

TEST_F(LocalListenerTest, ACallerIsWhoItWasOverTls) {
  TestCertificates certificates;
  Start({.security = certificates.Issue(TestCertificates::ServerRequest())});
  const auto connect = [&](const std::string& name, RoleSet roles) {
    return Connect(
        {.security =
             ClientSecurity::Load(certificates.Issue(TestCertificates::ClientRequest(name, roles)))
                 .value()});
  };
  const auto reader = connect("dashboard", kReader);
  ASSERT_TRUE(reader->is_local()) << reader->local_failure();
  EXPECT_THAT(Push(*reader), StatusIs(absl::StatusCode::kPermissionDenied,
                                      HasSubstr("\"dashboard\" has the role reader")));
  const auto worker = connect("trainer", kWorker);
  ASSERT_TRUE(worker->is_local()) << worker->local_failure();
  EXPECT_THAT(Heartbeat(*worker), absl::OkStatus());
  // A certificate without a role gets no ticket, and the same message as over TLS.
  const auto nobody = WireClient::Connect(
      address(),
      {.security =
           ClientSecurity::Load(certificates.Issue(TestCertificates::ClientRequest("nobody", 0)))
               .value(),
       .local = kSameUser},
      Soon());
  EXPECT_THAT(nobody.status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("names no role")));
}

TEST_F(LocalListenerTest, ATokenIsRevokedThereToo) {
  TestCertificates files;
  const std::string accepted = files.path("tokens");
  WriteFile(accepted, "0123456789abcdef-the-token worker trainer\n");
  Start({.security = {.accepted_tokens = accepted}});
  SecurityOptions security;
  security.token_file = files.path("token");
  WriteFile(security.token_file, "0123456789abcdef-the-token\n");
  const auto client = Connect({.security = ClientSecurity::Load(security).value()});
  ASSERT_TRUE(client->is_local()) << client->local_failure();
  ASSERT_OK(Heartbeat(*client));
  WriteFile(accepted, "0123456789abcdef-another-token worker trainer\n");
  absl::Status status;
  for (const Deadline deadline = Soon(); status.ok() && !deadline.Expired();) {
    status = Heartbeat(*client);
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("revoked")));
}

// Runs `body` in a thread of another user. False: this process may not change its user.
bool AsNobody(const std::function<void()>& body) {
  constexpr uid_t kNobody = 65534;
  bool is_nobody = false;
  std::thread other([&] {  // not the C library's setresuid, which would change all threads
    is_nobody = ::syscall(SYS_setresuid, -1, kNobody, -1) == 0;
    if (is_nobody) body();
  });
  other.join();
  return is_nobody;
}

TEST_F(LocalListenerTest, OtherUsersAreTurnedAwayAtOnce) {
  Start();
  const wire::LocalEndpoint offer = OfferFrom(address());
  const bool could = AsNobody([&] {
    EXPECT_THAT(ConnectRaw(offer.path).ReceiveUntilClosed(),
                AllOf(HasSubstr("the caller is of user 65534, this process of user 0"),
                      HasSubstr("--local_transport=any_user on both sides allows that")));
    EXPECT_THAT(ConnectLocally(offer.path, offer.ticket, kSameUser, "ps:0", Soon()).status(),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("the server is of user 0, this process of user 65534")));
    EXPECT_THAT(
        ConnectLocally(offer.path, offer.ticket, LocalTransport::kAnyUser, "ps:0", Soon()).status(),
        StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("the caller is of user 65534")));
  });
  if (!could) GTEST_SKIP() << "only root may be another user";
  EXPECT_OK(ConnectLocally(offer.path, offer.ticket, kSameUser, "ps:0", Soon()));
}

TEST_F(LocalListenerTest, OtherUsersComeInWhereBothSidesAllowIt) {
  Start({.local_transport = LocalTransport::kAnyUser});
  const bool could = AsNobody([&] {
    const auto client = WireClient::Connect(address(), {.local = LocalTransport::kAnyUser}, Soon());
    ASSERT_OK(client);
    EXPECT_TRUE((*client)->is_local()) << (*client)->local_failure();
    EXPECT_OK(Heartbeat(**client));
    const auto careful = WireClient::Connect(address(), {.local = kSameUser}, Soon());
    ASSERT_OK(careful);
    EXPECT_FALSE((*careful)->is_local());
    EXPECT_OK(Heartbeat(**careful));
  });
  if (!could) GTEST_SKIP() << "only root may be another user";
}

// Invalid records, after the caller was admitted.
TEST_F(LocalListenerTest, AProvenCallerThatBreaksTheRulesIsClosed) {
  Start();
  for (const LocalRecord record :
       {LocalRecord{LocalRecord::kRing, UINT32_MAX, 0}, LocalRecord{LocalRecord::kRoom, 0, 9},
        LocalRecord{99, 1, 1}, LocalRecord{LocalRecord::kRing, 100'000, 0}}) {
    Descriptor memory;
    const auto rings = SharedRings::Create(kLocalRingBytes, &memory);
    ASSERT_OK(rings);
    std::memset(rings->ring(0), 0xff, kLocalRingBytes);  // not a Thrift message
    const wire::LocalEndpoint offer = OfferFrom(address());
    RawSocket socket = ConnectRaw(offer.path);
    SayOpening(socket, OpeningWith(offer.ticket), memory.get());
    ASSERT_EQ(socket.Receive(8).size(), 8U);
    socket.Send({reinterpret_cast<const char*>(&record), sizeof(record)});
    EXPECT_EQ(socket.ReceiveUntilClosed(), "");
  }
  ExpectStillServing();
  ExpectNobody();
}

// A valid message in the ring that changes while the server reads it, thousands of times.
TEST_F(LocalListenerTest, AMessageThatChangesWhileItIsReadIsAnsweredOrClosed) {
  Start();
  std::string frame;
  for (const ExampleFrame& example : ExampleFrames()) frame += example.bytes;
  frame.resize(std::max<size_t>(frame.size(), kLocalInlineBytes));
  std::mt19937_64 random(1);
  for (int round = 0; round < 150; ++round) {
    Descriptor memory;
    const auto rings = SharedRings::Create(kLocalRingBytes, &memory);
    ASSERT_OK(rings);
    const wire::LocalEndpoint offer = OfferFrom(address());
    RawSocket socket = ConnectRaw(offer.path);
    SayOpening(socket, OpeningWith(offer.ticket), memory.get());
    ASSERT_EQ(socket.Receive(8).size(), 8U);
    std::memcpy(rings->ring(0), frame.data(), frame.size());
    const LocalRecord record = {LocalRecord::kRing, static_cast<uint32_t>(frame.size()), 0};
    socket.Send({reinterpret_cast<const char*>(&record), sizeof(record)});
    for (int i = 0; i < 300; ++i) {
      rings->ring(0)[random() % frame.size()] = static_cast<std::byte>(random());
      rings->ring(1)[random() % kLocalRingBytes] = static_cast<std::byte>(random());
    }
    socket.EndSending();
    EXPECT_TRUE(socket.ReceiveToEnd()) << round;
  }
  ExpectStillServing();
  ExpectNobody();
}

// A process that is killed at any moment: in a push, in a pull, between them.
TEST_F(LocalListenerTest, AKilledCallerLeavesNothing) {
  Start();
  {
    const auto client = Connect();
    wire::ServerState state;
    ASSERT_OK(client->Call("create", Soon(), [&](auto& stub) {
      stub.create_variables(state, ExampleCaller(), {ExampleDenseSpec()});
    }));
  }
  ExpectNobody();
  const int64_t before = OpenDescriptors();
  std::mt19937_64 random(1);
  ASSERT_NE(std::getenv("LOCAL_CALLER"), nullptr) << "meson test sets it";
  std::string program = std::getenv("LOCAL_CALLER");
  std::string at = address();
  for (int round = 0; round < 60; ++round) {
    const int64_t calls = engine_.calls();
    char* const arguments[] = {program.data(), at.data(), nullptr};
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    if (round % 3 != 0) {  // otherwise also while it connects
      const Deadline deadline = Soon();
      while (engine_.calls() < calls + 2 && !deadline.Expired()) std::this_thread::yield();
      EXPECT_GE(engine_.calls(), calls + 2) << "it did not begin";
    }
    LetPass(absl::Microseconds(static_cast<int64_t>(random() % 5000)));
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    ExpectNobody();
    EXPECT_EQ(OpenDescriptors(), before) << round;
  }
  ExpectStillServing();
}

}  // namespace
}  // namespace cairn
