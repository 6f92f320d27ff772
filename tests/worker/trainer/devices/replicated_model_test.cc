// A batch divided over replicas has the loss and the gradients of the whole batch: for variables
// used whole, by rows and by keys, also with fewer rows than replicas.
#include "worker/trainer/devices/replicated_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exit_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/model_scene.h"
#include "tests/worker/models/random_batch.h"
#include "tests/worker/trainer/joint/divided_model.h"
#include "worker/collective/cross_device_ops.h"
#include "worker/strategy/gpu_ranks.h"
#include "worker/strategy/mirrored_strategy.h"

namespace cairn {
namespace {

// A GPU whose kernels are loops.
absl::StatusOr<std::unique_ptr<DeviceQueue>> OpenLoops(Device) {
  return std::make_unique<test::LoopQueue>();
}

std::unique_ptr<Model> DividedOver(const test::ModelScene& scene, std::vector<Device> devices) {
  std::vector<Device> places;
  for (size_t i = 0; i < devices.size(); ++i) places.push_back(Cpu(static_cast<int32_t>(i)));
  return std::make_unique<ReplicatedModel>(scene.MakeModel(),
                                           MirroredStrategy::Create(std::move(places)).value(),
                                           std::move(devices), OpenLoops);
}

std::unique_ptr<Model> Divided(const test::ModelScene& scene, size_t replicas) {
  std::vector<Device> devices;
  for (size_t i = 0; i < replicas; ++i) devices.push_back(Cpu(static_cast<int32_t>(i)));
  return DivideOverReplicas(scene.MakeModel(), "parameter_server", std::move(devices), "auto")
      .value();
}

void CheckScene(const test::ModelScene& scene, int64_t rows, const Model& divided) {
  SCOPED_TRACE(absl::StrCat(scene.name, ", ", rows, " rows"));
  const auto whole = scene.MakeModel();
  const Batch batch = test::RandomBatch(scene.schema, rows, 1, 3);
  StepState want, got;
  ASSERT_OK(whole->Plan(batch, &want));
  ASSERT_OK(divided.Plan(batch, &got));
  // Twice: a step's remains must not affect the next one.
  for (int step = 0; step < 2; ++step) {
    test::FillValues(&want);
    test::FillValues(&got);
    const absl::StatusOr<double> want_loss = whole->Train(batch, &want);
    const absl::StatusOr<double> got_loss = divided.Train(batch, &got);
    ASSERT_OK(want_loss);
    ASSERT_OK(got_loss);
    EXPECT_NEAR(*got_loss, *want_loss, 1e-6 * (1 + *want_loss));
  }
  test::ExpectSameGradients(got, want, *whole);
}

TEST(ReplicatedModel, HasTheGradientsOfTheWholeBatch) {
  for (const test::ModelScene& scene : test::ModelScenes()) {
    for (const int64_t rows : {1, 2, 7, 64}) {
      for (const size_t replicas : {size_t{2}, size_t{3}}) {
        SCOPED_TRACE(absl::StrCat(replicas, " replicas"));
        CheckScene(scene, rows, *Divided(scene, replicas));
      }
    }
  }
}

// The order of additions is that of TensorFlow's HierarchicalCopyAllReduce.
TEST(ReplicatedModel, HierarchicalCopyAddsUpTheHalvesFirst) {
  constexpr int kReplicas = 4;
  const test::ModelScene scene = test::SparseScene("linear", 12);
  const std::vector<Device> devices = {Cpu(0), Cpu(1), Cpu(2), Cpu(3)};
  const auto model =
      DivideOverReplicas(scene.MakeModel(), "mirrored", devices, "hierarchical_copy").value();
  CheckScene(scene, 64, *model);
  const Batch batch = test::RandomBatch(scene.schema, 64, 1, 3);
  StepState state;
  ASSERT_OK(model->Plan(batch, &state));
  test::FillValues(&state);
  ASSERT_OK(model->Train(batch, &state));
  bool another_order_differs = false;
  for (size_t v = 0; v < state.uses.size(); ++v) {
    if (state.uses[v].part != Part::kWhole) continue;
    const HierarchicalPlan plan = PlanHierarchicalCopy(kReplicas, static_cast<int64_t>(v));
    for (size_t i = 0; i < state.uses[v].gradient.size(); ++i) {
      const auto sum = [&](const std::vector<int>& replicas) {
        float total = 0;
        for (const int r : replicas) {
          total += 0.25f * state.shares[static_cast<size_t>(r)].state.uses[v].gradient[i];
        }
        return total;
      };
      EXPECT_EQ(state.uses[v].gradient[i], sum(plan.main_half) + sum(plan.other_half));
      another_order_differs |= state.uses[v].gradient[i] != sum({0, 1, 2, 3});
    }
  }
  EXPECT_TRUE(another_order_differs);
}

// Two replicas share a GPU, one is on another GPU, one on the CPU; each step has its own memory.
TEST(ReplicatedModel, GpusAndCpusTogetherHaveThemToo) {
  for (const test::ModelScene& scene : test::ModelScenes()) {
    const auto divided = DividedOver(scene, {Gpu(0), Gpu(0), Gpu(1), Cpu(0)});
    for (const int64_t rows : {1, 7, 64}) CheckScene(scene, rows, *divided);
  }
}

TEST(DeviceModel, IsTheModelOnAGpu) {
  for (const test::ModelScene& scene : test::ModelScenes()) {
    const DeviceModel on_gpu(scene.MakeModel(), Gpu(0), OpenLoops);
    CheckScene(scene, 33, on_gpu);
    const Batch batch = test::RandomBatch(scene.schema, 9, 1, 5);
    StepState want, got;
    std::vector<float> wanted, scores;
    const auto whole = scene.MakeModel();
    ASSERT_OK(whole->Plan(batch, &want));
    ASSERT_OK(on_gpu.Plan(batch, &got));
    test::FillValues(&want);
    test::FillValues(&got);
    ASSERT_OK(whole->Predict(batch, &want, &wanted));
    ASSERT_OK(on_gpu.Predict(batch, &got, &scores));
    EXPECT_THAT(scores, ::testing::Pointwise(::testing::FloatNear(1e-5F), wanted));
  }
}

// A pipeline has a StepState for each step in flight, and an evaluation one of its own: the steps
// are computed one after the other, in the memory of one queue.
TEST(DeviceModel, StepsOneAfterTheOtherUseOneQueue) {
  const test::ModelScene scene = test::SparseScene("linear", 12);
  int opened = 0;
  const DeviceModel on_gpu(scene.MakeModel(), Gpu(0), [&opened](Device device) {
    ++opened;
    return OpenLoops(device);
  });
  const Batch batch = test::RandomBatch(scene.schema, 9, 1, 5);
  std::vector<StepState> states(5);
  for (int step = 0; step < 2; ++step) {
    for (StepState& state : states) {
      ASSERT_OK(on_gpu.Plan(batch, &state));
      test::FillValues(&state);
      ASSERT_OK(on_gpu.Train(batch, &state));
      EXPECT_EQ(state.device, nullptr);
    }
  }
  StepState evaluation;
  std::vector<float> scores;
  ASSERT_OK(on_gpu.Plan(batch, &evaluation));
  test::FillValues(&evaluation);
  ASSERT_OK(on_gpu.Predict(batch, &evaluation, &scores));
  EXPECT_EQ(opened, 1);
}

TEST(DevicesOf, NamesThoseThatCannotBeUsed) {
  StrategyConfig config;
  config.devices = {"cpu:0", "gpu:4096"};
  const absl::Status status = DevicesOf(config).status();
  EXPECT_EQ(ExitCodeOf(status), 2);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("strategy.devices: gpu:4096: "));
}

TEST(DevicesOf, AreAllGpusOrOneCpuWhereNoneIsNamed) {
  StrategyConfig config;
  const std::vector<Device> found = DevicesOf(config).value();
  if (UsableGpuCount() == 0) {
    EXPECT_THAT(found, ::testing::ElementsAre(Cpu(0)));
  } else {
    EXPECT_EQ(found.size(), static_cast<size_t>(UsableGpuCount()));
  }
  config.type = "one_device";
  EXPECT_EQ(DevicesOf(config).value(), std::vector<Device>{found.front()});
}

TEST(ReplicatedModel, OneDeviceIsTheModelItself) {
  const test::ModelScene scene = test::SparseScene("linear", 12);
  auto model = scene.MakeModel();
  const Model* const address = model.get();
  EXPECT_EQ(DivideOverReplicas(std::move(model), "mirrored", {Cpu(3)}, "auto").value().get(),
            address);
}

// A lower precision changes the loss a little, the more the fewer bits it has; float32 does not.
TEST(ReplicatedModel, ProductsHaveThePrecisionOfTheJob) {
  if (UsableGpuCount() == 0) GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
  const test::ModelScene scene = {
      .name = "mlp",
      .model = {.type = "mlp", .loss = "sigmoid_cross_entropy", .hidden = {64}},
      .schema = {.dense_columns = 64}};
  const Batch batch = test::RandomBatch(scene.schema, 32, 1, 3);
  const auto gradients = [&](const std::vector<Device>& devices, const std::string& precision) {
    const auto model = DivideOverReplicas(scene.MakeModel(), "mirrored", devices, "auto",
                                          {.precision = ParseMatmulPrecision(precision)})
                           .value();
    StepState state;
    EXPECT_OK(model->Plan(batch, &state));
    test::FillValues(&state);
    EXPECT_OK(model->Train(batch, &state));
    std::vector<float> all;
    for (const VariableUse& use : state.uses) {
      all.insert(all.end(), use.gradient.begin(), use.gradient.end());
    }
    return all;
  };
  const std::vector<float> want = gradients({Cpu(0)}, "float32");
  // The largest error, as a part of the largest gradient.
  const auto error = [&](const std::string& precision) {
    const std::vector<float> got = gradients({Gpu(0)}, precision);
    float worst = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    return worst / largest;
  };
  EXPECT_LT(error("float32"), 1e-5);
  EXPECT_GT(error("tf32"), 2e-5);
  EXPECT_LT(error("tf32"), 1e-2);
  EXPECT_GT(error("bfloat16"), 3e-4);
  EXPECT_LT(error("bfloat16"), 1e-1);
}

// Sums are computed in host memory if the devices cannot; a method requested by name is not
// replaced.
TEST(ReplicatedModel, NcclIsRefusedWhereTheDevicesCannotAddUpWithTheReason) {
  const test::ModelScene scene = test::SparseScene("linear", 12);
  const std::vector<std::vector<Device>> cannot = {
      {Cpu(0)}, {Gpu(0)}, {Cpu(0), Cpu(1)}, {Gpu(0), Cpu(0)}, {Gpu(0), Gpu(0)}};
  for (const std::vector<Device>& devices : cannot) {
    const absl::Status status =
        DivideOverReplicas(scene.MakeModel(), "mirrored", devices, "nccl").status();
    EXPECT_EQ(ExitCodeOf(status), 2) << status;
    EXPECT_THAT(status.message(), ::testing::AllOf(::testing::HasSubstr("cross_device_ops: nccl"),
                                                   ::testing::HasSubstr(DevicesText(devices))));
    EXPECT_OK(DivideOverReplicas(scene.MakeModel(), "mirrored", devices, "auto"));
    EXPECT_OK(
        DivideOverReplicas(scene.MakeModel(), "mirrored", devices, "reduction_to_one_device"));
  }
  const auto divided =
      DivideOverReplicas(scene.MakeModel(), "mirrored", {Gpu(0), Gpu(1)}, "nccl").status();
  const absl::Status nccl = CheckNccl({Gpu(0), Gpu(1)});
  EXPECT_EQ(divided.ok(), nccl.ok());
  EXPECT_THAT(divided.message(), ::testing::HasSubstr(nccl.message()));
}

// An error of one replica is the step's error.
TEST(ReplicatedModel, BadRowIsRefused) {
  const test::ModelScene scene = test::SparseScene("linear", 12);
  const auto model = Divided(scene, 2);
  Batch batch = test::RandomBatch(scene.schema, 8, 1, 1);
  StepState state;
  ASSERT_OK(model->Plan(batch, &state));
  batch.columns.back() = 99;
  EXPECT_THAT(model->Train(batch, &state),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("column 99")));
}

}  // namespace
}  // namespace cairn
