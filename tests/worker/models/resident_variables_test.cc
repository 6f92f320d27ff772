// Variables that stay on a fake GPU: values and slots are those of the host path, bit for bit where
// the products are the same; a step copies no weights; and a failing call of the runtime is an
// error.
#include "worker/models/resident_variables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/optimizer/optimizer_cases.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/resident_scene.h"
#include "worker/models/device_step.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

// On one GPU.
class OneGpuScene : public ResidentScene {
 public:
  enum class Graphs { kNo, kYes };

  explicit OneGpuScene(const ModelCase& c, const OptimizerConfig& optimizer = {},
                       Graphs graphs = Graphs::kNo)
      : ResidentScene(c, optimizer, {Gpu(0)}, Model::Create(c.config, {}, c.schema).value(),
                      Model::Create(c.config, {}, c.schema).value()) {
    for (StepState* state : {&got(), &want()}) {
      std::unique_ptr<DeviceQueue> queue = OpenGpuQueue(Gpu(0)).value();
      if (graphs == Graphs::kNo) static_cast<CudaDeviceQueue&>(*queue).StopGraphs();
      state->device = std::make_shared<StepDevice>(std::move(queue));
    }
  }
};

class Resident : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Resident, ValuesAndSlotsAreThoseOfTheHost) {
  for (const OneGpuScene::Graphs graphs : {OneGpuScene::Graphs::kNo, OneGpuScene::Graphs::kYes}) {
    // Where products are rounded differently, Adam would divide a gradient of nearly zero by
    // itself.
    const bool large = GetParam().name == std::string("mlp_large");
    const OptimizerConfig optimizer =
        large ? OptimizerConfig{.type = "adagrad", .learning_rate = ConstantRate(0.5)}
              : OptimizerConfig{.type = "adam"};
    OneGpuScene scene(GetParam(), optimizer, graphs);
    EXPECT_EQ(scene.HasSplitProducts(), large);
    for (uint32_t step = 0; step < 4; ++step) ASSERT_OK(scene.Step(33, step));
    scene.ExpectSame();
    ASSERT_OK(scene.Step(20, 9));
    scene.ExpectSame();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Resident, ::testing::ValuesIn(ModelsWithoutTables()),
                         [](const auto& info) { return info.param.name; });

TEST(ResidentOptimizers, AllUpdateAsOnTheHost) {
  for (const OptimizerCase& c : OptimizerCases()) {
    SCOPED_TRACE(c.name);
    // The power of another FTRL differs in the last bits.
    if (c.name == "FtrlAll") continue;
    OneGpuScene scene(ThreeLayers(), ConfigOf(c));
    for (uint32_t step = 0; step < 5; ++step) ASSERT_OK(scene.Step(16, step));
    scene.ExpectSame();
  }
}

// A gradient that Update does not follow changes nothing.
TEST(ResidentSteps, AStepWithoutUpdateChangesNothing) {
  OneGpuScene scene(ThreeLayers(), {.type = "adam"});
  ASSERT_OK(scene.Step(16, 1));
  ASSERT_OK(scene.Train(16, 2));
  scene.ExpectSame();
  ASSERT_OK(scene.Step(16, 3));
  scene.ExpectSame();
}

// The batch goes in, and the losses come out.
TEST(ResidentCounts, AStepCopiesNoWeights) {
  OneGpuScene scene(ThreeLayers(), {.type = "adam"});
  for (uint32_t step = 0; step < 2; ++step) {
    ASSERT_OK(scene.Train(64, step));
    scene.resident().Update();
  }
  fake::BeginTrace();
  ASSERT_OK(scene.TrainAgain());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  uint64_t copied = 0;
  std::string text;
  for (const fake::TracedCall& call : calls) {
    absl::StrAppend(&text, call.name, " ");
    if (call.name == "cudaMemcpyAsync") copied += call.size;
  }
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const auto& call) { return call.name == "cudaMemcpyAsync"; }),
            2)
      << text;
  constexpr uint64_t kPadding = 256;
  EXPECT_LE(copied, 64 * 8 * sizeof(float) + 2 * 64 * sizeof(float) + 5 * kPadding);
  EXPECT_LE(calls.size(), 25U) << text;
}

// The update's constants differ from step to step, and the rest is a graph.
TEST(ResidentCounts, AStepThatRecursIsTheUpdateAndOneLaunch) {
  OneGpuScene scene(ThreeLayers(), {.type = "adam"}, OneGpuScene::Graphs::kYes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(scene.Train(64, 1));
    scene.resident().Update();
  }
  fake::BeginTrace();
  ASSERT_OK(scene.TrainAgain());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  const auto count = [&](const std::string& name) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const fake::TracedCall& call) { return call.name == name; });
  };
  EXPECT_EQ(count("cudaGraphLaunch"), 1);
  EXPECT_EQ(count("kernel"), 1);
  EXPECT_LE(calls.size(), 10U);
}

TEST(ResidentFailures, AnyFailingCallIsAnErrorOfItsStep) {
  const auto run = [](OneGpuScene& scene) -> absl::Status {
    RETURN_IF_ERROR(scene.Train(16, 2));
    scene.resident().Update();
    return scene.resident().Fetch();
  };
  const auto scene = [] {
    auto made = std::make_unique<OneGpuScene>(ThreeLayers(), OptimizerConfig{.type = "adam"});
    EXPECT_OK(made->Step(16, 1));
    return made;
  };
  const std::unique_ptr<OneGpuScene> healthy = scene();
  const int64_t before = fake::Calls();
  ASSERT_OK(run(*healthy));
  const int64_t calls = fake::Calls() - before;
  ASSERT_GT(calls, 10);
  for (int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    const std::unique_ptr<OneGpuScene> failing = scene();
    fake::settings().fail_at = static_cast<int>(n);
    const absl::Status status = run(*failing);
    ASSERT_EQ(fake::settings().fail_at, 0);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("gpu:0")));
  }
}

TEST(ResidentFailures, TooLittleMemoryIsAnErrorThatLeavesNothing) {
  const size_t before = fake::DeviceBytes();
  fake::settings().largest_allocation = size_t{1} << 20;
  const std::shared_ptr<const Optimizer> sgd = Optimizer::Create({}).value();
  std::vector<std::unique_ptr<DeviceQueue>> queues;
  for (const int32_t gpu : {1, 0}) queues.push_back(OpenGpuQueue(Gpu(gpu)).value());
  const auto resident =
      ResidentVariables::Create(std::move(queues), {{.floats = size_t{1} << 20, .optimizer = sgd}});
  fake::settings().largest_allocation = SIZE_MAX;
  EXPECT_THAT(resident, StatusIs(absl::StatusCode::kResourceExhausted,
                                 ::testing::HasSubstr("bytes of its memory")));
  EXPECT_EQ(fake::DeviceBytes(), before);
}

// The first gradient that is not finite is named, and the next step begins anew.
TEST(ResidentNotFinite, IsFoundAndForgotten) {
  OneGpuScene scene(ThreeLayers(), {.type = "adam"});
  ASSERT_OK(scene.Step(16, 1));
  EXPECT_TRUE(scene.resident().finite());
  ASSERT_OK(scene.Train(16, 2));
  scene.batch().dense[5] = std::numeric_limits<float>::infinity();
  ASSERT_OK(scene.TrainAgain());
  EXPECT_FALSE(scene.resident().finite());
  const auto found = scene.resident().FindNotFinite();
  ASSERT_OK(found);
  EXPECT_LT(found->variable, scene.resident().count());
  EXPECT_FALSE(std::isfinite(found->value));
  EXPECT_TRUE(scene.resident().finite());
  ASSERT_OK(scene.Step(16, 3));
  EXPECT_TRUE(scene.resident().finite());
  scene.ExpectSame();
}

TEST(ResidentMemory, IsFreedWithTheVariables) {
  const size_t device = fake::DeviceBytes(), host = fake::HostBytes();
  { OneGpuScene scene(ThreeLayers()); }
  EXPECT_EQ(fake::DeviceBytes(), device);
  EXPECT_EQ(fake::HostBytes(), host);
}

}  // namespace
}  // namespace cairn::test
