// Variables that stay on the GPUs of several replicas, on fake GPUs: every copy has the same bits,
// which are those of replicas whose variables travel through host memory, whichever way a step sums
// its gradients; and a failing call of CUDA or NCCL is an error of its step and blocks no replica.
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
#include "tests/worker/models/random_batch.h"
#include "tests/worker/models/resident_scene.h"
#include "tests/worker/trainer/devices/replica_scene.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class ReplicatedResident : public ::testing::TestWithParam<ModelCase> {};

// The first step of a size, and steps with fewer rows than replicas, sum in host memory.
TEST_P(ReplicatedResident, EveryCopyHasTheBitsOfTheHostPath) {
  const bool large = GetParam().name == std::string("mlp_large");
  const OptimizerConfig optimizer =
      large ? OptimizerConfig{.type = "adagrad", .learning_rate = ConstantRate(0.5)}
            : OptimizerConfig{.type = "adam"};
  for (const size_t replicas : {size_t{2}, size_t{3}}) {
    SCOPED_TRACE(absl::StrCat(replicas, " replicas"));
    ReplicaScene scene(GetParam(), optimizer, Gpus(replicas));
    uint32_t seed = 0;
    for (const int64_t rows : {33, 33, 1, 7, 70, 70, 2, 64}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows"));
      const int64_t sums = fake::Calls("ncclAllReduce");
      ASSERT_OK(scene.Step(rows, ++seed));
      const bool on_gpus = rows >= static_cast<int64_t>(replicas) && rows != 70 && seed > 1;
      if (on_gpus || rows == 1 || seed == 1) {
        EXPECT_EQ(fake::Calls("ncclAllReduce") > sums, on_gpus);
      }
      if (seed % 3 == 2) scene.ExpectSame();
    }
    scene.ExpectSame();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReplicatedResident, ::testing::ValuesIn(ModelsWithoutTables()),
                         [](const auto& info) { return info.param.name; });

TEST(ReplicatedResidentOptimizers, AllUpdateEveryCopyAsOnTheHost) {
  for (const OptimizerCase& c : OptimizerCases()) {
    // The power of another FTRL differs in the last bits.
    if (c.name == "FtrlAll") continue;
    for (const size_t replicas : {size_t{2}, size_t{3}}) {
      SCOPED_TRACE(absl::StrCat(c.name, ", ", replicas, " replicas"));
      ReplicaScene scene(ThreeLayers(), ConfigOf(c), Gpus(replicas));
      for (uint32_t step = 0; step < 4; ++step) ASSERT_OK(scene.Step(16, step));
      scene.ExpectSame();
    }
  }
}

// Without NCCL, or with replicas that share a GPU, every step sums in host memory.
TEST(ReplicatedResidentSteps, SumsInHostMemoryUpdateEveryCopyToo) {
  const std::vector<std::vector<Device>> shared = {{Gpu(0), Gpu(0)}, {Gpu(1), Gpu(0), Gpu(1)}};
  for (const std::vector<Device>& devices : shared) {
    ReplicaScene scene(ThreeLayers(), {.type = "adam"}, devices, "auto");
    for (uint32_t step = 0; step < 5; ++step) ASSERT_OK(scene.Step(step == 3 ? 1 : 16, step));
    scene.ExpectSame();
  }
  const int64_t sums = fake::Calls("ncclAllReduce");
  ReplicaScene scene(ThreeLayers(), {.type = "adam"}, Gpus(2), "reduction_to_one_device");
  for (uint32_t step = 0; step < 3; ++step) ASSERT_OK(scene.Step(16, step));
  scene.ExpectSame();
  EXPECT_EQ(fake::Calls("ncclAllReduce"), sums);
}

// Sparse rows with few entries get many: a replica needs memory in the middle of a step, and the
// step is repeated with sums in host memory. The update at its beginning counts once.
TEST(ReplicatedResidentSteps, AStepThatOutgrowsItsMemoryIsRightToo) {
  ModelCase c{.name = "mlp", .config = SmallConfig("mlp"), .schema = {.sparse_columns = 20}};
  c.config.loss = "sigmoid_cross_entropy";
  ReplicaScene scene(c, {.type = "adam"}, Gpus(2));
  Batch few = RandomBatch(c.schema, 30, 1, 1);
  Batch many = GrowSparseRows(&few);
  for (const Batch* batch : {&few, &few, &few, &many, &many, &few}) {
    ASSERT_OK(scene.Step(*batch));
    scene.ExpectSame();
  }
}

// The batch goes in and the losses come out; per GPU one update, one group of sums, one wait.
TEST(ReplicatedResidentCounts, AStepSumsOnceAndCopiesNoWeights) {
  constexpr size_t kReplicas = 2;
  ReplicaScene scene(ThreeLayers(), {.type = "adam"}, Gpus(kReplicas));
  for (uint32_t step = 0; step < 3; ++step) {
    ASSERT_OK(scene.Train(64, step));
    ASSERT_OK(scene.Update());
  }
  const int64_t kernels = fake::NcclKernels();
  fake::BeginTrace();
  ASSERT_OK(scene.TrainAgain());
  ASSERT_OK(scene.Update());
  const std::vector<fake::TracedCall> calls = fake::EndTrace();
  std::string text;
  size_t copies = 0, groups = 0, sums = 0;
  uint64_t copied = 0;
  for (const fake::TracedCall& call : calls) {
    absl::StrAppend(&text, call.name, " ");
    groups += call.name == "ncclGroupStart" ? 1 : 0;
    sums += call.name == "ncclAllReduce" ? 1 : 0;
    if (call.name != "cudaMemcpyAsync") continue;
    ++copies;
    copied += call.size;
  }
  EXPECT_EQ(copies, 2 * kReplicas) << text;
  constexpr uint64_t kPadding = 256;
  EXPECT_LE(copied, 64 * 8 * sizeof(float) + 2 * 64 * sizeof(float) + kReplicas * 5 * kPadding);
  EXPECT_EQ(groups, kReplicas);
  EXPECT_EQ(fake::NcclKernels() - kernels, static_cast<int64_t>(kReplicas));
  EXPECT_EQ(sums, kReplicas);
  EXPECT_LE(calls.size(), kReplicas * 34) << text;
}

TEST(ReplicatedResidentFailures, AnyFailingCallIsAnErrorAndBlocksNoReplica) {
  const auto run = [](ReplicaScene& scene) -> absl::Status {
    for (const int64_t rows : {16, 1, 16}) {
      RETURN_IF_ERROR(scene.Train(rows, 2));
      RETURN_IF_ERROR(scene.Update());
    }
    return scene.resident().Fetch();
  };
  const auto scene = [] {
    auto made =
        std::make_unique<ReplicaScene>(ThreeLayers(), OptimizerConfig{.type = "adam"}, Gpus(2));
    EXPECT_OK(made->Step(16, 1));
    EXPECT_OK(made->Step(16, 1));
    return made;
  };
  const std::unique_ptr<ReplicaScene> healthy = scene();
  const int64_t before = fake::Calls();
  ASSERT_OK(run(*healthy));
  const int64_t calls = fake::Calls() - before;
  ASSERT_GT(calls, 50);
  for (int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls));
    const std::unique_ptr<ReplicaScene> failing = scene();
    fake::settings().fail_at = static_cast<int>(n);
    const absl::Status status = run(*failing);
    ASSERT_EQ(fake::settings().fail_at, 0);
    EXPECT_THAT(status.message(), AnyOf(HasSubstr("gpu:"), HasSubstr("NCCL")));
    EXPECT_FALSE(status.ok());
  }
}

TEST(ReplicatedResidentMemory, IsFreedWithTheVariables) {
  const size_t device = fake::DeviceBytes();
  {
    ReplicaScene scene(ThreeLayers(), {.type = "adam"}, Gpus(3));
    ASSERT_OK(scene.Step(16, 1));
  }
  EXPECT_EQ(fake::DeviceBytes(), device);
}

}  // namespace
}  // namespace cairn::test
