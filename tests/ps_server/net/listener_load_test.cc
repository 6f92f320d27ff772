// Many connections and few threads: idle connections use no thread, waiting calls do not block
// others, calls beyond the queue are told when to retry, and no caller monopolizes the server.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/monotonic_cond_var.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_certificates.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/cairn_constants.h"
#include "thrift/client/wire_client.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

// A push of one variable: pushes of "wait" and "run" last until the test releases them; the former
// wait, the latter keep their thread busy.
wire::PushRequest PushOf(const std::string& variable) {
  wire::PushRequest push = ExamplePush();
  push.items.resize(1);
  push.items[0].variable = variable;
  return push;
}

absl::Status Push(WireClient& client, const std::string& variable) {
  wire::PushReply reply;
  const wire::PushRequest push = PushOf(variable);
  return client.Call("push", Soon(), [&](auto& stub) { stub.push(reply, push); });
}

class ListenerLoadTest : public ::testing::Test {
 protected:
  ~ListenerLoadTest() override { LetGo(); }

  void Start(const ListenerOptions& options) {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(engine_, OnOwnAddress(options));
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
  }
  std::unique_ptr<WireClient> Connect(const WireClientOptions& options = {}) {
    auto client = WireClient::Connect(listener_->address(), options, Soon());
    EXPECT_OK(client);
    return *std::move(client);
  }
  void LetGo() {
    const absl::MutexLock lock(&mutex_);
    let_go_ = true;
    changed_.SignalAll();
  }
  void OnPush(const wire::PushItem& item) {
    if (item.variable == "wait") {
      const absl::MutexLock lock(&mutex_);
      const Deadline deadline = Soon();
      ++waiting_;
      while (!let_go_ && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
      --waiting_;
    } else if (item.variable == "run") {
      ++running_;
      for (bool over = false; !over;) {
        const absl::MutexLock lock(&mutex_);
        over = let_go_;
      }
    } else if (item.variable == "go") {
      LetGo();
    }
  }
  template <typename Condition>
  void Await(const Condition& condition) {
    const Deadline deadline = Soon();
    while (!condition() && !deadline.Expired()) std::this_thread::yield();
    ASSERT_TRUE(condition());
  }

  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool let_go_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<int> running_ = 0;
  FakeEngine engine_{
      {.only_wire = true, .on_push = [this](const wire::PushItem& item) { OnPush(item); }}};
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerLoadTest, CallsThatWaitDoNotKeepOutTheOneThatEndsThem) {
  Start({.serving_threads = 1});
  constexpr int kWaiters = 12;
  std::vector<std::thread> waiters;
  std::atomic<int> answered = 0;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] { answered += Push(*Connect(), "wait").ok() ? 1 : 0; });
  }
  // A waiter is counted shortly before its thread is free.
  Await([&] { return waiting_ == kWaiters && listener_->statistics().busy_threads == 0; });
  EXPECT_OK(Push(*Connect(), "go"));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(answered, kWaiters);
}

TEST_F(ListenerLoadTest, ConnectionsThatRestTakeNoThread) {
  Start({.serving_threads = 2});
  std::vector<std::unique_ptr<WireClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Connect());
    ASSERT_OK(Heartbeat(*clients.back()));
  }
  EXPECT_EQ(listener_->statistics().connections, 200);
  EXPECT_LE(listener_->statistics().threads, 8);
  for (const auto& client : clients) EXPECT_OK(Heartbeat(*client));
}

TEST_F(ListenerLoadTest, MoreCallersThanThreadsAreAllAnswered) {
  Start({.serving_threads = 2});
  std::vector<std::thread> callers;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([&] {
      const auto client = Connect();
      for (int call = 0; call < 300; ++call) answered += Heartbeat(*client).ok() ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answered, 16 * 300);
}

TEST_F(ListenerLoadTest, PeersThatStallInAMessageKeepNobodyOut) {
  Start({.serving_threads = 1});
  std::vector<RawSocket> stalled;
  for (int i = 0; i < 8; ++i) {
    stalled.push_back(RawSocket::Connect(listener_->address()));
    ASSERT_TRUE(stalled.back().Send(ExampleFrames()[4].bytes.substr(0, 30)));
  }
  for (int i = 0; i < 20; ++i) ASSERT_OK(Heartbeat(*Connect()));
}

TEST_F(ListenerLoadTest, ACallBeyondTheQueueIsToldWhenToComeBack) {
  Start({.serving_threads = 1, .max_queued_calls = 1});
  const auto running = Connect();
  const auto queued = Connect();
  const auto refused = Connect();
  ASSERT_OK(Heartbeat(*refused));
  const wire::PushRequest run = PushOf("run");
  const wire::PushRequest plain = PushOf("w");
  ASSERT_OK(running->Call("push", Soon(), [&](auto& stub) { stub.send_push(run); }));
  Await([&] { return running_ == 1; });
  ASSERT_OK(queued->Call("push", Soon(), [&](auto& stub) { stub.send_push(plain); }));
  Await([&] { return listener_->statistics().queued_calls == 1; });
  const int64_t calls = engine_.calls();
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = Push(*refused, "w");
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("push to " + listener_->address()), HasSubstr("is busy"),
                               HasSubstr("--max_queued_calls"), HasSubstr("retry after"))));
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::BUSY);
    EXPECT_GT(RetryAfterOf(status), absl::ZeroDuration());
    EXPECT_LE(RetryAfterOf(status), absl::Seconds(kMaxRetryAfterSeconds));
  }
  EXPECT_EQ(engine_.calls(), calls);  // no call was read
  EXPECT_EQ(listener_->statistics().refused_calls, 3);
  // Heartbeats keep a worker's place.
  EXPECT_OK(Heartbeat(*refused));
  LetGo();
  wire::PushReply reply;
  EXPECT_OK(running->Call("push", Soon(), [&](auto& stub) { stub.recv_push(reply); }));
  EXPECT_OK(queued->Call("push", Soon(), [&](auto& stub) { stub.recv_push(reply); }));
  EXPECT_OK(Push(*refused, "w"));  // on the same connection
}

TEST_F(ListenerLoadTest, APeerWithEndlessCallsLetsOthersThrough) {
  Start({.serving_threads = 1});
  const std::string frame = ExampleFrames()[1].bytes;
  std::string many;
  constexpr int kCalls = 50000;
  for (int i = 0; i < kCalls; ++i) many += frame;
  RawSocket greedy = RawSocket::Connect(listener_->address());
  std::thread sender([&] {
    greedy.Send(many);
    greedy.EndSending();
  });
  std::thread reader([&] { EXPECT_TRUE(greedy.ReceiveToEnd()); });
  Await([&] { return engine_.calls() > 0; });
  EXPECT_OK(Heartbeat(*Connect()));
  EXPECT_LT(engine_.calls(), kCalls);
  sender.join();
  reader.join();
}

class TlsLoadTest : public ListenerLoadTest {
 protected:
  void StartTls(ListenerOptions options) {
    options.security = certificates_.Issue(TestCertificates::ServerRequest());
    Start(options);
    client_.security = ClientSecurity::Load(certificates_.Issue(TestCertificates::ClientRequest(
                                                "worker-0", kWorker)))
                           .value();
  }
  TestCertificates certificates_;
  WireClientOptions client_;
};

// Bytes received with an earlier call are in TLS's buffer, not in the socket.
TEST_F(TlsLoadTest, CallsThatCameTogetherAreAllAnswered) {
  StartTls({.serving_threads = 1});
  const auto client = Connect(client_);
  constexpr int kCalls = 200;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_OK(client->Call("heartbeat", Soon(),
                           [&](auto& stub) { stub.send_heartbeat(ExampleCaller()); }));
  }
  wire::ServerState state;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_OK(client->Call("heartbeat", Soon(), [&](auto& stub) { stub.recv_heartbeat(state); }));
  }
}

TEST_F(TlsLoadTest, HalfOpenHandshakesTakeNoThread) {
  StartTls({.serving_threads = 1});
  std::vector<RawSocket> half_open;
  for (int i = 0; i < 50; ++i) {
    half_open.push_back(RawSocket::Connect(listener_->address()));
    if (i % 2 == 0) half_open.back().Send("\x16\x03\x01\x02");
  }
  for (int i = 0; i < 5; ++i) EXPECT_OK(Heartbeat(*Connect(client_)));
  EXPECT_LE(listener_->statistics().threads, 8);
}

// Six workers in lockstep with one thread: the first one waits for all others.
TEST(LoadedEngine, WorkersInLockstepNeedNoThreadEach) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.durability = Durability::kOff;
  const absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  ASSERT_OK(engine);
  const auto listener =
      Listener::Start(**engine, OnOwnAddress<ListenerOptions>({.serving_threads = 1}));
  ASSERT_OK(listener);
  constexpr int kWorkers = 6;
  constexpr int kSteps = 30;
  const auto hello = [&](WireClient& client, int worker, wire::Caller& caller) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = caller.job = "lockstep";
    request.task_type = "worker";
    request.worker = caller.worker = worker;
    wire::Consistency ssp;
    ssp.mode = wire::ConsistencyMode::SSP;
    request.__set_consistency(ssp);
    wire::HelloReply reply;
    ASSERT_OK(client.Call("hello", Soon(), [&](auto& stub) { stub.hello(reply, request); }));
    caller.incarnation = reply.incarnation;
    caller.boot_id = reply.state.boot_id;
  };
  std::vector<std::unique_ptr<WireClient>> clients;
  std::vector<wire::Caller> callers(kWorkers);
  for (int worker = 0; worker < kWorkers; ++worker) {
    clients.push_back(WireClient::Connect((*listener)->address(), {}, Soon()).value());
    ASSERT_NO_FATAL_FAILURE(hello(*clients.back(), worker, callers[worker]));
  }
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      wire::PullRequest pull;
      pull.caller = callers[worker];
      for (pull.step = 1; pull.step <= kSteps; ++pull.step) {
        wire::PullReply reply;
        ASSERT_OK(
            clients[worker]->Call("pull", Soon(), [&](auto& stub) { stub.pull(reply, pull); }));
      }
      pull.step = -1;
      wire::PullReply reply;
      EXPECT_OK(clients[worker]->Call("pull", Soon(), [&](auto& stub) { stub.pull(reply, pull); }));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cairn
