// The listener serves stock Thrift clients, answers requests beyond a limit with the limit's name,
// closes stalled connections, and keeps serving all others.
#include "ps_server/net/listener.h"
#include "ps_server/engine/engine.h"

#include <thrift/TApplicationException.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSocket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/own_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/local/raw_local.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/cairn_constants.h"
#include "thrift/client/wire_client.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TBufferedTransport;
using apache::thrift::transport::TSocket;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

class ListenerTest : public ::testing::Test {
 protected:
  void Start(const ListenerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(engine_, OnOwnAddress(options));
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
  }
  std::string address() const { return listener_->address(); }
  std::unique_ptr<WireClient> Connect() {
    auto client = WireClient::Connect(address(), {.local = local_}, Soon());
    EXPECT_OK(client);
    return *std::move(client);
  }
  void ExpectStillServing() { EXPECT_OK(Heartbeat(*Connect())); }
  // Waits until max_connections admits another connection.
  void ExpectRoom() {
    const Deadline deadline = Soon();
    absl::Status status = absl::UnknownError("not tried");
    while (!status.ok() && !deadline.Expired()) status = Heartbeat(*Connect());
    EXPECT_OK(status);
  }
  // The listener's answer to `bytes`, until it closes.
  std::string ReplyTo(const std::string& bytes) {
    if (local_ != LocalTransport::kOff) return LocalReplyTo(address(), bytes);
    RawSocket socket = RawSocket::Connect(address());
    socket.Send(bytes);
    socket.EndSending();
    return socket.ReceiveUntilClosed();
  }

  LocalTransport local_ = LocalTransport::kOff;
  FakeEngine engine_;
  std::unique_ptr<Listener> listener_;
};

// Over TCP, and over the local transport.
class AnyListenerTest : public ListenerTest, public ::testing::WithParamInterface<LocalTransport> {
 protected:
  AnyListenerTest() { local_ = GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Transports, AnyListenerTest,
                         ::testing::Values(LocalTransport::kOff, LocalTransport::kSameUser),
                         [](const auto& test) {
                           return test.param == LocalTransport::kOff ? "Tcp" : "Local";
                         });

// The start of a call of `method`, up to its arguments.
std::string Call(const std::string& method) {
  return BigEndian32(static_cast<int32_t>(0x80010001)) +
         BigEndian32(static_cast<int32_t>(method.size())) + method + BigEndian32(5);
}
std::string Field(char type, int16_t id) { return std::string(1, type) + BigEndian16(id); }
constexpr char kStruct = apache::thrift::protocol::T_STRUCT;
constexpr char kList = apache::thrift::protocol::T_LIST;
constexpr char kString = apache::thrift::protocol::T_STRING;

TEST_F(ListenerTest, AStockThriftClientIsServed) {
  Start();
  const auto socket = std::make_shared<TSocket>(OwnHost(), PortOf(address()));
  const auto transport = std::make_shared<TBufferedTransport>(socket);
  wire::ParameterServerClient client(std::make_shared<TBinaryProtocol>(transport));
  transport->open();
  wire::ServerState state;
  client.create_variables(state, ExampleCaller(), {ExampleDenseSpec(), ExampleEmbeddingSpec()});
  EXPECT_EQ(state.boot_id, 1);
  wire::PushReply pushed;
  client.push(pushed, ExamplePush());
  EXPECT_EQ(pushed.items.size(), 2U);
  wire::PullReply pulled;
  client.pull(pulled, ExamplePull());
  ASSERT_EQ(pulled.items.size(), 2U);
  EXPECT_TRUE(pulled.items[0].values == ExamplePush().items[0].values);
  EXPECT_TRUE(pulled.items[1].values == ExamplePush().items[1].values);
  wire::PullRequest unknown = ExamplePull();
  unknown.items[0].variable = "nobody";
  try {
    client.pull(pulled, unknown);
    ADD_FAILURE() << "pulled what does not exist";
  } catch (const wire::ServerError& error) {
    EXPECT_EQ(error.code, wire::ErrorCode::NOT_FOUND);
    EXPECT_EQ(error.message, "no variable \"nobody\"");
  }
  client.heartbeat(state, ExampleCaller());  // the connection is still usable
}

TEST_P(AnyListenerTest, EveryExampleFrameIsAnsweredInTurn) {
  Start();
  std::string all;
  for (const ExampleFrame& frame : ExampleFrames()) all += frame.bytes;
  const std::string replies = ReplyTo(all);
  for (const ExampleFrame& frame : ExampleFrames()) EXPECT_THAT(replies, HasSubstr(frame.method));
}

TEST_P(AnyListenerTest, UnknownMethodsAreAnsweredAndTheConnectionGoesOn) {
  Start();
  const std::string reply =
      ReplyTo(Call("frobnicate") + std::string(1, '\0') + ExampleFrames()[1].bytes);
  EXPECT_THAT(reply, AllOf(HasSubstr("Invalid method name"), HasSubstr("heartbeat")));
}

TEST_P(AnyListenerTest, LimitsAreAnsweredByName) {
  ListenerOptions options;
  options.max_message_bytes = 1 << 20;
  Start(options);
  const std::string request = Call("push") + Field(kStruct, 1);
  const std::string item = request + Field(kList, 3) + std::string(1, kStruct) + BigEndian32(1);
  EXPECT_THAT(ReplyTo(item + Field(kString, 6) + BigEndian32(2 << 20) + std::string(1000, 'x')),
              AllOf(HasSubstr("push"), HasSubstr("call from 127.0.0.1:"),
                    HasSubstr("max_message_bytes, 1048576")));
  EXPECT_THAT(ReplyTo(item + Field(kString, 1) + BigEndian32(65537)), HasSubstr("kMaxStringBytes"));
  EXPECT_THAT(ReplyTo(item + Field(kString, 6) + BigEndian32(-5)),
              HasSubstr("a payload of -5 bytes"));
  EXPECT_THAT(ReplyTo(request + Field(kList, 3) + std::string(1, kStruct) + BigEndian32(INT32_MAX)),
              HasSubstr("kMaxContainerItems"));
  std::string deep = Call("push");
  for (int level = 0; level < 100; ++level) deep += Field(kStruct, 50);
  EXPECT_THAT(ReplyTo(deep), HasSubstr("kMaxNestingDepth"));
  ExpectStillServing();
  listener_->Stop();
  EXPECT_EQ(engine_.message_bytes(), 0);
}

TEST_P(AnyListenerTest, GarbageIsClosedWithoutAnAnswer) {
  Start();
  EXPECT_EQ(ReplyTo("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_EQ(ReplyTo(std::string(100000, '\xff')), "");
  EXPECT_EQ(ReplyTo(std::string(100000, '\0')), "");
  EXPECT_EQ(ReplyTo(""), "");
  // A reply is no call.
  EXPECT_EQ(ReplyTo(BigEndian32(static_cast<int32_t>(0x80010002)) + BigEndian32(4) + "push" +
                    BigEndian32(1) + std::string(1, '\0')),
            "");
  ExpectStillServing();
}

TEST_P(AnyListenerTest, TruncatedCallsAreClosedWithoutEffect) {
  Start();
  const std::string whole = ExampleFrames()[4].bytes;
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_EQ(ReplyTo(whole.substr(0, size)), "") << size;
  }
  EXPECT_EQ(engine_.pushed_bytes(), 0);
  ExpectStillServing();
}

TEST_F(ListenerTest, AnnouncingGigabytesAndSendingNothingPinsLittle) {
  ListenerOptions options;
  options.stall_seconds = 0.3;
  Start(options);
  const int64_t before = ResidentBytes();
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 20; ++i) {
    sockets.push_back(RawSocket::Connect(address()));
    ASSERT_TRUE(sockets.back().Send(Call("push") + Field(kStruct, 1) + Field(kList, 3) +
                                    std::string(1, kStruct) + BigEndian32(1) + Field(kString, 6) +
                                    BigEndian32(1 << 29)));
  }
  ExpectStillServing();
  // The stall timeout closes all of them, and their memory is released.
  for (RawSocket& socket : sockets) EXPECT_EQ(socket.ReceiveUntilClosed(), "");
  EXPECT_LE(engine_.peak_message_bytes(), 20 * (kFirstPayloadStepBytes + 1024));
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
  ExpectStillServing();
}

TEST_F(ListenerTest, AMessageBeyondTheMemoryBudgetIsRefusedNotKilled) {
  FakeEngine small(FakeEngineOptions{.message_budget_bytes = 8 << 20});
  const absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Start(small, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto client = WireClient::Connect((*listener)->address(), {}, Soon());
  ASSERT_OK(client);
  const std::vector<float> values(4 << 20);
  wire::PushRequest push = ExamplePush();
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply reply;
  const absl::Status status =
      (*client)->Call("push", Soon(), [&](auto& stub) { stub.push(reply, push); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the budget is")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MEMORY_BUDGET);
  EXPECT_EQ(small.message_bytes(), 0);
}

TEST_P(AnyListenerTest, IdleConnectionsAreNotClosed) {
  ListenerOptions options;
  options.stall_seconds = 0.1;
  Start(options);
  const auto idle = Connect();
  ASSERT_OK(Heartbeat(*idle));
  const auto busy = Connect();
  for (const Deadline lapse = Deadline::In(absl::Milliseconds(500)); !lapse.Expired();) {
    ASSERT_OK(Heartbeat(*busy));
  }
  EXPECT_OK(Heartbeat(*idle));
}

TEST_F(ListenerTest, AClientThatDoesNotReadItsReplyIsClosed) {
  ListenerOptions options;
  options.stall_seconds = 2;
  options.max_connections = 1;
  Start(options);
  auto client = Connect();
  wire::ServerState state;
  ASSERT_OK(client->Call("create", Soon(), [&](auto& stub) {
    stub.create_variables(state, ExampleCaller(), {ExampleDenseSpec()});
  }));
  const std::vector<float> values(16 << 20);
  wire::PushRequest push = ExamplePush();
  push.items.resize(1);
  push.items[0].values = Payload::ViewOf<float>(values);
  wire::PushReply reply;
  ASSERT_OK(client->Call("push", Soon(), [&](auto& stub) { stub.push(reply, push); }));
  wire::PullRequest pull = ExamplePull();
  pull.items.resize(1);
  ASSERT_OK(client->Call("pull", Soon(), [&](auto& stub) { stub.send_pull(pull); }));
  ExpectRoom();  // the listener has dropped the client
  wire::PullReply pulled;
  EXPECT_EQ(client->Call("pull", Soon(), [&](auto& stub) { stub.recv_pull(pulled); }).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ListenerTest, ConnectionsBeyondTheLimitAreToldWhy) {
  ListenerOptions options;
  options.max_connections = 2;
  Start(options);
  std::vector<std::unique_ptr<WireClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(Connect());
    ASSERT_OK(Heartbeat(*clients.back()));
  }
  const auto third = Connect();
  EXPECT_THAT(Heartbeat(*third),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("2 connections open"), HasSubstr("--max_connections"))));
  // A client that disconnects makes space for another.
  clients.pop_back();
  ExpectRoom();
}

TEST_F(ListenerTest, APortInUseIsNamed) {
  Start();
  ListenerOptions same;
  same.host = OwnHost();
  same.port = PortOf(address());
  EXPECT_THAT(Listener::Start(engine_, same).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("listen on " + address()), HasSubstr("in use"))));
  ListenerOptions elsewhere;
  elsewhere.host = "203.0.113.1";  // reserved for documentation: no machine has it
  elsewhere.security.allow_plaintext = true;
  EXPECT_THAT(Listener::Start(engine_, elsewhere).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("203.0.113.1")));
}

TEST_F(ListenerTest, OptionsOutOfRangeAreNamed) {
  const auto refused = [&](const ListenerOptions& options, const std::string& flag) {
    EXPECT_THAT(Listener::Start(engine_, options).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(flag)));
  };
  refused({.port = 65536}, "--port");
  refused({.max_message_bytes = 1000}, "--max_message_bytes");
  refused({.max_connections = 0}, "--max_connections");
  refused({.max_connections_per_peer = 0}, "--max_connections_per_peer");
  refused({.stall_seconds = 0}, "--stall_seconds");
  refused({.idle_seconds = 0}, "--idle_seconds");
  refused({.handshake_seconds = 0}, "--handshake_seconds");
  refused({.max_handshakes = 0}, "--max_handshakes");
  refused({.host = "0.0.0.0"}, "--allow_plaintext");
  refused({.security = {.tls_certificate = "only.crt"}}, "--tls_key is missing");
}

TEST_P(AnyListenerTest, StopEndsIdleStalledAndBusyConnections) {
  Start();
  const auto idle = Connect();
  ASSERT_OK(Heartbeat(*idle));
  RawSocket stalled = RawSocket::Connect(address());
  ASSERT_TRUE(stalled.Send(Call("push")));
  std::atomic<int> answered = 0;
  std::thread busy([&] {
    const auto client = Connect();
    while (Heartbeat(*client).ok()) ++answered;
  });
  const Deadline deadline = Soon();
  while (answered == 0 && !deadline.Expired()) std::this_thread::yield();
  const absl::Time start = absl::Now();
  listener_->Stop();
  listener_->Stop();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  busy.join();
  EXPECT_GT(answered, 0);
  EXPECT_TRUE(idle->PeerClosed());
  EXPECT_EQ(stalled.ReceiveUntilClosed(), "");
}

int64_t MemoryUsed(WireClient& client) {
  wire::DescribeRequest request;
  request.caller = ExampleCaller();
  wire::DescribeReply reply;
  EXPECT_OK(client.Call("describe", Soon(), [&](auto& stub) { stub.describe(reply, request); }));
  return reply.memory_used_bytes;
}

TEST(ListenerWithEngine, AReplyCountsAgainstTheBudgetUntilItIsSent) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.durability = Durability::kOff;
  const absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  ASSERT_OK(engine);
  const auto listener = Listener::Start(**engine, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto slow = WireClient::Connect((*listener)->address(), {}, Soon());
  const auto other = WireClient::Connect((*listener)->address(), {}, Soon());
  ASSERT_OK(slow);
  ASSERT_OK(other);
  constexpr int64_t kBytes = int64_t{64} << 20;
  wire::VariableSpec spec = ExampleDenseSpec();
  spec.shape = {1024, kBytes / 4096};
  spec.shards.clear();
  wire::ServerState state;
  ASSERT_OK((*other)->Call("create", Soon(), [&](auto& stub) {
    stub.create_variables(state, ExampleCaller(), {spec});
  }));
  const int64_t before = MemoryUsed(**other);
  wire::PullRequest pull = ExamplePull();
  pull.items.resize(1);
  ASSERT_OK((*slow)->Call("pull", Soon(), [&](auto& stub) { stub.send_pull(pull); }));
  const Deadline deadline = Soon();
  while (MemoryUsed(**other) < before + kBytes && !deadline.Expired()) std::this_thread::yield();
  EXPECT_GE(MemoryUsed(**other), before + kBytes);
  wire::PullReply reply;
  ASSERT_OK((*slow)->Call("pull", Soon(), [&](auto& stub) { stub.recv_pull(reply); }));
  while (MemoryUsed(**other) > before && !deadline.Expired()) std::this_thread::yield();
  EXPECT_EQ(MemoryUsed(**other), before);
}

TEST(ListenerWithEngine, StopEndsAWaitForAnotherWorker) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.durability = Durability::kOff;
  const absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  ASSERT_OK(engine);
  const auto listener = Listener::Start(**engine, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(listener);
  const auto client = WireClient::Connect((*listener)->address(), {}, Soon());
  ASSERT_OK(client);
  wire::PullRequest pull;
  for (const int32_t worker : {1, 0}) {
    wire::HelloRequest hello;
    hello.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    hello.job = "job";
    hello.task_type = "worker";
    hello.worker = worker;
    wire::Consistency lockstep;
    lockstep.mode = wire::ConsistencyMode::SSP;
    hello.__set_consistency(lockstep);
    wire::HelloReply reply;
    ASSERT_OK((*client)->Call("hello", Soon(), [&](auto& stub) { stub.hello(reply, hello); }));
    pull.caller.job = "job";
    pull.caller.worker = worker;
    pull.caller.incarnation = reply.incarnation;
    pull.caller.boot_id = reply.state.boot_id;
  }
  pull.step = 1;
  pull.wait_seconds = 60;
  absl::Status status;
  std::thread waiter([&] {
    wire::PullReply reply;
    status = (*client)->Call("pull", Deadline::In(absl::Seconds(90)),
                             [&](auto& stub) { stub.pull(reply, pull); });
  });
  wire::Caller tool;
  tool.job = "job";
  const Deadline deadline = Soon();
  wire::WhyReply why;
  while (why.waiting.empty() && !deadline.Expired()) {
    why = {};
    (*engine)->service().why(why, tool);
  }
  EXPECT_EQ(why.waiting.size(), 1U);
  const absl::Duration begin = MonotonicNow();
  (*listener)->Stop();
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(5));
  waiter.join();
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING) << status;
}

// A busy machine may run the drain's thread so late. Without the reply, `cairnctl drain` takes a
// server that has written everything for one that died.
TEST(ListenerWithEngine, ADrainIsAnsweredHoweverLate) {
  const TempDir folder;
  std::unique_ptr<Listener> listener;
  absl::Notification returned;  // the caller's call
  std::thread stops;
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.drained = [&] {
    stops = std::thread([&] { listener->Stop(); });
    EXPECT_FALSE(returned.WaitForNotificationWithTimeout(absl::Seconds(2)));  // beyond its grace
  };
  const absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  ASSERT_OK(engine);
  auto started = Listener::Start(**engine, OnOwnAddress<ListenerOptions>());
  ASSERT_OK(started);
  listener = *std::move(started);
  const auto client = WireClient::Connect(listener->address(), {}, Soon());
  ASSERT_OK(client);
  EXPECT_OK((*client)->Call("drain", Soon(), [](auto& stub) {
    wire::ServerState state;
    stub.drain(state, ExampleCaller());
  }));
  returned.Notify();
  stops.join();
  EXPECT_FALSE((*engine)->AnswersDrain());
  listener.reset();  // before the engine
}

TEST_P(AnyListenerTest, ManyConnectionsAtOnceAreServed) {
  Start();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        const auto client = Connect();
        for (int call = 0; call < 4; ++call) good += Heartbeat(*client).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8 * 25 * 4);
}

}  // namespace
}  // namespace cairn
