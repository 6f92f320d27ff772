// Variables are placed on servers round robin or by load, and ops on workers: the cases of
// TensorFlow's tests by id, and refusals.
#include "worker/cluster/replica_device_setter.h"

#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

ClusterSpec TwoServers() {
  return ClusterSpec::FromLists({{"ps", {"ps0:2222", "ps1:2222"}},
                                 {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}});
}

std::unique_ptr<ReplicaDeviceSetter> Setter(const DeviceSetterOptions& options) {
  auto setter = ReplicaDeviceSetter::Create(options);
  EXPECT_OK(setter);
  EXPECT_NE(*setter, nullptr);
  return *std::move(setter);
}

PlacedOp Variable(std::string device = "", Shape shape = {}) {
  return {.name = "v", .is_variable = true, .device = std::move(device), .shape = std::move(shape)};
}

TEST(ReplicaDeviceSetter, E1_VariablesArePlacedRoundRobinAndOpsOnWorkers) {
  const auto setter = Setter({.cluster = TwoServers()});
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:ps/task:0");
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:ps/task:1");
  EXPECT_EQ(setter->Device({.name = "a"}).value(), "/job:worker");
}

TEST(ReplicaDeviceSetter, E2_AVariableOfAnotherJobDoesNotAdvanceTheRoundRobin) {
  const auto setter = Setter({.cluster = TwoServers()});
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:ps/task:0");
  EXPECT_EQ(setter->Device(Variable("/job:moon")).value(), "/job:moon");
  EXPECT_EQ(setter->Device(Variable("/job:ps")).value(), "/job:ps/task:1");
}

TEST(ReplicaDeviceSetter, E4_TheServerWithTheLeastBytesIsNext) {
  const Shape shapes[] = {{2, 2}, {2, 1}, {2, 2}, {1, 3}};
  const int by_bytes[] = {0, 1, 1, 0};
  const int by_number[] = {0, 1, 0, 1};
  const auto bytes = Setter(
      {.cluster = TwoServers(), .ps_strategy = GreedyLoadBalancingStrategy(2, ByteSizeLoad)});
  const auto number =
      Setter({.cluster = TwoServers(),
              .ps_strategy = GreedyLoadBalancingStrategy(2, [](const PlacedOp&) { return 1; })});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(bytes->Device(Variable("", shapes[i])).value(),
              "/job:ps/task:" + std::to_string(by_bytes[i]));
    EXPECT_EQ(number->Device(Variable("", shapes[i])).value(),
              "/job:ps/task:" + std::to_string(by_number[i]));
  }
}

TEST(ReplicaDeviceSetter, IsNullWithoutServers) {
  const auto none = ReplicaDeviceSetter::Create({});
  ASSERT_OK(none);
  EXPECT_EQ(*none, nullptr);
  const auto no_job = ReplicaDeviceSetter::Create(
      {.ps_tasks = 4, .cluster = ClusterSpec::FromLists({{"worker", {"w:1"}}})});
  ASSERT_OK(no_job);
  EXPECT_EQ(*no_job, nullptr);
}

TEST(ReplicaDeviceSetter, TheServersJobMayHaveAnotherName) {
  const auto setter = Setter({.ps_device = "/job:store/cpu:0",
                              .cluster = ClusterSpec::FromLists({{"store", {"a:1", "b:1"}}})});
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:store/task:0/device:CPU:0");
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:store/task:1/device:CPU:0");
}

TEST(ReplicaDeviceSetter, WithoutAPsDeviceVariablesStayOnTheWorker) {
  const auto setter = Setter({.ps_tasks = 2, .ps_device = ""});
  EXPECT_EQ(setter->Device(Variable()).value(), "/job:worker");
}

TEST(ReplicaDeviceSetter, InvalidDevicesAndServersAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(ReplicaDeviceSetter::Create({.ps_tasks = 1, .ps_device = "ps"}),
              StatusIs(code, HasSubstr("unknown attribute 'ps'")));
  EXPECT_THAT(ReplicaDeviceSetter::Create({.ps_tasks = -1}), StatusIs(code, HasSubstr("-1")));
  const auto setter = Setter({.ps_tasks = 2, .ps_strategy = [](const PlacedOp&) { return 2; }});
  EXPECT_THAT(setter->Device(Variable()), StatusIs(code, HasSubstr("on ps 2; there are 2")));
  const auto greedy =
      Setter({.ps_tasks = 2, .ps_strategy = GreedyLoadBalancingStrategy(2, ByteSizeLoad)});
  EXPECT_THAT(greedy->Device(Variable("", {-1, 2})), StatusIs(code, HasSubstr("v: ")));
  for (const int32_t none : {0, -1}) {
    for (const PsStrategy& strategy :
         {RoundRobinStrategy(none), GreedyLoadBalancingStrategy(none, ByteSizeLoad)}) {
      EXPECT_THAT(Setter({.ps_tasks = 2, .ps_strategy = strategy})->Device(Variable()),
                  StatusIs(code, HasSubstr("at least 1")));
    }
  }
  EXPECT_THAT(Setter({.ps_tasks = 2, .ps_strategy = GreedyLoadBalancingStrategy(2, {})})
                  ->Device(Variable()),
              StatusIs(code, HasSubstr("load function")));
  const PsStrategy throws = [](const PlacedOp&) -> int32_t { throw std::runtime_error("boom"); };
  EXPECT_THAT(Setter({.ps_tasks = 2, .ps_strategy = throws})->Device(Variable()),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("boom")));
}

}  // namespace
}  // namespace cairn
