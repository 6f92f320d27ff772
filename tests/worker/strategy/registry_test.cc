// Strategies by name, including a program's own.
#include "worker/strategy/registry.h"

#include "tests/worker/strategy/case_support.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Registry, MakesBuiltInStrategies) {
  for (const char* name : {"mirrored", "central_storage"}) {
    const auto strategy = MakeStrategy(name, {.devices = ReplicaDevices(2)});
    ASSERT_OK(strategy) << name;
    EXPECT_EQ((*strategy)->num_replicas_in_sync(), 2);
  }
  EXPECT_EQ(MakeStrategy("one_device", {}).value()->worker_devices()[0], Cpu(0));
}

TEST(Registry, RefusesWithTheReason) {
  EXPECT_THAT(MakeStrategy("tpu", {}), StatusIs(absl::StatusCode::kUnimplemented,
                                                HasSubstr("needs hardware and a compiler")));
  EXPECT_THAT(MakeStrategy("parameter_server", {}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("call ParameterServerStrategy::Create")));
  EXPECT_THAT(MakeStrategy("mirored", {}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("did you mean 'mirrored'"), HasSubstr("one_device"))));
  EXPECT_THAT(MakeStrategy("mirrored", {.workers = {"a:1", "b:1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("works in one process")));
}

TEST(Registry, TakesAProgramsOwnStrategy) {
  ASSERT_OK(RegisterStrategy("two_cpus", [](const StrategyArguments&) {
    return absl::StatusOr<std::unique_ptr<Strategy>>(Mirrored(2));
  }));
  EXPECT_EQ(MakeStrategy("two_cpus", {}).value()->num_replicas_in_sync(), 2);
  EXPECT_THAT(RegisterStrategy("two_cpus", nullptr),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("two_cpus")));
}

TEST(Registry, FactoriesThatThrowOrReturnNullAreErrors) {
  EXPECT_THAT(RegisterStrategy("none", nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found no factory")));
  using Made = absl::StatusOr<std::unique_ptr<Strategy>>;
  ASSERT_OK(RegisterStrategy("throws", [](const StrategyArguments&) -> Made { throw 1; }));
  EXPECT_THAT(MakeStrategy("throws", {}), StatusIs(absl::StatusCode::kUnknown, HasSubstr("threw")));
  ASSERT_OK(RegisterStrategy("null", [](const StrategyArguments&) -> Made { return nullptr; }));
  EXPECT_THAT(MakeStrategy("null", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("returned null")));
}

}  // namespace
}  // namespace cairn::test
