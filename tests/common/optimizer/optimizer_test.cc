// Optimizers take Keras' arguments with Keras' defaults, refuse what Keras refuses (and what would
// divide by zero), and their steps depend on the update count alone.
#include "common/optimizer/optimizer.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

OptimizerConfig ConfigOf(const std::string& type,
                         absl::btree_map<std::string, double> arguments = {}) {
  OptimizerConfig config;
  config.type = type;
  config.arguments = std::move(arguments);
  return config;
}

std::unique_ptr<Optimizer> Make(const OptimizerConfig& config) {
  absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(config);
  EXPECT_OK(made.status());
  return *std::move(made);
}

absl::Status Refusal(const OptimizerConfig& config) { return Optimizer::Create(config).status(); }

std::vector<std::string> SlotNames(const OptimizerConfig& config) {
  std::vector<std::string> names;
  const std::unique_ptr<Optimizer> optimizer = Make(config);
  for (const SlotSpec& slot : optimizer->slots()) names.push_back(slot.name);
  return names;
}

TEST(Optimizer, DefaultsAreThoseOfKeras) {
  EXPECT_EQ(OptimizerText(ConfigOf("sgd")),
            "sgd(learning_rate=0.01, momentum=0, nesterov=0, weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("adagrad")),
            "adagrad(learning_rate=0.001, epsilon=1e-07, initial_accumulator_value=0.1, "
            "weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("adadelta")),
            "adadelta(learning_rate=0.001, epsilon=1e-07, rho=0.95, weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("rmsprop")),
            "rmsprop(learning_rate=0.001, centered=0, epsilon=1e-07, momentum=0, rho=0.9, "
            "weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("adam")),
            "adam(learning_rate=0.001, amsgrad=0, beta_1=0.9, beta_2=0.999, epsilon=1e-07, "
            "weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("adamw")),
            "adamw(learning_rate=0.001, amsgrad=0, beta_1=0.9, beta_2=0.999, epsilon=1e-07, "
            "weight_decay=0.004)");
  EXPECT_EQ(OptimizerText(ConfigOf("lion")),
            "lion(learning_rate=0.001, beta_1=0.9, beta_2=0.99, weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("ftrl")),
            "ftrl(learning_rate=0.001, beta=0, initial_accumulator_value=0.1, "
            "l1_regularization_strength=0, l2_regularization_strength=0, "
            "l2_shrinkage_regularization_strength=0, learning_rate_power=-0.5, weight_decay=0)");
  EXPECT_EQ(OptimizerText(ConfigOf("none")), "none");
}

TEST(Optimizer, SlotsHaveKerasNames) {
  EXPECT_THAT(SlotNames(ConfigOf("sgd")), ElementsAre());
  EXPECT_THAT(SlotNames(ConfigOf("sgd", {{"momentum", 0.9}})), ElementsAre("momentum"));
  EXPECT_THAT(SlotNames(ConfigOf("adagrad")), ElementsAre("accumulator"));
  EXPECT_THAT(SlotNames(ConfigOf("adadelta")),
              ElementsAre("accumulated_grad", "accumulated_delta_var"));
  EXPECT_THAT(SlotNames(ConfigOf("rmsprop", {{"momentum", 0.5}, {"centered", 1}})),
              ElementsAre("velocity", "momentum", "average_gradient"));
  EXPECT_THAT(SlotNames(ConfigOf("rmsprop", {{"centered", 1}})),
              ElementsAre("velocity", "average_gradient"));
  EXPECT_THAT(SlotNames(ConfigOf("adam", {{"amsgrad", 1}})),
              ElementsAre("momentum", "velocity", "velocity_hat"));
  EXPECT_THAT(SlotNames(ConfigOf("adamax")), ElementsAre("momentum", "norm"));
  EXPECT_THAT(SlotNames(ConfigOf("nadam")), ElementsAre("momentum", "velocity"));
  EXPECT_THAT(SlotNames(ConfigOf("lazy_adam")), ElementsAre("momentum", "velocity"));
  EXPECT_THAT(SlotNames(ConfigOf("lion")), ElementsAre("momentum"));
  EXPECT_THAT(SlotNames(ConfigOf("ftrl")), ElementsAre("accumulator", "linear"));
  EXPECT_THAT(SlotNames(ConfigOf("none")), ElementsAre());
}

TEST(Optimizer, SlotsStartAtTheArgumentThatSaysSo) {
  const auto adagrad = Make(ConfigOf("adagrad", {{"initial_accumulator_value", 0.7}}));
  EXPECT_EQ(adagrad->slots()[0].initial_value, 0.7);
  EXPECT_EQ(Make(ConfigOf("ftrl"))->slots()[0].initial_value, 0.1);
  EXPECT_EQ(Make(ConfigOf("ftrl"))->slots()[1].initial_value, 0);
}

TEST(Optimizer, UnknownTypeNamesTheNearest) {
  EXPECT_THAT(Refusal(ConfigOf("adamm")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("unknown optimizer 'adamm'"),
                             HasSubstr("did you mean 'adam'?"), HasSubstr("lazy_adam"))));
}

TEST(Optimizer, UnknownArgumentNamesTheNearest) {
  EXPECT_THAT(Refusal(ConfigOf("adam", {{"beta1", 0.9}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("optimizer 'adam' has no argument 'beta1'"),
                             HasSubstr("did you mean 'beta_1'?"))));
  EXPECT_THAT(Refusal(ConfigOf("none", {{"momentum", 0.5}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it takes none")));
}

TEST(Optimizer, ArgumentsOutOfRangeAreRefused) {
  const auto refuses = [](const std::string& type, const std::string& name, double value) {
    EXPECT_THAT(Refusal(ConfigOf(type, {{name, value}})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name + " is ")))
        << type << " " << name << " " << value;
  };
  refuses("sgd", "momentum", -0.1);
  refuses("sgd", "momentum", 1.1);
  refuses("sgd", "nesterov", 0.5);
  refuses("sgd", "weight_decay", -1);
  refuses("rmsprop", "rho", 1.5);
  refuses("adam", "beta_1", 1);
  refuses("adam", "beta_2", 1);
  refuses("adam", "epsilon", -1e-7);
  refuses("adam", "epsilon", std::nan(""));
  refuses("lion", "beta_1", 0);
  refuses("ftrl", "learning_rate_power", 0.5);
  refuses("ftrl", "initial_accumulator_value", -1);
  refuses("ftrl", "l1_regularization_strength", -1);
  refuses("ftrl", "l2_regularization_strength", -1);
  refuses("ftrl", "l2_shrinkage_regularization_strength", -1);
}

TEST(Optimizer, DivisionsByZeroAreRefused) {
  EXPECT_THAT(Refusal(ConfigOf("adagrad", {{"initial_accumulator_value", 0}, {"epsilon", 0}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("both 0")));
  OptimizerConfig ftrl = ConfigOf("ftrl");
  ftrl.learning_rate = ConstantRate(0);
  EXPECT_THAT(Refusal(ftrl),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate is 0")));
}

TEST(Optimizer, AtMostOneClipArgument) {
  OptimizerConfig config = ConfigOf("sgd");
  config.clipvalue = 1;
  EXPECT_OK(Refusal(config));
  config.global_clipnorm = 2;
  EXPECT_THAT(Refusal(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("both clipvalue and global_clipnorm")));
  config.global_clipnorm = 0;
  config.clipvalue = -1;
  EXPECT_THAT(Refusal(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("clipvalue is -1")));
}

TEST(Optimizer, BadScheduleIsRefusedUnderTheOptimizersName) {
  OptimizerConfig config = ConfigOf("adam");
  config.learning_rate.type = "cosine";
  EXPECT_THAT(Refusal(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("optimizer 'adam'"), HasSubstr("schedule 'cosine'"))));
}

TEST(Optimizer, DefaultsWrittenDownEqualDefaultsLeftOut) {
  OptimizerConfig written = ConfigOf("adam", {{"beta_1", 0.9}, {"amsgrad", 0}});
  written.learning_rate = ConstantRate(0.001);
  EXPECT_EQ(written, ConfigOf("adam"));
  written.arguments["beta_1"] = 0.8;
  EXPECT_FALSE(written == ConfigOf("adam"));
  EXPECT_FALSE(ConfigOf("adam") == ConfigOf("adamw"));
}

// clipvalue bounds the gradient, so one element moves by at most rate * clipvalue.
TEST(Optimizer, ClipvalueBoundsTheGradient) {
  OptimizerConfig config = ConfigOf("sgd");
  config.learning_rate = ConstantRate(1);
  config.clipvalue = 0.5;
  const auto optimizer = Make(config);
  std::vector<float> value = {0, 0, 0};
  const std::vector<float> gradient = {-3, 0.25, 7};
  optimizer->Apply(optimizer->Begin(0), value.data(), nullptr, gradient.data(), value.size());
  EXPECT_THAT(value, ElementsAre(0.5f, -0.25f, -0.5f));
}

TEST(Optimizer, NoneMovesNothing) {
  const auto optimizer = Make(ConfigOf("none"));
  std::vector<float> value = {1, 2};
  const std::vector<float> gradient = {5, 5};
  optimizer->Apply(optimizer->Begin(0), value.data(), nullptr, gradient.data(), value.size());
  EXPECT_THAT(value, ElementsAre(1, 2));
  EXPECT_TRUE(optimizer->ZeroGradientIsIdentity());
}

TEST(Optimizer, ZeroGradientIsIdentityOnlyWithoutMomentumAndDecay) {
  EXPECT_TRUE(Make(ConfigOf("sgd"))->ZeroGradientIsIdentity());
  EXPECT_TRUE(Make(ConfigOf("adagrad"))->ZeroGradientIsIdentity());
  EXPECT_TRUE(Make(ConfigOf("lazy_adam"))->ZeroGradientIsIdentity());
  EXPECT_FALSE(Make(ConfigOf("sgd", {{"momentum", 0.1}}))->ZeroGradientIsIdentity());
  EXPECT_FALSE(Make(ConfigOf("sgd", {{"weight_decay", 0.1}}))->ZeroGradientIsIdentity());
  for (const char* type :
       {"adadelta", "rmsprop", "adam", "adamw", "adamax", "nadam", "ftrl", "lion"}) {
    EXPECT_FALSE(Make(ConfigOf(type))->ZeroGradientIsIdentity()) << type;
  }
}

// A server that restarts knows only how many updates it has applied: the constants of the next one
// are the same in an optimizer that has just been made.
TEST(Optimizer, ConstantsDependOnTheUpdateCountAlone) {
  for (const char* type : {"adam", "nadam", "adamax"}) {
    const auto before = Make(ConfigOf(type));
    for (int64_t t = 0; t < 5000; ++t) before->Begin(t);
    const UpdateStep a = before->Begin(5000);
    const UpdateStep b = Make(ConfigOf(type))->Begin(5000);
    EXPECT_EQ(a.step, 5001);
    EXPECT_EQ(a.f32, b.f32) << type;
    EXPECT_EQ(a.f64, b.f64) << type;
  }
}

// Nadam's product of momentum terms has a shortcut for late steps; it joins without a jump.
TEST(Optimizer, NadamConstantsAreFiniteAndSmoothAtAnyStep) {
  const auto nadam = Make(ConfigOf("nadam", {{"beta_1", 0.9999}, {"beta_2", 0.9999}}));
  std::array<double, UpdateStep::kConstants> last = nadam->Begin(1000).f64;
  for (int64_t t = 1001; t < 1050; ++t) {
    const std::array<double, UpdateStep::kConstants> next = nadam->Begin(t).f64;
    for (size_t i = 2; i < next.size(); ++i) EXPECT_NEAR(next[i] / last[i], 1, 2e-3) << t;
    last = next;
  }
  const UpdateStep late = nadam->Begin(int64_t{1} << 40);
  for (const double constant : late.f64) EXPECT_FALSE(std::isnan(constant));
}

TEST(Optimizer, ScheduleIsReadAtTheUpdatesDone) {
  OptimizerConfig config = ConfigOf("sgd");
  config.learning_rate.type = "piecewise_constant_decay";
  config.learning_rate.boundaries = {1};
  config.learning_rate.values = {0.5, 0.25};
  const auto optimizer = Make(config);
  EXPECT_EQ(optimizer->Begin(0).learning_rate, 0.5);
  EXPECT_EQ(optimizer->Begin(1).learning_rate, 0.5);
  EXPECT_EQ(optimizer->Begin(2).learning_rate, 0.25);
}

// A schedule may run out at 0, and FTRL divides by the rate.
TEST(Optimizer, FtrlStandsStillAtRateZero) {
  OptimizerConfig config = ConfigOf("ftrl");
  config.learning_rate.type = "piecewise_constant_decay";
  config.learning_rate.boundaries = {0};
  config.learning_rate.values = {0.5, 0};
  const auto optimizer = Make(config);
  std::vector<float> value = {1};
  std::vector<float> accumulator = {0.1f};
  std::vector<float> linear = {0.2f};
  float* slots[] = {accumulator.data(), linear.data()};
  const std::vector<float> gradient = {3};
  optimizer->Apply(optimizer->Begin(1), value.data(), slots, gradient.data(), 1);
  EXPECT_THAT(value, ElementsAre(1));
  EXPECT_THAT(linear, ElementsAre(0.2f));
}

// Keras has 0 / 0 there.
TEST(Optimizer, FtrlWithAnEmptyAccumulatorLeavesZeroGradientsAtZero) {
  const auto optimizer = Make(ConfigOf("ftrl", {{"initial_accumulator_value", 0}}));
  std::vector<float> value = {1};
  std::vector<float> accumulator = {0};
  std::vector<float> linear = {0};
  float* slots[] = {accumulator.data(), linear.data()};
  const std::vector<float> gradient = {0};
  optimizer->Apply(optimizer->Begin(0), value.data(), slots, gradient.data(), 1);
  EXPECT_THAT(value, ElementsAre(0));
}

}  // namespace
}  // namespace cairn
