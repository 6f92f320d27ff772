// What a connection's caller may do, by its roles.
#include "ps_server/net/peer_service.h"

#include <functional>
#include <map>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/thrift/examples.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// Counts the calls that arrive.
class CountingService : public wire::ParameterServerNull {
 public:
  int calls = 0;
  void hello(wire::HelloReply&, const wire::HelloRequest&) override { ++calls; }
  void push(wire::PushReply&, const wire::PushRequest&) override { ++calls; }
  void pull(wire::PullReply&, const wire::PullRequest&) override { ++calls; }
  void describe(wire::DescribeReply&, const wire::DescribeRequest&) override { ++calls; }
  void scan(wire::ScanReply&, const wire::ScanRequest&) override { ++calls; }
  void why(wire::WhyReply&, const wire::Caller&) override { ++calls; }
  void members(wire::Members&, const wire::Caller&) override { ++calls; }
};

// Calls a method with a request that has only a caller.
using CallAs = std::function<void(PeerService&, const wire::Caller&)>;

// How to call each method that a reader may call.
const std::map<absl::string_view, CallAs>& CallsOfReaders() {
  static const auto* const calls = new std::map<absl::string_view, CallAs>{
      {"hello",
       [](PeerService& service, const wire::Caller& caller) {
         wire::HelloRequest request;
         request.worker = caller.worker;
         wire::HelloReply reply;
         service.hello(reply, request);
       }},
      {"describe",
       [](PeerService& service, const wire::Caller& caller) {
         wire::DescribeRequest request;
         request.caller = caller;
         wire::DescribeReply reply;
         service.describe(reply, request);
       }},
      {"scan",
       [](PeerService& service, const wire::Caller& caller) {
         wire::ScanRequest request;
         request.caller = caller;
         wire::ScanReply reply;
         service.scan(reply, request);
       }},
      {"why",
       [](PeerService& service, const wire::Caller& caller) {
         wire::WhyReply reply;
         service.why(reply, caller);
       }},
      {"pull",
       [](PeerService& service, const wire::Caller& caller) {
         wire::PullRequest request;
         request.caller = caller;
         wire::PullReply reply;
         service.pull(reply, request);
       }},
      {"members", [](PeerService& service, const wire::Caller& caller) {
         wire::Members reply;
         service.members(reply, caller);
       }}};
  return *calls;
}

class PeerServiceTest : public ::testing::Test {
 protected:
  // Whether the call arrives; otherwise it is rejected with PERMISSION_DENIED.
  template <typename Call>
  bool Arrives(Call call) {
    const int before = counter_.calls;
    try {
      call(service_);
    } catch (const wire::ServerError& error) {
      EXPECT_EQ(error.code, wire::ErrorCode::PERMISSION_DENIED) << error.message;
      EXPECT_EQ(counter_.calls, before);
      return false;
    }
    EXPECT_EQ(counter_.calls, before + 1);
    return true;
  }
  bool Hello(int32_t worker) {
    wire::HelloRequest request = ExampleHello();
    request.worker = worker;
    request.incarnation = 0;
    return Arrives([&](PeerService& service) {
      wire::HelloReply reply;
      service.hello(reply, request);
    });
  }
  bool Pull(const wire::PullRequest& request) {
    return Arrives([&](PeerService& service) {
      wire::PullReply reply;
      service.pull(reply, request);
    });
  }

  CountingService counter_;
  PeerIdentity identity_{.roles = kReader, .name = "dashboard"};
  int greeted_ = 0;
  PeerService service_{counter_, identity_,
                       [this](const wire::HelloRequest&, wire::HelloReply&) { ++greeted_; }};
};

TEST_F(PeerServiceTest, AReaderSpeaksForNoWorker) {
  EXPECT_TRUE(Hello(-1));
  EXPECT_FALSE(Hello(0));
  EXPECT_EQ(greeted_, 1);

  wire::PullRequest request = ExamplePull();
  request.caller = {};
  request.caller.job = "job";
  request.step = request.all_durable_step = 0;
  request.decisions.clear();
  EXPECT_TRUE(Pull(request));
  wire::PullRequest as_worker = request;
  as_worker.caller.worker = 0;
  EXPECT_FALSE(Pull(as_worker));
  wire::PullRequest with_step = request;
  with_step.step = 1;
  EXPECT_FALSE(Pull(with_step));
  wire::PullRequest forgets = request;
  forgets.all_durable_step = 1;
  EXPECT_FALSE(Pull(forgets));
}

TEST_F(PeerServiceTest, NoMethodOfReadersSpeaksForAWorker) {
  wire::Caller reader;
  reader.job = "job";
  wire::Caller worker = reader;
  worker.worker = 0;
  for (const MethodRoles& row : kMethodRoles) {
    if ((row.roles & kReader) == 0) continue;
    SCOPED_TRACE(row.name);
    const auto call = CallsOfReaders().find(row.name);
    ASSERT_NE(call, CallsOfReaders().end()) << "add it to CallsOfReaders";
    EXPECT_TRUE(Arrives([&](PeerService& service) { call->second(service, reader); }));
    EXPECT_FALSE(Arrives([&](PeerService& service) { call->second(service, worker); }));
  }
}

// A caller of several roles is no mere reader. The identity may change between calls.
TEST_F(PeerServiceTest, AWorkerSpeaksForItself) {
  identity_.roles = kReader | kWorker;
  EXPECT_TRUE(Hello(0));
  EXPECT_TRUE(Pull(ExamplePull()));
  // Calls that no reader may make are forwarded as they are.
  EXPECT_TRUE(Arrives([](PeerService& service) {
    wire::PushReply reply;
    service.push(reply, ExamplePush());
  }));
}

TEST_F(PeerServiceTest, PiecesOfAMoveHaveALeastSize) {
  identity_.roles = kAdmin;
  wire::MoveRequest request;
  request.caller = ExampleCaller();
  request.max_bytes = kMinMoveBytes - 1;
  wire::MoveReply reply;
  try {
    service_.move(reply, request);
    FAIL() << "it was forwarded";
  } catch (const wire::ServerError& error) {
    EXPECT_EQ(error.message, "field max_bytes is 65535; the least is 65536");
  }
  request.max_bytes = kMinMoveBytes;
  EXPECT_NO_THROW(service_.move(reply, request));
}

}  // namespace
}  // namespace cairn
