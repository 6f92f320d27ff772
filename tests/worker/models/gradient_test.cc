// Every model's gradient equals finite differences of its loss, on every kind of data that it
// accepts.
//
// The models compute in float32, so a difference of losses carries about 1e-7 / step of noise. If a
// relu's kink lies within a step of some value, the difference is meaningless. So the test draws
// the values several times, and every element must agree for one of the draws. A wrong gradient
// agrees for none.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/models/every_model.h"
#include "tests/worker/models/random_batch.h"
#include "worker/models/model.h"

namespace cairn {
namespace {

// Losses of one batch as a function of single values.
class Slopes {
 public:
  Slopes(const Model& model, const Batch& batch, uint32_t seed) : model_(model), batch_(batch) {
    EXPECT_TRUE(model.Plan(batch, &state_).ok());
    test::RandomValues(&state_, 0.4f, seed);
    EXPECT_TRUE(model.Train(batch, &state_).ok());
    for (const VariableUse& use : state_.uses) gradients_.push_back(use.gradient);
  }

  // The first element whose gradient is not its slope, or "". Samples wide variables.
  std::string Disagreement() {
    for (size_t v = 0; v < gradients_.size(); ++v) {
      HostVector<float>& values = state_.uses[v].values;
      const size_t stride = std::max<size_t>(1, values.size() / 400);
      bool moved = false;
      for (size_t i = 0; i < values.size(); i += stride) {
        const double slope = Slope(&values[i]);
        if (std::abs(gradients_[v][i] - slope) > 2e-4 + 2e-3 * std::abs(slope)) {
          return absl::StrCat(model_.variables()[v].name, " element ", i, ": gradient ",
                              gradients_[v][i], ", slope ", slope);
        }
        moved = moved || std::abs(slope) > 1e-3;
      }
      if (!moved) return absl::StrCat(model_.variables()[v].name, " moves nothing");
    }
    return "";
  }

 private:
  double Slope(float* value) {
    const float before = *value;
    const float up = before + 0.005f, down = before - 0.005f;
    *value = up;
    const double loss_up = model_.Train(batch_, &state_).value();
    *value = down;
    const double loss_down = model_.Train(batch_, &state_).value();
    *value = before;
    return (loss_up - loss_down) / (static_cast<double>(up) - down);
  }

  const Model& model_;
  const Batch& batch_;
  StepState state_;
  std::vector<HostVector<float>> gradients_;
};

class Gradient : public ::testing::TestWithParam<test::ModelCase> {};

TEST_P(Gradient, EqualsFiniteDifferences) {
  const test::ModelCase& c = GetParam();
  const auto model = Model::Create(c.config, {}, c.schema);
  ASSERT_TRUE(model.ok()) << model.status();
  const Batch batch = test::RandomBatch(c.schema, 12, c.config.classes, 5);
  std::string found;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const std::string disagreement = Slopes(**model, batch, seed).Disagreement();
    if (disagreement.empty()) return;
    absl::StrAppend(&found, "\n", disagreement);
  }
  FAIL() << "no draw agrees:" << found;
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient, ::testing::ValuesIn(test::EveryModel()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn
