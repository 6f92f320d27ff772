// Callers are admitted by certificate or token, may make the calls that their roles allow, and
// learn why a call is refused. Unauthenticated callers get no answer, and a flood of half-open
// connections excludes no other caller.
#include <poll.h>
#include <thrift/transport/TSocket.h>
#include <functional>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/client/wire_client.h"
#include "thrift/security/tls_stream.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr auto kUnknownCaller = absl::StatusCode::kUnauthenticated;
constexpr char kToken[] = "0123456789abcdef-the-token";
using ClientOr = absl::StatusOr<std::unique_ptr<WireClient>>;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

class ListenerSecurityTest : public ::testing::Test {
 protected:
  void Start(const ListenerOptions& options) {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(engine_, OnOwnAddress(options));
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
  }
  // Starts with TLS, as ps-0.
  void StartTls(ListenerOptions options = {}) {
    const std::string tokens = options.security.accepted_tokens;
    options.security = certificates_.Issue(TestCertificates::ServerRequest());
    options.security.accepted_tokens = tokens;
    Start(options);
  }
  // Starts without TLS, for callers with kToken, which is a worker's token.
  void StartWithTokens(ListenerOptions options = {}) {
    WriteFile(tokens_, std::string(kToken) + " worker trainer\n");
    options.security.accepted_tokens = tokens_;
    Start(options);
  }
  ClientOr Connect(const SecurityOptions& security) {
    WireClientOptions options{.peer = "ps:0"};
    ASSIGN_OR_RETURN(options.security, ClientSecurity::Load(security));
    return WireClient::Connect(listener_->address(), options, Soon());
  }
  ClientOr ConnectAs(const std::string& name, RoleSet roles) {
    return Connect(certificates_.Issue(TestCertificates::ClientRequest(name, roles)));
  }
  SecurityOptions TokenOptions(const std::string& token) {
    SecurityOptions options;
    options.token_file = certificates_.path("token");
    WriteFile(options.token_file, token + "\n");
    return options;
  }
  // A connection of a client whose handshake was slower than `handshake_seconds` is tried again.
  ClientOr ConnectInTimeAs(const std::string& name, RoleSet roles) {
    const Deadline deadline = Soon();
    ClientOr client = ConnectAs(name, roles);
    while (!client.ok() && !deadline.Expired()) client = ConnectAs(name, roles);
    return client;
  }
  static void ExpectCallsSucceed(const std::function<ClientOr()>& connect) {
    const Deadline deadline = Soon();
    absl::Status status = Call(connect());
    while (!status.ok() && !deadline.Expired()) status = Call(connect());
    EXPECT_OK(status);
  }
  // The first error of connecting and calling.
  static absl::Status Call(ClientOr client) {
    RETURN_IF_ERROR(client.status());
    return Heartbeat(**client);
  }

  TestCertificates certificates_;
  const std::string tokens_ = certificates_.path("tokens");
  FakeEngine engine_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerSecurityTest, CallsPassOverTls) {
  StartTls();
  const auto client = ConnectAs("worker-0", kWorker);
  ASSERT_OK(client);
  wire::ServerState state;
  ASSERT_OK((*client)->Call("create", Soon(), [&](auto& stub) {
    stub.create_variables(state, ExampleCaller(), {ExampleDenseSpec()});
  }));
  const std::vector<float> values(3 << 20, 1.5F);
  wire::PushRequest push = ExamplePush();
  push.items.resize(1);
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply pushed;
  ASSERT_OK((*client)->Call("push", Soon(), [&](auto& stub) { stub.push(pushed, push); }));
  wire::PullRequest pull = ExamplePull();
  pull.items.resize(1);
  wire::PullReply pulled;
  ASSERT_OK((*client)->Call("pull", Soon(), [&](auto& stub) { stub.pull(pulled, pull); }));
  ASSERT_EQ(pulled.items.size(), 1U);
  EXPECT_TRUE(pulled.items[0].values == push.items[0].values);
  EXPECT_FALSE((*client)->PeerClosed());
}

TEST_F(ListenerSecurityTest, CertificatesThatAreRefusedAreToldWhy) {
  StartTls();
  const auto good = ConnectAs("worker-0", kWorker);
  ASSERT_OK(good);
  TestCertificates others("other CA");
  SecurityOptions foreign = others.Issue(TestCertificates::ClientRequest("w", kWorker));
  EXPECT_THAT(Call(Connect(foreign)),
              StatusIs(kUnknownCaller, AllOf(HasSubstr("ps:0"), HasSubstr("not signed by a CA"))));
  foreign.tls_ca = certificates_.path("ca.crt");
  EXPECT_THAT(Call(Connect(foreign)),
              StatusIs(kUnknownCaller, HasSubstr("ps:0 does not trust the CA")));
  CertificateRequest expired = TestCertificates::ClientRequest("old", kWorker);
  expired.not_after = absl::Now() - absl::Minutes(1);
  EXPECT_THAT(Call(Connect(certificates_.Issue(expired))),
              StatusIs(kUnknownCaller, HasSubstr("certificate has expired")));
  EXPECT_THAT(Call(ConnectAs("nobody", 0)),
              StatusIs(kUnknownCaller,
                       AllOf(HasSubstr("\"nobody\" names no role"), HasSubstr("cairnctl certs"))));
  EXPECT_OK(Heartbeat(**good));  // unaffected
}

// A large request: the refusal arrives while it is being sent.
TEST_F(ListenerSecurityTest, ARefusalIsReadThoughTheRequestIsLarge) {
  StartTls();
  TestCertificates others("other CA");
  SecurityOptions foreign = others.Issue(TestCertificates::ClientRequest("w", kWorker));
  foreign.tls_ca = certificates_.path("ca.crt");
  const auto client = Connect(foreign);
  ASSERT_OK(client);
  const std::vector<float> values(8 << 20);
  wire::PushRequest push = ExamplePush();
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply pushed;
  EXPECT_THAT((*client)->Call("push", Soon(), [&](auto& stub) { stub.push(pushed, push); }),
              StatusIs(kUnknownCaller, HasSubstr("does not trust the CA")));
}

TEST_F(ListenerSecurityTest, RolesBoundWhatMayBeCalled) {
  StartTls();
  wire::ServerState state;
  const auto drop = [&](WireClient& client) {
    return client.Call("drop_job", Soon(),
                       [&](auto& stub) { stub.drop_job(state, ExampleCaller()); });
  };
  const auto worker = ConnectAs("worker-1", kWorker);
  ASSERT_OK(worker);
  EXPECT_THAT(drop(**worker), StatusIs(kDenied, AllOf(HasSubstr("\"worker-1\" has the role worker"),
                                                      HasSubstr("drop_job is for admin"))));
  EXPECT_OK(Heartbeat(**worker));  // the connection remains usable
  const auto admin = ConnectAs("operator", kAdmin);
  ASSERT_OK(admin);
  EXPECT_OK(drop(**admin));
  const auto reader = ConnectAs("grafana", kReader);
  ASSERT_OK(reader);
  EXPECT_THAT(Heartbeat(**reader), StatusIs(kDenied, HasSubstr("heartbeat is for worker, admin")));
  // The payload of a refused call is discarded unread.
  wire::PushReply pushed;
  const wire::PushRequest push = ExamplePush();
  EXPECT_THAT((*reader)->Call("push", Soon(), [&](auto& stub) { stub.push(pushed, push); }),
              StatusIs(kDenied, HasSubstr("push is for")));
  EXPECT_EQ(engine_.pushed_bytes(), 0);
  wire::WhyReply why;
  wire::Caller tool;
  tool.job = "example";
  EXPECT_OK((*reader)->Call("why", Soon(), [&](auto& stub) { stub.why(why, tool); }));
  tool.worker = 3;  // using a worker's name
  EXPECT_THAT((*reader)->Call("why", Soon(), [&](auto& stub) { stub.why(why, tool); }),
              StatusIs(kDenied, HasSubstr("speaks for a worker")));
  wire::PullRequest pull;
  pull.caller.job = "example";
  pull.all_durable_step = 7;
  wire::PullReply pulled;
  EXPECT_THAT((*reader)->Call("pull", Soon(), [&](auto& stub) { stub.pull(pulled, pull); }),
              StatusIs(kDenied, HasSubstr("speaks for a worker")));
  wire::HelloRequest hello;
  hello.job = "example";
  hello.worker = 0;
  wire::HelloReply greeted;
  EXPECT_THAT((*reader)->Call("hello", Soon(), [&](auto& stub) { stub.hello(greeted, hello); }),
              StatusIs(kDenied, HasSubstr("speaks for a worker")));
}

TEST_F(ListenerSecurityTest, PlaintextToATlsPortIsToldSo) {
  StartTls();
  const auto good = ConnectAs("worker-0", kWorker);
  ASSERT_OK(good);
  EXPECT_THAT(Call(Connect({})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("accepts only TLS"), HasSubstr("--tls_certificate"))));
  for (const std::string bytes : {"GET / HTTP/1.1\r\n\r\n", "\x01\x02\x03\x04", "\x16\x03\x01"}) {
    RawSocket stranger = RawSocket::Connect(listener_->address());
    stranger.Send(bytes);
    stranger.EndSending();
    // At most a TLS alert: 7 bytes.
    EXPECT_LE(stranger.ReceiveUntilClosed().size(), 7U);
  }
  EXPECT_OK(Heartbeat(**good));
}

TEST_F(ListenerSecurityTest, TlsToAPlaintextPortIsToldSo) {
  Start({});
  const auto good = Connect({});
  ASSERT_OK(good);
  EXPECT_THAT(
      Call(ConnectAs("worker-0", kWorker)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("ps:0 does not speak TLS"), HasSubstr("--tls_certificate"))));
  EXPECT_OK(Heartbeat(**good));
}

// The peer has closed the connection.
bool HasEnded(const RawSocket& socket) {
  char byte = 0;
  return ::recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

TEST_F(ListenerSecurityTest, AThousandHalfOpenHandshakesKeepNobodyOut) {
  StartTls({.max_connections_per_peer = 1024});
  const auto before = ConnectAs("worker-0", kWorker);
  ASSERT_OK(before);
  ASSERT_OK(Heartbeat(**before));
  const SecurityOptions later =
      certificates_.Issue(TestCertificates::ClientRequest("worker-1", kWorker));
  std::vector<RawSocket> half_open;
  half_open.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    half_open.push_back(RawSocket::Connect(listener_->address()));
    if (i % 2 == 0) half_open.back().Send("\x16\x03\x01\x02");  // then sends nothing more
    // The kernel returns connections in any order, so wait: fewer than max_handshakes are open at a
    // time.
    if (i % 100 == 99) {
      EXPECT_OK(Heartbeat(**before));
      EXPECT_OK(Call(Connect(later)));
    }
  }
  // All but this many have been closed.
  const auto ended = [&] { return std::count_if(half_open.begin(), half_open.end(), HasEnded); };
  const Deadline deadline = Deadline::In(absl::Seconds(kDefaultHandshakeSeconds / 2));
  while (ended() < 1000 - kDefaultMaxHandshakes && !deadline.Expired()) std::this_thread::yield();
  EXPECT_GE(ended(), 1000 - kDefaultMaxHandshakes);
  EXPECT_OK(Heartbeat(**before));
  EXPECT_OK(Call(Connect(later)));
}

// Any byte of a handshake may be changed or missing.
TEST_F(ListenerSecurityTest, MutatedHandshakesHarmNobody) {
  StartTls({.handshake_seconds = 0.5});
  // The first flight of a real client, as the server receives it.
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  RawSocket reader(fds[1]);
  const auto context =
      TlsContext::Load(certificates_.Issue(TestCertificates::ClientRequest("w", kWorker)),
                       TlsContext::Side::kClient);
  ASSERT_OK(context);
  std::thread client([&] {
    (void)TlsStream::Connect(**context, fds[0], OwnHost(), "reader", Soon());
    ::close(fds[0]);
  });
  const std::string header = reader.Receive(5);
  const std::string hello = header + reader.Receive(static_cast<uint8_t>(header[3]) * 256U +
                                                    static_cast<uint8_t>(header[4]));
  reader.Close();
  client.join();
  ASSERT_GT(hello.size(), 100U);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string mutated =
        hello.substr(0, random() % 4 == 0 ? random() % hello.size() : hello.size());
    for (uint32_t change = random() % 4; change > 0 && !mutated.empty(); --change) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    RawSocket stranger = RawSocket::Connect(listener_->address());
    stranger.Send(mutated);
    stranger.EndSending();
    ASSERT_TRUE(stranger.ReceiveToEnd()) << round;
  }
  ExpectCallsSucceed([&] { return ConnectAs("worker-0", kWorker); });
  EXPECT_EQ(engine_.peak_message_bytes(), 0);
}

TEST_F(ListenerSecurityTest, AHandshakeHasItsTime) {
  StartTls({.handshake_seconds = 0.2});
  RawSocket silent = RawSocket::Connect(listener_->address());
  RawSocket slow = RawSocket::Connect(listener_->address());
  slow.Send("\x16\x03\x01\x02");
  EXPECT_TRUE(silent.ReceiveToEnd());
  EXPECT_TRUE(slow.ReceiveToEnd());
  // A known certificate without a role may not stay idle without a token either.
  const auto nobody = ConnectInTimeAs("nobody", 0);
  ASSERT_OK(nobody);
  const Deadline deadline = Soon();
  while (!(*nobody)->PeerClosed() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_FALSE(deadline.Expired());
  ExpectCallsSucceed([&] { return ConnectAs("worker-0", kWorker); });
}

TEST_F(ListenerSecurityTest, AConnectionThatRestsTooLongIsClosed) {
  StartTls({.stall_seconds = 0.1, .idle_seconds = 0.3});
  const auto client = ConnectAs("worker-0", kWorker);
  ASSERT_OK(client);
  ASSERT_OK(Heartbeat(**client));
  const Deadline deadline = Soon();
  while (!(*client)->PeerClosed() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_FALSE(deadline.Expired());
}

// Bytes of a record that never ends are no call.
TEST_F(ListenerSecurityTest, AnUnfinishedRecordDoesNotRenewTheRest) {
  StartTls({.idle_seconds = 0.3});
  const auto context =
      TlsContext::Load(certificates_.Issue(TestCertificates::ClientRequest("w", kWorker)),
                       TlsContext::Side::kClient);
  ASSERT_OK(context);
  RawSocket socket = RawSocket::Connect(listener_->address());
  const auto stream = TlsStream::Connect(**context, socket.fd(), OwnHost(), "ps:0", Soon());
  ASSERT_OK(stream);
  std::string record("\x17\x03\x03\x40\x00", 5);  // the head of a record of 16 KiB
  record.append(1 << 14, 'x');
  const Deadline deadline = Soon();
  pollfd closed = {socket.fd(), POLLRDHUP, 0};
  for (const char byte : record) {
    if (deadline.Expired() || !socket.Send(std::string(1, byte))) break;
    if (::poll(&closed, 1, 100) != 0) break;
  }
  EXPECT_FALSE(deadline.Expired());
  ExpectCallsSucceed([&] { return ConnectAs("worker-0", kWorker); });
}

TEST_F(ListenerSecurityTest, ConnectionsOfOneAddressAreLimited) {
  Start({.max_connections = 10, .max_connections_per_peer = 2});
  std::vector<ClientOr> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(Connect({}));
    ASSERT_OK(Heartbeat(**clients.back()));
  }
  EXPECT_THAT(Call(Connect({})), StatusIs(absl::StatusCode::kUnavailable,
                                          AllOf(HasSubstr("has 2 connections of 127.0.0.1 open"),
                                                HasSubstr("--max_connections_per_peer"))));
  clients.pop_back();
  const Deadline deadline = Soon();
  while (!Call(Connect({})).ok() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_FALSE(deadline.Expired());
}

TEST_F(ListenerSecurityTest, AFullTlsPortSaysSoBeforeTheHandshake) {
  StartTls({.max_connections = 1});
  const auto first = ConnectAs("worker-0", kWorker);
  ASSERT_OK(first);
  EXPECT_THAT(Call(ConnectAs("worker-1", kWorker)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("it has too many")));
  EXPECT_OK(Heartbeat(**first));
}

TEST_F(ListenerSecurityTest, ATokenLetsInAndARevokedOneIsOut) {
  StartWithTokens();
  const auto client = Connect(TokenOptions(kToken));
  ASSERT_OK(client);
  EXPECT_OK(Heartbeat(**client));
  const auto other = Connect(TokenOptions(kToken));
  WriteFile(tokens_, std::string(kToken) + "-new worker\n");
  EXPECT_THAT(Heartbeat(**client), StatusIs(kUnknownCaller, HasSubstr("revoked")));
  EXPECT_FALSE((*client)->usable());
  EXPECT_THAT(Call(Connect(TokenOptions(kToken))),
              StatusIs(kUnknownCaller,
                       AllOf(HasSubstr("authenticate to ps:0"), HasSubstr("not accepted here"))));
  EXPECT_OK(Call(Connect(TokenOptions(std::string(kToken) + "-new"))));
}

TEST_F(ListenerSecurityTest, ATokenGivesACertificateItsRole) {
  ListenerOptions options;
  options.security.accepted_tokens = tokens_;
  WriteFile(tokens_, std::string(kToken) + " worker\n");
  StartTls(options);
  SecurityOptions nobody = certificates_.Issue(TestCertificates::ClientRequest("nobody", 0));
  EXPECT_THAT(Call(Connect(nobody)), StatusIs(kUnknownCaller, HasSubstr("give --token_file")));
  nobody.token_file = TokenOptions(kToken).token_file;
  EXPECT_OK(Call(Connect(nobody)));
  EXPECT_OK(Call(ConnectAs("worker-0", kWorker)));  // needs no token
}

// The message is not read, since it could have any size.
TEST_F(ListenerSecurityTest, NothingIsAnsweredBeforeAuthentication) {
  StartWithTokens({.handshake_seconds = 0.3});
  for (const ExampleFrame& frame : ExampleFrames()) {
    RawSocket stranger = RawSocket::Connect(listener_->address());
    stranger.Send(frame.bytes);
    stranger.EndSending();
    EXPECT_THAT(stranger.ReceiveUntilClosed(), HasSubstr("had authenticated itself"))
        << frame.method;
  }
  EXPECT_EQ(engine_.pushed_bytes(), 0);
  EXPECT_EQ(engine_.peak_message_bytes(), 0);
  // A token of a megabyte, and a method name of that size.
  const std::string head = BigEndian32(static_cast<int32_t>(0x80010001));
  const std::string token = head + BigEndian32(12) + "authenticate" + BigEndian32(1) + "\x0b" +
                            BigEndian16(1) + BigEndian32(60000);
  for (const std::string& start : {token, head + BigEndian32(1 << 20)}) {
    RawSocket stranger = RawSocket::Connect(listener_->address());
    stranger.Send(start + std::string(1 << 20, 'x'));
    stranger.EndSending();
    const std::string answer = stranger.ReceiveUntilClosed();
    EXPECT_THAT(answer, Not(HasSubstr("roles")));
    EXPECT_THAT(answer, Not(HasSubstr("--max_message_bytes")));
    if (start == token) {
      EXPECT_THAT(answer, HasSubstr("kMaxUnauthenticatedMessageBytes, 4096"));
    }
  }
  // A caller that sends its authentication byte by byte is disconnected.
  RawSocket slow = RawSocket::Connect(listener_->address());
  slow.Send(token.substr(0, 9));
  EXPECT_TRUE(slow.ReceiveToEnd());
  EXPECT_OK(Call(Connect(TokenOptions(kToken))));
}

TEST_F(ListenerSecurityTest, AServerWithoutTokensSaysSo) {
  Start({});
  EXPECT_THAT(Call(Connect(TokenOptions(kToken))),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("accepts no tokens")));
}

TEST_F(ListenerSecurityTest, CertificatesAreRenewedWithoutARestart) {
  StartTls();
  const auto before = ConnectAs("worker-0", kWorker);
  ASSERT_OK(before);
  CertificateRequest expired = TestCertificates::ServerRequest();
  expired.not_after = absl::Now() - absl::Minutes(1);
  certificates_.Issue(expired);
  EXPECT_THAT(Call(ConnectAs("worker-1", kWorker)),
              StatusIs(kUnknownCaller, HasSubstr("expired at 20")));
  certificates_.Issue(TestCertificates::ServerRequest());
  EXPECT_OK(Call(ConnectAs("worker-1", kWorker)));
  EXPECT_OK(Heartbeat(**before));
}

}  // namespace
}  // namespace cairn
