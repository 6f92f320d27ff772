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
#include "tests/worker/models/random_batch.h"
#include "worker/models/device_step.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

using Arrays = std::vector<HostVector<float>>;  // value and slots

size_t FloatsOf(const VariableSpec& spec) {
  size_t floats = 1;
  for (const int64_t extent : spec.shape) floats *= static_cast<size_t>(extent);
  return floats;
}

// A model without tables whose variables are on a fake GPU, and the same on the host, which gets
// the GPU's gradients in every step and updates by the host's optimizer.
class ResidentScene {
 public:
  enum class Graphs { kNo, kYes };

  explicit ResidentScene(const ModelCase& c, OptimizerConfig optimizer = {},
                         Graphs graphs = Graphs::kNo)
      : schema_(c.schema),
        model_(Model::Create(c.config, {}, c.schema).value()),
        optimizer_(Optimizer::Create(optimizer).value()) {
    std::vector<ResidentVariables::Variable> variables;
    for (const VariableSpec& spec : model_->variables()) {
      variables.push_back({.floats = FloatsOf(spec), .optimizer = optimizer_, .updates = 3});
    }
    resident_ =
        ResidentVariables::Create(OpenGpuQueue(Gpu(0)).value(), std::move(variables)).value();
    got_.resident = resident_.get();
    for (StepState* state : {&got_, &want_}) {
      std::unique_ptr<DeviceQueue> queue = OpenGpuQueue(Gpu(0)).value();
      if (graphs == Graphs::kNo) static_cast<CudaDeviceQueue&>(*queue).StopGraphs();
      state->device = std::make_shared<StepDevice>(std::move(queue));
    }
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal(0.0f, c.stddev);
    for (size_t v = 0; v < resident_->count(); ++v) {
      Arrays& arrays = host_.emplace_back();
      for (size_t part = 0; part < resident_->parts(v); ++part) {
        HostVector<float>& array = arrays.emplace_back(resident_->floats(v));
        const double slot = part == 0 ? 0 : optimizer_->slots()[part - 1].initial_value;
        for (float& x : array) x = part == 0 ? normal(random) : static_cast<float>(slot);
        std::copy(array.begin(), array.end(), resident_->host(v, part).begin());
      }
    }
    EXPECT_OK(resident_->Send());
  }

  absl::Status Train(int64_t rows, uint32_t seed) {
    batch_ = RandomBatch(schema_, rows, model_->outputs(), seed);
    RETURN_IF_ERROR(model_->Plan(batch_, &got_));
    return model_->Train(batch_, &got_).status();
  }

  // Train and Update, on the host too.
  absl::Status Step(int64_t rows, uint32_t seed) {
    RETURN_IF_ERROR(Train(rows, seed));
    resident_->Update();
    RETURN_IF_ERROR(model_->Plan(batch_, &want_));
    for (size_t v = 0; v < host_.size(); ++v) CopyRows(v, &want_.uses[v]);
    RETURN_IF_ERROR(model_->Train(batch_, &want_).status());
    const UpdateStep step = optimizer_->Begin(3 + updates_++);
    for (size_t v = 0; v < host_.size(); ++v) {
      const HostVector<float> gradient = Whole(v, want_.uses[v]);
      float* slots[Optimizer::kMaxSlots] = {};
      for (size_t s = 1; s < host_[v].size(); ++s) slots[s - 1] = host_[v][s].data();
      optimizer_->Apply(step, host_[v][0].data(), slots, gradient.data(), gradient.size());
    }
    return absl::OkStatus();
  }

  void ExpectSame() {
    ASSERT_OK(resident_->Fetch());
    for (size_t v = 0; v < host_.size(); ++v) {
      EXPECT_EQ(resident_->updates(v), 3 + updates_);
      for (size_t part = 0; part < host_[v].size(); ++part) {
        const absl::Span<float> got = resident_->host(v, part);
        const HostVector<float>& want = host_[v][part];
        const float tolerance = HasSplitProducts() ? 1e-5f : 0;
        EXPECT_TRUE(std::equal(
            got.begin(), got.end(), want.begin(), want.end(),
            [&](float a, float b) { return std::abs(a - b) <= tolerance * (1 + std::abs(b)); }))
            << model_->variables()[v].name << ", part " << part;
      }
    }
  }

  // A step computes a large gradient in parts if it copies it to the host. BLAS may round the parts
  // differently from the whole, which depends on the processor.
  bool HasSplitProducts() const {
    constexpr size_t kSplitFloats = (2 << 20) / sizeof(float);
    for (size_t v = 0; v < resident_->count(); ++v) {
      if (resident_->floats(v) >= kSplitFloats) return true;
    }
    return false;
  }

  const Model& model() const { return *model_; }
  ResidentVariables& resident() { return *resident_; }
  Batch& batch() { return batch_; }
  absl::Status TrainAgain() { return model_->Train(batch_, &got_).status(); }
  StepState& state() { return got_; }

 private:
  size_t WidthOf(size_t v, const VariableUse& use) const {
    return use.ids.empty() ? 0 : use.values.size() / use.ids.size();
  }
  void CopyRows(size_t v, VariableUse* use) const {
    if (use->part == Part::kWhole) {
      use->values = host_[v][0];
      return;
    }
    const size_t width = WidthOf(v, *use);
    for (size_t i = 0; i < use->ids.size(); ++i) {
      std::copy_n(host_[v][0].data() + static_cast<size_t>(use->ids[i]) * width, width,
                  use->values.data() + i * width);
    }
  }
  HostVector<float> Whole(size_t v, const VariableUse& use) const {
    if (use.part == Part::kWhole) return use.gradient;
    HostVector<float> whole(host_[v][0].size());
    const size_t width = WidthOf(v, use);
    for (size_t i = 0; i < use.ids.size(); ++i) {
      std::copy_n(use.gradient.data() + i * width, width,
                  whole.data() + static_cast<size_t>(use.ids[i]) * width);
    }
    return whole;
  }

  const Schema schema_;
  const std::unique_ptr<Model> model_;
  const std::shared_ptr<const Optimizer> optimizer_;
  std::unique_ptr<ResidentVariables> resident_;
  std::vector<Arrays> host_;  // by variable
  int64_t updates_ = 0;
  Batch batch_;
  StepState got_, want_;
};

std::vector<ModelCase> ModelsWithoutTables() {
  std::vector<ModelCase> cases;
  for (const ModelCase& c : EveryModel()) {
    if (c.schema.key_columns == 0) cases.push_back(c);
  }
  cases.push_back(LargeModel());
  return cases;
}

class Resident : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Resident, ValuesAndSlotsAreThoseOfTheHost) {
  for (const ResidentScene::Graphs graphs :
       {ResidentScene::Graphs::kNo, ResidentScene::Graphs::kYes}) {
    // Where products are rounded differently, Adam would divide a gradient of nearly zero by
    // itself.
    const bool large = GetParam().name == std::string("mlp_large");
    const OptimizerConfig optimizer =
        large ? OptimizerConfig{.type = "adagrad", .learning_rate = ConstantRate(0.5)}
              : OptimizerConfig{.type = "adam"};
    ResidentScene scene(GetParam(), optimizer, graphs);
    EXPECT_EQ(scene.HasSplitProducts(), large);
    for (uint32_t step = 0; step < 4; ++step) ASSERT_OK(scene.Step(33, step));
    scene.ExpectSame();
    ASSERT_OK(scene.Step(20, 9));
    scene.ExpectSame();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Resident, ::testing::ValuesIn(ModelsWithoutTables()),
                         [](const auto& info) { return info.param.name; });

ModelCase ThreeLayers() {
  ModelCase c{.name = "mlp", .config = SmallConfig("mlp"), .schema = {.dense_columns = 8}};
  c.config.hidden = {32, 16};
  c.config.loss = "sigmoid_cross_entropy";
  return c;
}

TEST(ResidentOptimizers, AllUpdateAsOnTheHost) {
  for (const OptimizerCase& c : OptimizerCases()) {
    SCOPED_TRACE(c.name);
    // The power of another FTRL differs in the last bits.
    if (c.name == "FtrlAll") continue;
    ResidentScene scene(ThreeLayers(), ConfigOf(c));
    for (uint32_t step = 0; step < 5; ++step) ASSERT_OK(scene.Step(16, step));
    scene.ExpectSame();
  }
}

// A gradient that Update does not follow changes nothing.
TEST(ResidentSteps, AStepWithoutUpdateChangesNothing) {
  ResidentScene scene(ThreeLayers(), {.type = "adam"});
  ASSERT_OK(scene.Step(16, 1));
  ASSERT_OK(scene.Train(16, 2));
  scene.ExpectSame();
  ASSERT_OK(scene.Step(16, 3));
  scene.ExpectSame();
}

// The batch goes in, and the losses come out.
TEST(ResidentCounts, AStepCopiesNoWeights) {
  ResidentScene scene(ThreeLayers(), {.type = "adam"});
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
  ResidentScene scene(ThreeLayers(), {.type = "adam"}, ResidentScene::Graphs::kYes);
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
  const auto run = [](ResidentScene& scene) -> absl::Status {
    RETURN_IF_ERROR(scene.Train(16, 2));
    scene.resident().Update();
    return scene.resident().Fetch();
  };
  const auto scene = [] {
    auto made = std::make_unique<ResidentScene>(ThreeLayers(), OptimizerConfig{.type = "adam"});
    EXPECT_OK(made->Step(16, 1));
    return made;
  };
  const std::unique_ptr<ResidentScene> healthy = scene();
  const int64_t before = fake::Calls();
  ASSERT_OK(run(*healthy));
  const int64_t calls = fake::Calls() - before;
  ASSERT_GT(calls, 10);
  for (int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    const std::unique_ptr<ResidentScene> failing = scene();
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
  const auto resident = ResidentVariables::Create(OpenGpuQueue(Gpu(0)).value(),
                                                  {{.floats = size_t{1} << 20, .optimizer = sgd}});
  fake::settings().largest_allocation = SIZE_MAX;
  EXPECT_THAT(resident, StatusIs(absl::StatusCode::kResourceExhausted,
                                 ::testing::HasSubstr("bytes of its memory")));
  EXPECT_EQ(fake::DeviceBytes(), before);
}

// The first gradient that is not finite is named, and the next step begins anew.
TEST(ResidentNotFinite, IsFoundAndForgotten) {
  ResidentScene scene(ThreeLayers(), {.type = "adam"});
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
  { ResidentScene scene(ThreeLayers()); }
  EXPECT_EQ(fake::DeviceBytes(), device);
  EXPECT_EQ(fake::HostBytes(), host);
}

}  // namespace
}  // namespace cairn::test
