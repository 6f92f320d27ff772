// A worker and a server on one host, without TCP: killing a server at any moment gives a clear
// error and leaves nothing behind, and every push counts once.
#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_until_it_fails.h"
#include "tests/support/own_process.h"
#include "tests/support/ps_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/client/wire_client.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

// Lets other threads run for `time`.
void LetPass(absl::Duration time) {
  for (const Deadline lapse = Deadline::In(time); !lapse.Expired();) std::this_thread::yield();
}

class LocalTransportTest : public ::testing::Test {
 protected:
  LocalTransportTest() { options_.data_dir = temp_.Join("data"); }

  void Start() {
    auto started = PsProcess::Start(options_);
    ASSERT_OK(started);
    server_ = *std::move(started);
    options_.port = server_->port();
  }

  TempDir temp_;
  PsOptions options_;
  std::unique_ptr<PsProcess> server_;
};

wire::VariableSpec FourMebibytes() {
  wire::VariableSpec spec;
  spec.__set_name("w");
  spec.__set_shape({1024, 1024});
  wire::Optimizer optimizer;
  optimizer.type = "sgd";
  optimizer.learning_rate.type = "constant";
  optimizer.learning_rate.arguments["learning_rate"] = 1;
  spec.__set_optimizer(optimizer);
  return spec;
}

TEST_F(LocalTransportTest, AKilledServerIsNamedAndLeavesNothingBehind) {
  options_.durability = "off";
  std::mt19937_64 random(1);
  int64_t before = 0;
  for (int round = 0; round < 12; ++round) {
    ASSERT_NO_FATAL_FAILURE(Start());
    {
      const auto client = WireClient::Connect(
          server_->address(), {.peer = "ps:0 (here)", .local = LocalTransport::kSameUser}, Soon());
      ASSERT_OK(client);
      ASSERT_TRUE((*client)->is_local()) << (*client)->local_failure();
      wire::ServerState state;
      wire::Caller caller;
      caller.job = "job";
      ASSERT_OK((*client)->Call("create", Soon(), [&](auto& stub) {
        stub.create_variables(state, caller, {FourMebibytes()});
      }));
      absl::Status failure;
      std::thread calls([&] { failure = CallUntilItFails(**client, Soon()); });
      LetPass(absl::Microseconds(static_cast<int64_t>(random() % 20'000)));
      server_->Kill();
      calls.join();
      EXPECT_THAT(failure, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("to ps:0 (here): ")));
      EXPECT_FALSE((*client)->usable());
      EXPECT_TRUE((*client)->PeerClosed());
    }
    server_.reset();
    EXPECT_EQ(SharedRingMappings(), 0);
    if (round == 0) before = OpenDescriptors();
    EXPECT_EQ(OpenDescriptors(), before) << round;
  }
}

TEST_F(LocalTransportTest, PushesToAServerThatIsKilledAndRestartedCountOnce) {
  options_.flags = {"--snapshot_interval_seconds=0.05"};
  ASSERT_NO_FATAL_FAILURE(Start());
  ClientOptions options;
  options.job = "job";
  options.worker = 0;
  options.task = "worker:0";
  options.servers = {server_->address()};
  const auto client = PsClient::Connect(options, Soon());
  ASSERT_OK(client);
  EXPECT_GT(SharedRingMappings(), 0);
  VariableSpec spec{.name = "w", .shape = {64, 1024}};
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  ASSERT_OK((*client)->Create({spec}, Soon()));
  const std::vector<float> ones(64 * 1024, 1);
  std::atomic<bool> is_done = false;
  std::atomic<int> pushes = 0;
  std::thread worker([&] {
    std::vector<float> out(ones.size());
    do {
      ASSERT_OK((*client)->PushPull(
          {{.variable = "w", .values = AsBytes(absl::MakeConstSpan(ones))}}, "",
          {{.variable = "w", .out = AsWritableBytes(absl::MakeSpan(out))}}, Soon()));
      const auto expected = static_cast<float>(-++pushes);
      ASSERT_TRUE(std::all_of(out.begin(), out.end(), [&](float v) { return v == expected; }))
          << pushes;
    } while (!is_done);
  });
  std::mt19937_64 random(1);
  for (int round = 0; round < 8; ++round) {
    const int at = pushes + 5;
    for (const Deadline deadline = Soon(); pushes < at && !deadline.Expired();) {
      std::this_thread::yield();
    }
    LetPass(absl::Microseconds(static_cast<int64_t>(random() % 2000)));
    server_->Kill();
    Start();
  }
  is_done = true;
  worker.join();
  EXPECT_GE(pushes, 40);
  EXPECT_GT(SharedRingMappings(), 0);  // mapped again after each restart
}

TEST_F(LocalTransportTest, ItIsOffIfEitherSideDisablesIt) {
  ClientOptions options;
  options.job = "job";
  {
    ASSERT_NO_FATAL_FAILURE(Start());
    options.servers = {server_->address()};
    options.local_transport = LocalTransport::kOff;
    ASSERT_OK(PsClient::Connect(options, Soon()));
    EXPECT_EQ(SharedRingMappings(), 0);
  }
  options_.flags = {"--local_transport=off"};
  ASSERT_OK(server_->Terminate());
  ASSERT_NO_FATAL_FAILURE(Start());
  options.local_transport = LocalTransport::kSameUser;
  const auto client = PsClient::Connect(options, Soon());
  ASSERT_OK(client);
  EXPECT_EQ(SharedRingMappings(), 0);
  options_.flags = {"--local_transport=sometimes"};
  options_.port = 0;
  const auto refused = PsProcess::RunToExit(options_);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, 2);
  EXPECT_THAT(refused->log, HasSubstr("it is auto, any_user or off"));
}

}  // namespace
}  // namespace cairn::test
