// A step on a device has the loss, the gradients and the scores of the CPU, for every model:
// everywhere with the GPU kernels as loops, and on a GPU if there is one. A failed allocation is an
// error, and the next step succeeds.
#include "worker/models/device_step.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/loop_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/random_batch.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

void ExpectNear(absl::Span<const float> got, absl::Span<const float> want,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << what << ", element " << i;
  }
}

// `device` computes several steps of different sizes, so that memory grows and is reused.
void CheckModel(const ModelCase& c, const std::shared_ptr<StepDevice>& device) {
  const absl::StatusOr<std::unique_ptr<Model>> model = Model::Create(c.config, {}, c.schema);
  ASSERT_OK(model);
  StepState got, want;
  got.device = device;
  uint32_t seed = 1;
  for (const int64_t rows : {5, 1, 70, 33}) {
    SCOPED_TRACE(absl::StrCat(rows, " rows"));
    const Batch batch = RandomBatch(c.schema, rows, (*model)->outputs(), ++seed);
    for (StepState* state : {&got, &want}) {
      ASSERT_OK((*model)->Plan(batch, state));
      RandomValues(state, c.stddev, seed);
    }
    const absl::StatusOr<double> got_loss = (*model)->Train(batch, &got);
    const absl::StatusOr<double> want_loss = (*model)->Train(batch, &want);
    ASSERT_OK(got_loss);
    ASSERT_OK(want_loss);
    EXPECT_NEAR(*got_loss, *want_loss, 1e-6 * (1 + *want_loss));
    for (size_t v = 0; v < want.uses.size(); ++v) {
      ExpectNear(got.uses[v].gradient, want.uses[v].gradient, (*model)->variables()[v].name);
    }
    std::vector<float> got_scores, want_scores;
    ASSERT_OK((*model)->Predict(batch, &got, &got_scores));
    ASSERT_OK((*model)->Predict(batch, &want, &want_scores));
    ExpectNear(got_scores, want_scores, "scores");
  }
}

class DeviceStep : public ::testing::TestWithParam<ModelCase> {};

TEST_P(DeviceStep, EqualsTheCpuWithTheKernelsAsLoops) {
  CheckModel(GetParam(), std::make_shared<StepDevice>(std::make_unique<LoopQueue>()));
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceStep, ::testing::ValuesIn(EveryModel()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Large, DeviceStep, ::testing::Values(LargeModel()),
                         [](const auto& info) { return info.param.name; });

TEST(DeviceStepOnGpu, EqualsTheCpu) {
  if (UsableGpuCount() == 0) GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
  std::vector<ModelCase> cases = EveryModel();
  cases.push_back(LargeModel());
  for (const ModelCase& c : cases) {
    SCOPED_TRACE(c.name);
    absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = OpenGpuQueue(Gpu(0));
    ASSERT_OK(queue);
    CheckModel(c, std::make_shared<StepDevice>(*std::move(queue)));
  }
}

// For each allocation of a step in turn.
TEST(DeviceStepErrors, MemoryThatCannotBeHadIsTheStepsErrorAndTheNextOneIsWell) {
  const ModelConfig config = SmallConfig("dlrm");
  const Schema schema{.dense_columns = 4, .key_columns = 3};
  const std::unique_ptr<Model> model = Model::Create(config, {}, schema).value();
  const Batch batch = RandomBatch(schema, 20, 1, 1);
  int failures = 0;
  for (int limit = 0;; ++limit) {
    auto owned = std::make_unique<LoopQueue>();
    LoopQueue& queue = *owned;
    StepState state;
    state.device = std::make_shared<StepDevice>(std::move(owned));
    ASSERT_OK(model->Plan(batch, &state));
    RandomValues(&state, 0.4f, 1);
    queue.LimitAllocations(limit);
    const absl::Status status = model->Train(batch, &state).status();
    queue.LimitAllocations(-1);
    ASSERT_OK(model->Train(batch, &state));
    if (status.ok()) break;
    ++failures;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many")));
  }
  EXPECT_GT(failures, 10);
}

TEST(DeviceStepErrors, AGpuThatIsNotThereIsNamed) {
  const int count = UsableGpuCount();
  const absl::Status status = OpenGpuQueue(Gpu(count)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("gpu:", count, ": ")));
}

}  // namespace
}  // namespace cairn::test
