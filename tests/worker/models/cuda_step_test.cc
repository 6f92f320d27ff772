// Steps on fake GPUs: the host code of CUDA under failures, and what a step asks of the runtime.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/random_batch.h"
#include "worker/models/device_step.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/gpu_usage.h"

namespace cairn::test {
namespace {

// A model with a step on a fake GPU and the same step on the CPU.
class Scene {
 public:
  enum class Graphs { kNo, kYes };

  Scene(const ModelCase& c, int64_t rows, Graphs graphs = Graphs::kNo, bool deterministic = false)
      : model_(Model::Create(c.config, {}, c.schema).value()),
        batch_(RandomBatch(c.schema, rows, model_->outputs(), 3)) {
    std::unique_ptr<DeviceQueue> queue = OpenGpuQueue(Gpu(0)).value();
    if (graphs == Graphs::kNo) static_cast<CudaDeviceQueue&>(*queue).StopGraphs();
    queue->SetDeterministic(deterministic);
    got_.device = std::make_shared<StepDevice>(std::move(queue));
    for (StepState* state : {&got_, &want_}) EXPECT_OK(model_->Plan(batch_, state));
    SetValues(5);
  }

  void SetValues(uint32_t seed) {
    for (StepState* state : {&got_, &want_}) RandomValues(state, 0.4f, seed);
    EXPECT_OK(model_->Train(batch_, &want_));
  }

  absl::Status Train() { return model_->Train(batch_, &got_).status(); }

  std::vector<HostVector<float>> Gradients() const {
    std::vector<HostVector<float>> gradients;
    for (const VariableUse& use : got_.uses) gradients.push_back(use.gradient);
    return gradients;
  }

  // Whether the last step's gradients are the CPU's.
  bool IsRight() const {
    for (size_t v = 0; v < want_.uses.size(); ++v) {
      const HostVector<float>& got = got_.uses[v].gradient;
      const HostVector<float>& want = want_.uses[v].gradient;
      const auto near = [](float a, float b) {
        return std::abs(a - b) <= 1e-4F * (1 + std::abs(b));
      };
      if (!std::equal(got.begin(), got.end(), want.begin(), want.end(), near)) return false;
    }
    return true;
  }

 private:
  const std::unique_ptr<Model> model_;
  const Batch batch_;
  StepState got_, want_;
};

class CudaStep : public ::testing::TestWithParam<ModelCase> {
 protected:
  ~CudaStep() override {
    fake::settings().fail_at = 0;
    fake::settings().threads = 1;
  }
};

// Every call of a step fails once. The step says so, and the one after it is right: a thread's last
// error must not reach it.
TEST_P(CudaStep, IsRightAfterAStepInWhichAnyOneCallFailed) {
  Scene scene(GetParam(), 33);
  ASSERT_OK(scene.Train());
  ASSERT_TRUE(scene.IsRight());
  const int64_t before = fake::Calls();
  ASSERT_OK(scene.Train());
  const int64_t calls = fake::Calls() - before;
  ASSERT_GT(calls, 10);
  for (int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    fake::settings().fail_at = static_cast<int>(n);
    const absl::Status failed = scene.Train();
    ASSERT_EQ(fake::settings().fail_at, 0);
    EXPECT_FALSE(failed.ok());
    ASSERT_OK(scene.Train());
    ASSERT_TRUE(scene.IsRight());
  }
}

// With kernels on several threads, which add in any order unless the step is deterministic.
TEST_P(CudaStep, RepeatsItsBitsWhereItIsDeterministic) {
  fake::settings().threads = 4;
  Scene scene(GetParam(), 300, Scene::Graphs::kNo, /*deterministic=*/true);
  ASSERT_OK(scene.Train());
  EXPECT_TRUE(scene.IsRight());
  const std::vector<HostVector<float>> first = scene.Gradients();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(scene.Train());
    EXPECT_EQ(scene.Gradients(), first);
  }
}

// The first step of a shape is issued call by call, the second is captured, the third is launched
// as a graph. Each reads the values of its time. If a call fails while the graph is made, the step
// does without; if another one fails, it says so; the next step is right.
TEST_P(CudaStep, IsRightAsAGraphWhicheverCallFails) {
  const auto trained = [this](int steps) {
    auto scene = std::make_unique<Scene>(GetParam(), 33, Scene::Graphs::kYes);
    for (int step = 0; step < steps; ++step) {
      scene->SetValues(static_cast<uint32_t>(step));
      EXPECT_OK(scene->Train());
      EXPECT_TRUE(scene->IsRight()) << "step " << step;
    }
    return scene;
  };
  for (int before = 1; before <= 2; ++before) {
    const std::unique_ptr<Scene> healthy = trained(before);
    const int64_t first = fake::Calls();
    ASSERT_OK(healthy->Train());
    const int64_t calls = fake::Calls() - first;
    if (before == 2) {
      EXPECT_LE(calls, 10);
    }
    for (int64_t n = 1; n <= calls; n += 1 + calls / 8) {
      SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls, " after ", before, " steps"));
      const std::unique_ptr<Scene> scene = trained(before);
      fake::settings().fail_at = static_cast<int>(n);
      const absl::Status status = scene->Train();
      fake::settings().fail_at = 0;
      EXPECT_TRUE(!status.ok() || scene->IsRight());
      scene->SetValues(9);
      ASSERT_OK(scene->Train());
      ASSERT_TRUE(scene->IsRight());
    }
  }
}

// A step with large parts copies them directly. Whichever of its calls fails, the next one is
// right.
TEST(CudaStepLarge, IsRightAfterAStepInWhichAnyOneCallFailed) {
  Scene scene(LargeModel(), 44);
  ASSERT_OK(scene.Train());
  ASSERT_TRUE(scene.IsRight());
  const int64_t before = fake::Calls();
  scene.SetValues(6);
  ASSERT_OK(scene.Train());
  ASSERT_TRUE(scene.IsRight());
  const int64_t calls = fake::Calls() - before;
  for (int64_t n = 1; n <= calls; n += 1 + calls / 8) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    fake::settings().fail_at = static_cast<int>(n);
    EXPECT_FALSE(scene.Train().ok());
    scene.SetValues(static_cast<uint32_t>(n));
    ASSERT_OK(scene.Train());
    ASSERT_TRUE(scene.IsRight());
  }
}

// The first rows are computed while the others are copied.
TEST(CudaStepLarge, TheFirstProductPrecedesTheCopyOfTheLastRows) {
  ModelCase c{.name = "mlp", .config = SmallConfig("mlp"), .schema = {.dense_columns = 100}};
  c.config.hidden = {4};
  Scene scene(c, 22000);
  ASSERT_OK(scene.Train());
  EXPECT_TRUE(scene.IsRight());
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const fake::TracedCall& call) {
                            return call.name == "cudaMemcpyAsync" &&
                                   call.size == 11000 * 100 * sizeof(float);
                          }),
            2);
  // The compute stream waits for the second half after it has the first product.
  const auto find = [&](auto from, const std::string& name) {
    return std::find_if(from, calls.end(),
                        [&name](const fake::TracedCall& call) { return call.name == name; });
  };
  const auto product = find(calls.begin(), "cublasGemmEx_64");
  const auto wait = find(product, "cudaStreamWaitEvent");
  EXPECT_LT(wait, find(product + 1, "cublasGemmEx_64"));
}

// Large vectors are page-locked themselves, so a step has no second copy of them in host memory.
TEST(CudaStepLarge, StagesOnlySmallParts) {
  const ModelCase c = LargeModel();
  const std::unique_ptr<Model> model = Model::Create(c.config, {}, c.schema).value();
  StepState state;
  state.device = std::make_shared<StepDevice>(OpenGpuQueue(Gpu(0)).value());
  const Batch batch = RandomBatch(c.schema, 44, model->outputs(), 3);
  ASSERT_OK(model->Plan(batch, &state));
  RandomValues(&state, 0.4F, 5);
  size_t bytes = 0;
  for (VariableUse& use : state.uses) {
    use.gradient.resize(use.values.size());
    bytes += use.values.size() * sizeof(float);
  }
  EXPECT_GT(bytes, size_t{2} << 20);
  const size_t before = fake::HostBytes();
  ASSERT_OK(model->Train(batch, &state));
  EXPECT_LT(fake::HostBytes() - before, size_t{64} << 10);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStep, ::testing::ValuesIn(EveryModel()),
                         [](const auto& info) { return info.param.name; });

// The control of RepeatsItsBitsWhereItIsDeterministic: the fakes do show another order.
TEST(CudaStepControl, SumsInAnyOrderDiffer) {
  fake::settings().threads = 4;
  ModelCase c{.name = "dlrm", .config = SmallConfig("dlrm")};
  c.schema = {.dense_columns = 4, .key_columns = 3};
  Scene scene(c, 2000);
  ASSERT_OK(scene.Train());
  const std::vector<HostVector<float>> first = scene.Gradients();
  bool differs = false;
  for (int i = 0; i < 100 && !differs; ++i) {
    ASSERT_OK(scene.Train());
    differs = scene.Gradients() != first;
  }
  fake::settings().threads = 1;
  EXPECT_TRUE(differs);
}

// Weights of which the second layer's are too many to go with the input.
ModelCase LayersCase() {
  ModelCase c{.name = "mlp", .config = SmallConfig("mlp"), .schema = {.dense_columns = 8}};
  c.config.hidden = {256, 128};
  c.config.loss = "sigmoid_cross_entropy";
  return c;
}

// The first layer's kernels are queued before the last layer's weights are copied, so that copying
// weights runs beside computing.
TEST(CudaStepOrder, ComputingBeginsBeforeAllWeightsAreCopied) {
  Scene scene(LayersCase(), 64);
  ASSERT_OK(scene.Train());
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  const auto product = std::find_if(calls.begin(), calls.end(), [](const fake::TracedCall& call) {
    return call.name == "cublasGemmEx_64";
  });
  const auto copy = std::find_if(calls.begin(), calls.end(), [](const fake::TracedCall& call) {
    return call.name == "cudaMemcpyAsync";
  });
  ASSERT_NE(product, calls.end());
  const cudaStream_t in = copy->stream;
  EXPECT_TRUE(std::any_of(product, calls.end(), [in](const fake::TracedCall& call) {
    return call.stream == in;
  })) << "no copy in follows the first product";
}

ModelCase DlrmCase() {
  ModelCase c{.name = "dlrm", .config = SmallConfig("dlrm")};
  c.schema = {.dense_columns = 13, .key_columns = 26};
  c.config.bottom_hidden = ModelConfig().bottom_hidden;
  c.config.top_hidden = ModelConfig().top_hidden;
  c.config.embedding.dim = 16;
  return c;
}

ModelCase ThreeLayersCase() {
  ModelCase c = LayersCase();
  c.config.hidden = {32, 16};
  return c;
}

// Each call costs the host microseconds, whatever the batch.
TEST(CudaStepCounts, AStepMakesFewCallsOfTheRuntime) {
  const std::pair<ModelCase, int64_t> cases[] = {{DlrmCase(), 45}, {ThreeLayersCase(), 24}};
  for (const auto& [c, most] : cases) {
    SCOPED_TRACE(c.name);
    Scene scene(c, 64);
    ASSERT_OK(scene.Train());
    ASSERT_TRUE(scene.IsRight());
    fake::BeginTrace();
    ASSERT_OK(scene.Train());
    std::map<std::string, int> counts;
    for (const fake::TracedCall& call : fake::EndTrace()) ++counts[call.name];
    int64_t calls = 0;
    std::string text;
    for (const auto& [name, count] : counts) {
      calls += count;
      absl::StrAppend(&text, name, " ", count, ", ");
    }
    RecordProperty(c.name, text);
    EXPECT_LE(calls, most) << text;
  }
}

// A step of a shape that came before is one launch.
TEST(CudaStepCounts, AStepThatRecursIsOneLaunch) {
  Scene scene(ThreeLayersCase(), 64, Scene::Graphs::kYes);
  for (int i = 0; i < 2; ++i) ASSERT_OK(scene.Train());
  scene.SetValues(8);
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  EXPECT_TRUE(scene.IsRight());
  EXPECT_LE(calls.size(), 10U);
  EXPECT_EQ(
      std::count_if(calls.begin(), calls.end(),
                    [](const fake::TracedCall& call) { return call.name == "cudaGraphLaunch"; }),
      1);
}

// A queue whose steps do not recur stops deferring calls, so that copies run while the host works.
TEST(CudaStepCounts, StepsThatNeverRecurAreIssuedAtOnce) {
  const ModelCase c = ThreeLayersCase();
  const std::unique_ptr<Model> model = Model::Create(c.config, {}, c.schema).value();
  StepState state;
  state.device = std::make_shared<StepDevice>(OpenGpuQueue(Gpu(0)).value());
  // The largest first: a step whose memory grows is not counted.
  for (int64_t rows = 40; rows > 20; --rows) {
    const Batch batch = RandomBatch(c.schema, rows, model->outputs(), 3);
    ASSERT_OK(model->Plan(batch, &state));
    RandomValues(&state, 0.4F, 5);
    ASSERT_OK(model->Train(batch, &state));
  }
  const Batch batch = RandomBatch(c.schema, 20, model->outputs(), 3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(model->Plan(batch, &state));
    fake::BeginTrace();
    ASSERT_OK(model->Train(batch, &state));
    const std::vector<fake::TracedCall> calls = fake::EndTrace();
    EXPECT_TRUE(std::none_of(calls.begin(), calls.end(), [](const fake::TracedCall& call) {
      return call.name == "cudaGraphLaunch";
    }));
  }
}

// One step in sixteen is measured, by events that nobody waits for. The mean of the calls stays
// low.
TEST(CudaStepTimes, AreThoseOfOneStepInSixteen) {
  const std::pair<ModelCase, size_t> cases[] = {{DlrmCase(), 60}, {ThreeLayersCase(), 25}};
  for (const auto& [c, most] : cases) {
    SCOPED_TRACE(c.name);
    Scene scene(c, 64);
    const GpuUsage before = ReadGpuUsage();
    const auto usage = [&before] { return ReadGpuUsage().Since(before); };
    for (int i = 0; i < 4; ++i) ASSERT_OK(scene.Train());
    EXPECT_EQ(usage().steps, 4);
    EXPECT_EQ(usage().measured_steps, 0);
    EXPECT_EQ(usage().compute_seconds, 0);
    ASSERT_OK(scene.Train());  // the first measured step creates its events
    EXPECT_EQ(usage().measured_steps, 1);
    fake::BeginTrace();
    for (int i = 0; i < 16; ++i) ASSERT_OK(scene.Train());
    const std::vector<fake::TracedCall> calls = fake::EndTrace();
    EXPECT_TRUE(scene.IsRight());
    EXPECT_EQ(usage().measured_steps, 2);
    EXPECT_GT(usage().compute_seconds, 0);
    EXPECT_GT(usage().copy_seconds, 0);
    EXPECT_LT(usage().compute_seconds, 60);
    EXPECT_LE(calls.size(), 16 * most);
    for (const fake::TracedCall& call : calls) {
      EXPECT_THAT(call.name, ::testing::Not(::testing::HasSubstr("Synchronize")));
    }
  }
}

// A measured step that recurs is issued call by call; later ones are graphs again.
TEST(CudaStepTimes, OfStepsThatRecurAreMeasuredToo) {
  Scene scene(ThreeLayersCase(), 64, Scene::Graphs::kYes);
  const GpuUsage before = ReadGpuUsage();
  for (int step = 0; step < 22; ++step) {
    scene.SetValues(static_cast<uint32_t>(step));
    ASSERT_OK(scene.Train());
    EXPECT_TRUE(scene.IsRight()) << step;
  }
  const GpuUsage usage = ReadGpuUsage().Since(before);
  EXPECT_EQ(usage.measured_steps, 2);
  EXPECT_GT(usage.copy_seconds, 0);
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  EXPECT_LE(fake::EndTrace().size(), 10U);
}

// DLRM's dot products are one call for the whole batch, forward and backward.
TEST(CudaStepCounts, FeaturesInteractInBatchedProducts) {
  Scene scene(DlrmCase(), 64);
  ASSERT_OK(scene.Train());
  ASSERT_TRUE(scene.IsRight());
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const fake::TracedCall& call) {
                            return call.name == "cublasGemmStridedBatchedEx_64";
                          }),
            2);
}

// With sums in a fixed order, no kernel has a thread that adds all rows of a column of a table.
TEST(CudaStepCounts, DeterministicSumsOfTablesUseManyThreads) {
  ModelCase c = DlrmCase();
  Scene scene(c, 300, Scene::Graphs::kNo, /*deterministic=*/true);
  ASSERT_OK(scene.Train());
  ASSERT_TRUE(scene.IsRight());
  fake::BeginTrace();
  ASSERT_OK(scene.Train());
  const auto columns = static_cast<uint64_t>(26 * c.config.embedding.dim);
  for (const fake::TracedCall& call : fake::EndTrace()) {
    if (call.name == "kernel") {
      EXPECT_NE(call.size, columns);
    }
  }
}

// A step that computes nothing more keeps no memory.
TEST(CudaStepMemory, IsFreedWithTheStep) {
  const size_t device = fake::DeviceBytes(), host = fake::HostBytes();
  {
    Scene scene(LayersCase(), 64);
    const int64_t used = ReadGpuUsage().memory_bytes;
    ASSERT_OK(scene.Train());
    EXPECT_GT(fake::DeviceBytes(), device);
    EXPECT_EQ(ReadGpuUsage().memory_bytes - used,
              static_cast<int64_t>(fake::DeviceBytes() - device));
  }
  EXPECT_EQ(fake::DeviceBytes(), device);
  EXPECT_EQ(fake::HostBytes(), host);
}

}  // namespace
}  // namespace cairn::test
