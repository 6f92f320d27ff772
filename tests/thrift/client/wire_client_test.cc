// One connection to one server: calls, deadlines, and every kind of failure.
#include "thrift/client/wire_client.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/errors.h"

namespace {

// Set once the name server of silent.test answers. Lives as long as lookups that nobody awaits.
absl::Notification& SilentTestAnswers() {
  static auto* const answers = new absl::Notification;
  return *answers;
}

// The addresses of two.test, in order.
std::vector<std::string>& TwoTestAddresses() {
  static auto* const addresses = new std::vector<std::string>;
  return *addresses;
}

}  // namespace

// Found before the C library's function.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host,
                                                                  const char* port,
                                                                  const addrinfo* hints,
                                                                  addrinfo** found) {
  const bool is_lookup = hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (is_lookup && host != nullptr && absl::EndsWith(host, ".silent.test")) {
    SilentTestAnswers().WaitForNotificationWithTimeout(absl::Seconds(20));
    return EAI_NONAME;
  }
  static const auto next =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (!is_lookup || host == nullptr || std::string(host) != "two.test") {
    return next(host, port, hints, found);
  }
  addrinfo** end = found;
  for (const std::string& address : TwoTestAddresses()) {
    const int error = next(address.c_str(), port, hints, end);
    if (error != 0) return error;
    while (*end != nullptr) end = &(*end)->ai_next;
  }
  return 0;
}

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Deadline CallDeadline() { return Deadline::In(absl::Seconds(20)); }

// A listener that never answers, or that sends only `reply` if it is given.
class Mute {
 public:
  explicit Mute(std::string reply = "") : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(PortOf(address_)));
    EXPECT_EQ(::inet_pton(AF_INET, OwnHost().c_str(), &at.sin_addr), 1);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    if (reply.empty()) return;
    speaker_ = std::thread([this, reply] {
      RawSocket peer(::accept(fd_, nullptr, nullptr));
      peer.Receive(1);
      peer.Send(reply);
      peer.Receive(SIZE_MAX);
    });
  }
  ~Mute() {
    if (speaker_.joinable()) speaker_.join();
    ::close(fd_);
  }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  const std::string address_ = OwnAddress();
  std::thread speaker_;
};

std::unique_ptr<WireClient> ConnectTo(const std::string& address, WireClientOptions options = {}) {
  absl::StatusOr<std::unique_ptr<WireClient>> client =
      WireClient::Connect(address, options, CallDeadline());
  EXPECT_OK(client);
  return client.ok() ? *std::move(client) : nullptr;
}

// Over TCP, and over shared memory.
class WireClientTest : public ::testing::TestWithParam<LocalTransport> {
 protected:
  std::unique_ptr<WireClient> Connect(const std::string& address, WireClientOptions options = {}) {
    options.local = GetParam();
    std::unique_ptr<WireClient> client = ConnectTo(address, options);
    EXPECT_EQ(client->is_local(), GetParam() != LocalTransport::kOff) << client->local_failure();
    return client;
  }
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(engine_, OnOwnAddress<ListenerOptions>());
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
  }

  FakeEngine engine_;
  std::unique_ptr<Listener> listener_;
};

TEST_P(WireClientTest, SendingAndReceivingMayBeSeparate) {
  std::vector<std::unique_ptr<WireClient>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Connect(listener_->address()));
  for (const auto& client : clients) {
    ASSERT_OK(
        client->Call("hello", CallDeadline(), [](auto& stub) { stub.send_hello(ExampleHello()); }));
  }
  for (const auto& client : clients) {
    wire::HelloReply reply;
    ASSERT_OK(client->Call("hello", CallDeadline(), [&](auto& stub) { stub.recv_hello(reply); }));
    EXPECT_EQ(reply.protocol_version, 1);
  }
}

TEST_P(WireClientTest, PulledPayloadsLandInTheirTargets) {
  const auto client = Connect(listener_->address());
  std::vector<float> values(1 << 20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  wire::ServerState state;
  ASSERT_OK(client->Call("create", CallDeadline(), [&](auto& stub) {
    stub.create_variables(state, ExampleCaller(), {ExampleDenseSpec()});
  }));
  wire::PushRequest push = ExamplePush();
  push.items.resize(1);
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply pushed;
  ASSERT_OK(client->Call("push", CallDeadline(), [&](auto& stub) { stub.push(pushed, push); }));

  std::vector<float> out(values.size());
  const absl::Span<std::byte> target(reinterpret_cast<std::byte*>(out.data()),
                                     out.size() * sizeof(float));
  wire::PullRequest pull = ExamplePull();
  pull.items.resize(1);
  wire::PullReply pulled;
  client->ReadPayloadsInto({&target, 1});
  ASSERT_OK(client->Call("pull", CallDeadline(), [&](auto& stub) { stub.pull(pulled, pull); }));
  EXPECT_EQ(pulled.items[0].values.data(), target.data());
  EXPECT_TRUE(out == values);

  // The next reply is not read into the targets.
  out.assign(out.size(), -1);
  ASSERT_OK(client->Call("pull", CallDeadline(), [&](auto& stub) { stub.pull(pulled, pull); }));
  EXPECT_NE(pulled.items[0].values.data(), target.data());
  EXPECT_EQ(out[5], -1);
}

TEST_P(WireClientTest, ThreeHundredMebibytesPassBothWaysOverOneConnection) {
  const auto client = Connect(listener_->address());
  wire::ServerState state;
  ASSERT_OK(client->Call("create", CallDeadline(), [&](auto& stub) {
    stub.create_variables(state, ExampleCaller(), {ExampleDenseSpec()});
  }));
  constexpr size_t kCount = 15 << 20;  // 60 MiB a call, 300 MiB in all
  std::vector<float> values(kCount);
  wire::PushRequest push = ExamplePush();
  push.items.resize(1);
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PullRequest pull = ExamplePull();
  pull.items.resize(1);
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 977 + round);
    wire::PushReply pushed;
    ASSERT_OK(client->Call("push", CallDeadline(), [&](auto& stub) { stub.push(pushed, push); }));
    wire::PullReply pulled;
    ASSERT_OK(client->Call("pull", CallDeadline(), [&](auto& stub) { stub.pull(pulled, pull); }));
    ASSERT_EQ(pulled.items.size(), 1U);
    EXPECT_TRUE(pulled.items[0].values == push.items[0].values) << round;
  }
}

TEST_P(WireClientTest, ServerErrorsKeepCodeReasonAndConnection) {
  const auto client = Connect(listener_->address(), {.peer = "ps:2 (here)"});
  wire::PullReply reply;
  const absl::Status status =
      client->Call("pull", CallDeadline(), [&](auto& stub) { stub.pull(reply, ExamplePull()); });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, "pull to ps:2 (here): no variable \"w\""));
  EXPECT_TRUE(client->usable());
  wire::ServerState state;
  EXPECT_OK(client->Call("heartbeat", CallDeadline(),
                         [&](auto& stub) { stub.heartbeat(state, ExampleCaller()); }));
}

TEST_P(WireClientTest, ARequestBeyondTheServersLimitIsRefusedByName) {
  ListenerOptions options;
  options.max_message_bytes = 1 << 20;
  const absl::StatusOr<std::unique_ptr<Listener>> small =
      Listener::Start(engine_, OnOwnAddress(options));
  ASSERT_OK(small);
  const auto client = Connect((*small)->address());
  const std::vector<float> values(16 << 20);
  wire::PushRequest push = ExamplePush();
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply reply;
  const absl::Status status =
      client->Call("push", CallDeadline(), [&](auto& stub) { stub.push(reply, push); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(StartsWith("push to " + OwnHost()),
                                     HasSubstr("push, field 6: a payload of 67108864 bytes"),
                                     HasSubstr("--max_message_bytes"))));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::LIMIT);
  EXPECT_FALSE(client->usable());
}

TEST_P(WireClientTest, ARequestBeyondTheClientsLimitIsNotSent) {
  const auto client = Connect(listener_->address(), {.max_message_bytes = 1 << 20});
  const int64_t calls = engine_.calls();
  const std::vector<float> values(16 << 20);
  wire::PushRequest push = ExamplePush();
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply reply;
  const absl::Status status =
      client->Call("push", CallDeadline(), [&](auto& stub) { stub.push(reply, push); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::LIMIT);
  EXPECT_FALSE(client->usable());
  EXPECT_EQ(engine_.calls(), calls);
}

TEST_P(WireClientTest, ARestartedServerIsDetectedBeforeTheNextCall) {
  const auto client = Connect(listener_->address());
  wire::ServerState state;
  ASSERT_OK(client->Call("heartbeat", CallDeadline(),
                         [&](auto& stub) { stub.heartbeat(state, ExampleCaller()); }));
  EXPECT_FALSE(client->PeerClosed());
  listener_->Stop();
  EXPECT_TRUE(client->PeerClosed());
  const absl::Status status = client->Call(
      "heartbeat", CallDeadline(), [&](auto& stub) { stub.heartbeat(state, ExampleCaller()); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_FALSE(client->usable());
}

INSTANTIATE_TEST_SUITE_P(Transports, WireClientTest,
                         ::testing::Values(LocalTransport::kOff, LocalTransport::kSameUser),
                         [](const auto& test) {
                           return test.param == LocalTransport::kOff ? "Tcp" : "Local";
                         });

TEST(WireClient, AddressesAreChecked) {
  for (const char* address : {"", "host", "host:", ":7001", "host:0", "host:65536", "host:x"}) {
    EXPECT_THAT(WireClient::Connect(address, {}, CallDeadline()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host:port")))
        << address;
  }
}

TEST(WireClient, AnAddressWithoutAListenerIsUnavailable) {
  std::string address;
  { address = Mute().address(); }
  EXPECT_THAT(WireClient::Connect(address, {.peer = "ps:0"}, CallDeadline()),
              StatusIs(absl::StatusCode::kUnavailable, "connect to ps:0: Connection refused"));
  EXPECT_EQ(WireClient::Connect("no-such-host.invalid:1", {}, CallDeadline()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(WireClient, ASilentServerExceedsTheDeadline) {
  const Mute mute;
  const auto client = ConnectTo(mute.address());
  wire::HelloReply reply;
  const absl::Status status = client->Call("hello", Deadline::In(absl::Milliseconds(50)),
                                           [&](auto& stub) { stub.hello(reply, ExampleHello()); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr(mute.address()),
                                     HasSubstr("while waiting for the answer"))));
  EXPECT_FALSE(client->usable());
}

TEST(WireClient, GarbageIsRefusedAsAReply) {
  for (const std::string& garbage :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string(64, '\xff'),
        // A reply with a string of 2^31 - 1 bytes.
        BigEndian32(static_cast<int32_t>(0x80010002)) + BigEndian32(INT32_MAX)}) {
    const Mute mute(garbage);
    const auto client = ConnectTo(mute.address());
    wire::HelloReply reply;
    const absl::Status status = client->Call(
        "hello", CallDeadline(), [&](auto& stub) { stub.hello(reply, ExampleHello()); });
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_FALSE(client->usable());
  }
}

// A host that answers no attempt to connect, as a machine that is switched off.
class SilentHost {
 public:
  explicit SilentHost(int32_t port) {
    std::random_device draw;
    host_ = ClaimHost([&] { return draw(); });
    at_.sin_family = AF_INET;
    at_.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(::inet_pton(AF_INET, host_.c_str(), &at_.sin_addr), 1);
    const int listener = sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&at_), sizeof(at_)), 0);
    EXPECT_EQ(::listen(listener, 0), 0);
    while (Connects()) {  // until its queue is full
    }
  }
  ~SilentHost() {
    for (const int fd : sockets_) ::close(fd);
  }
  const std::string& host() const { return host_; }

 private:
  bool Connects() {
    const int fd = sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (::connect(fd, reinterpret_cast<sockaddr*>(&at_), sizeof(at_)) == 0) return true;
    pollfd waiting = {fd, POLLOUT, 0};
    return ::poll(&waiting, 1, 50) > 0;
  }

  std::string host_;
  sockaddr_in at_ = {};
  std::vector<int> sockets_;
};

TEST_P(WireClientTest, ASilentAddressOfANameLeavesTimeForTheNext) {
  const int32_t port = PortOf(listener_->address());
  const SilentHost silent(port);
  TwoTestAddresses() = {silent.host(), OwnHost()};
  const std::string address = absl::StrCat("two.test:", port);
  WireClientOptions options;
  options.local = GetParam();
  EXPECT_OK(WireClient::Connect(address, options, Deadline::In(absl::Seconds(2))));
  const int32_t nobodys = OwnPort();
  const std::string other = absl::StrCat("two.test:", nobodys);
  const SilentHost more(nobodys);
  TwoTestAddresses() = {more.host(), OwnHost()};
  EXPECT_THAT(
      WireClient::Connect(other, options, Deadline::In(absl::Milliseconds(200))),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(StartsWith("connect to " + other), HasSubstr(more.host() + ": no connection"),
                     HasSubstr(OwnHost() + ": Connection refused"))));
}

TEST(Lookup, ASilentNameServerIsAbandonedAtTheDeadline) {
  const std::string address = "ps-0.silent.test:7001";
  EXPECT_THAT(WireClient::Connect(address, {}, Deadline::In(absl::Milliseconds(50))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(StartsWith("connect to " + address), HasSubstr("was not resolved"))));
  SilentTestAnswers().Notify();
  EXPECT_THAT(WireClient::Connect(address, {}, CallDeadline()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("\"ps-0.silent.test\"")));
}

}  // namespace
}  // namespace cairn
