// Steps whose variables stay on this machine's GPUs: every copy has the same bits, and the values
// of steps whose variables travel through host memory. Skipped without a GPU; the same tests run on
// fake GPUs.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/device.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "tests/common/optimizer/optimizer_cases.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/resident_scene.h"
#include "tests/worker/trainer/devices/replica_scene.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

// Where the replicas of a step are, and what adds up their gradients.
struct Placement {
  std::string name;
  std::vector<Device> devices;
  std::string cross_device_ops = "auto";
};
void PrintTo(const Placement& placement, std::ostream* out) { *out << placement.name; }

std::vector<Placement> Placements() {
  std::vector<Placement> placements = {
      {"one_gpu", Gpus(1)},
      {"one_rank_of_nccl", Gpus(1), "nccl"},
      {"three_replicas_on_one_gpu", {Gpu(0), Gpu(0), Gpu(0)}},
  };
  for (const size_t gpus : {size_t{2}, size_t{4}, size_t{8}}) {
    placements.push_back({absl::StrCat(gpus, "_gpus"), Gpus(gpus), "nccl"});
  }
  return placements;
}

// Real GPUs round otherwise than the host; fake ones do not.
bool HasRealGpus() {
  const char* const devices = std::getenv("CAIRN_TEST_DEVICES");
  return devices != nullptr && std::string(devices) == "gpu";
}

class PlacedScene : public ReplicaScene {
 public:
  PlacedScene(const ModelCase& c, const OptimizerConfig& optimizer, const Placement& placement)
      : ReplicaScene(c, optimizer, placement.devices, placement.cross_device_ops) {
    if (HasRealGpus()) set_tolerance(1e-4f);
  }
};

class ResidentSteps : public ::testing::TestWithParam<Placement> {
 protected:
  // Skips the test where this machine lacks what the placement needs.
  void SetUp() override {
    if (UsableGpuCount() == 0) GTEST_SKIP() << OpenGpuQueue(Gpu(0)).status().message();
    for (const Device device : GetParam().devices) {
      if (device.index >= UsableGpuCount()) GTEST_SKIP() << "no " << device.text();
    }
    if (GetParam().cross_device_ops == "nccl" && !NcclStatus().ok()) {
      GTEST_SKIP() << NcclStatus().message();
    }
  }

  // NCCL takes two seconds to connect the ranks of a scene.
  template <typename Case>
  static std::vector<Case> SomeOf(const std::vector<Case>& cases) {
    if (GetParam().cross_device_ops != "nccl") return cases;
    std::vector<Case> some;
    for (size_t i = cases.size(); i >= 1; i -= std::min<size_t>(i, 5)) some.push_back(cases[i - 1]);
    return some;
  }
};

TEST_P(ResidentSteps, EveryModelHasTheValuesOfTheHostPath) {
  for (const ModelCase& c : SomeOf(ModelsWithoutTables())) {
    SCOPED_TRACE(c.name);
    // Where sums round differently, Adam would divide a gradient of nearly zero by itself.
    PlacedScene scene(c, {.type = "adagrad", .learning_rate = ConstantRate(0.5)}, GetParam());
    uint32_t seed = 0;
    for (const int64_t rows : {33, 33, 1, 33, 70, 70, 2, 64}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows"));
      ASSERT_OK(scene.Step(rows, ++seed));
      if (seed % 3 == 2) scene.ExpectSame();
    }
    scene.ExpectSame();
  }
}

TEST_P(ResidentSteps, EveryOptimizerUpdatesAsOnTheHost) {
  for (const OptimizerCase& c : SomeOf(OptimizerCases())) {
    SCOPED_TRACE(c.name);
    // The power of another FTRL differs in the last bits.
    if (c.name == "FtrlAll" && !HasRealGpus()) continue;
    PlacedScene scene(ThreeLayers(), ConfigOf(c), GetParam());
    for (uint32_t step = 0; step < 5; ++step) ASSERT_OK(scene.Step(16, step));
    scene.ExpectSame();
  }
}

// A gradient that Update does not follow changes nothing, in no copy.
TEST_P(ResidentSteps, AStepWithoutUpdateChangesNothing) {
  PlacedScene scene(ThreeLayers(), {.type = "adam"}, GetParam());
  for (uint32_t seed = 1; seed < 4; ++seed) {
    ASSERT_OK(scene.Step(16, seed));
    ASSERT_OK(scene.Train(16, seed + 10));
    scene.ExpectSame();
  }
}

// The first replica's own gradients are finite: the sums count.
TEST_P(ResidentSteps, AGradientThatIsNotFiniteIsFoundAndForgotten) {
  PlacedScene scene(ThreeLayers(), {.type = "adam"}, GetParam());
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const int64_t rows = seed < 5 ? 16 : 2;  // several replicas sum these in host memory
    ASSERT_OK(scene.Step(rows, seed));
    EXPECT_TRUE(scene.resident().finite());
    ASSERT_OK(scene.Train(rows, seed));
    scene.batch().dense.back() = std::numeric_limits<float>::infinity();  // of the last row
    ASSERT_OK(scene.TrainAgain());
    ASSERT_OK(scene.resident().SendGradients(scene.got().uses));
    EXPECT_FALSE(scene.resident().finite());
    const auto found = scene.resident().FindNotFinite();
    ASSERT_OK(found);
    EXPECT_FALSE(std::isfinite(found->value));
    EXPECT_TRUE(scene.resident().finite());
  }
  scene.ExpectSame();
}

// Many steps without a wait for their updates, twice.
TEST_P(ResidentSteps, TwoLongRunsHaveTheSameBits) {
  ModelCase c = ThreeLayers();
  c.config.hidden = {64, 32};
  c.schema.dense_columns = 64;
  const auto run = [&] {
    PlacedScene scene(c, {.type = "adam"}, GetParam());
    for (uint32_t step = 0; step < 100; ++step) {
      EXPECT_OK(scene.Train(step % 50 == 49 ? 1 : 200, step % 8));
      EXPECT_OK(scene.Update());
    }
    EXPECT_OK(scene.resident().Fetch());
    const float* const state = scene.resident().host(0, 0).data();
    return std::vector<float>(state, state + scene.resident().state_bytes() / sizeof(float));
  };
  EXPECT_EQ(run(), run());
}

INSTANTIATE_TEST_SUITE_P(Placements, ResidentSteps, ::testing::ValuesIn(Placements()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn::test
