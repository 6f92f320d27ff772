// Servers in this process: the cases of TensorFlow's server_lib tests, and stopping.
#include "worker/cluster/server.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/client/ps_client.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Deadline Soon() { return Deadline::In(absl::Seconds(30)); }

class ServerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Server>> Make(
      const std::map<std::string, std::vector<std::string>>& jobs, ServerOptions options = {}) {
    options.data_directory = folder_.Join("data");
    return Server::Create(ClusterSpec::FromLists(jobs), options);
  }
  static std::unique_ptr<PsClient> Connect(const Server& server) {
    ClientOptions options;
    options.job = "job";
    options.worker = 0;
    options.servers = {server.target()};
    return PsClient::Connect(options, Soon()).value();
  }

  const TempDir folder_;
};

TEST_F(ServerTest, D11_AnAddressWithoutAPortIsRefused) {
  EXPECT_THAT(Make({{"local", {"localhost"}}}), StatusIs(kInvalid, HasSubstr("port")));
  EXPECT_THAT(Make({{"local", {"localhost:many"}}}), StatusIs(kInvalid, HasSubstr("port")));
}

TEST_F(ServerTest, AnIpv6AddressIsInBrackets) {
  const auto server = Make({{"ps", {"[::1]:0"}}});
  ASSERT_OK(server);
  EXPECT_THAT((*server)->target(), StartsWith("[::1]:"));
  EXPECT_OK(Connect(**server)->Leave(Soon()));
  EXPECT_THAT(Make({{"ps", {"::1:0"}}}), StatusIs(kInvalid, HasSubstr("in brackets")));
}

TEST_F(ServerTest, D11_APortInUseIsRefused) {
  const auto first = Server::CreateLocal(folder_.Join("first")).value();
  EXPECT_THAT(Make({{"local", {first->target()}}}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(first->target())));
}

TEST_F(ServerTest, TheTaskIsInferredOnlyIfThereIsOne) {
  EXPECT_THAT(Make({{"ps", {OwnAddress()}}, {"worker", {"w:1"}}}),
              StatusIs(kInvalid, HasSubstr("explicit job_name")));
  EXPECT_THAT(Make({{"ps", {OwnAddress(), "b:1"}}}),
              StatusIs(kInvalid, HasSubstr("explicit task_index")));
  EXPECT_THAT(Make({{"ps", {OwnAddress()}}, {"worker", {"w:1"}}}, {.job_name = "worker"}),
              StatusIs(kInvalid, HasSubstr("job \"ps\"")));
  EXPECT_OK(Make({{"ps", {OwnAddress()}}, {"worker", {"w:1"}}}, {.job_name = "ps"}));
}

TEST_F(ServerTest, StartsOnceAndNotAfterStop) {
  const auto server = Make({{"local", {OwnAddress()}}}, {.start = false}).value();
  EXPECT_OK(server->Join(Soon()));
  ASSERT_OK(server->Start());
  ASSERT_OK(server->Start());
  EXPECT_EQ(server->Join(Deadline::In(absl::ZeroDuration())).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_OK(server->Stop());
  ASSERT_OK(server->Stop());
  EXPECT_OK(server->Join(Soon()));
  EXPECT_THAT(server->Start(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was stopped")));
}

TEST_F(ServerTest, ANewServerHasTheStateOfTheStoppedOne) {
  VariableSpec spec;
  spec.name = "v";
  spec.shape = {2};
  auto server = Make({{"local", {OwnAddress()}}}).value();
  std::vector<float> values = {3, 4};
  {
    const auto client = Connect(*server);
    ASSERT_OK(client->Create({&spec, 1}, Soon()));
    const PushSource source{.variable = "v", .values = AsBytes(absl::Span<const float>(values))};
    ASSERT_OK(client->Assign({&source, 1}, Soon()));
    ASSERT_OK(client->Leave(Soon()));
  }
  ASSERT_OK(server->Stop());
  server = Make({{"local", {OwnAddress()}}}).value();
  values = {0, 0};
  const auto client = Connect(*server);
  ASSERT_OK(client->Describe(Soon()));
  const PullTarget target{.variable = "v", .out = AsWritableBytes(absl::MakeSpan(values))};
  ASSERT_OK(client->Pull({&target, 1}, Soon()));
  EXPECT_THAT(values, ElementsAre(3, 4));
}

}  // namespace
}  // namespace cairn
