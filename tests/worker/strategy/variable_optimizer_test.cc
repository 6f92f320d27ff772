// VariableOptimizer: gradients of replicas, and refusals.
#include "worker/strategy/variable_optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/strategy/case_support.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/sharded_variable.h"

namespace cairn::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::unique_ptr<VariableOptimizer> Sgd(double rate, double momentum = 0) {
  return VariableOptimizer::Create({.type = "sgd",
                                    .learning_rate = ConstantRate(rate),
                                    .arguments = {{"momentum", momentum}}})
      .value();
}

VariablePtr Made(Strategy& strategy, const std::string& name, const Tensor& initial,
                 VariableAggregation aggregation = VariableAggregation::kNone) {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name, .initial_value = initial, .aggregation = aggregation})
      .value();
}
VariablePtr Zeros(Strategy& strategy, Shape shape, const std::string& name = "w") {
  return Made(strategy, name, Tensor::Zeros(DType::kFloat32, std::move(shape)));
}

std::vector<double> Copy(const VariablePtr& variable, size_t copy = 0) {
  return NumbersOf(variable->components()[copy]->Read().value());
}

Value Rows(const std::vector<int64_t>& rows, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t width = static_cast<int64_t>(values.size()) / std::max<int64_t>(count, 1);
  return IndexedSlices{Tensor::Vector<int64_t>(rows), Tensor::Of<float>({count, width}, values)};
}

std::vector<std::string> NamesOf(const std::vector<VariablePtr>& variables) {
  std::vector<std::string> names;
  for (const VariablePtr& variable : variables) names.push_back(variable->name());
  return names;
}

TEST(VariableOptimizer, GradientsOfReplicasAreSummedAndEveryCopyTakesTheStep) {
  for (const bool central : {false, true}) {
    const auto strategy = central ? Central(3) : Mirrored(3);
    const VariablePtr w = Zeros(*strategy, {2});
    const auto optimizer = Sgd(1);
    ASSERT_OK(OnReplicas(*strategy, [&] {
      const auto id = static_cast<float>(ReplicaId());
      return optimizer->ApplyGradients({{Floats({id, 1}), w}});
    }));
    for (size_t c = 0; c < w->components().size(); ++c) {
      EXPECT_THAT(Copy(w, c), ElementsAre(-3, -3));
    }
    EXPECT_EQ(optimizer->iterations().value(), 1);
  }
}

// A tensor that all replicas share is the gradient of each.
TEST(VariableOptimizer, ATensorThatReplicasShareCountsForEach) {
  const auto strategy = Mirrored(2);
  const VariablePtr w = Zeros(*strategy, {2});
  const auto optimizer = Sgd(1);
  const Value shared = Floats({1, 2});
  ASSERT_OK(OnReplicas(*strategy, [&] { return optimizer->ApplyGradients({{shared, w}}); }));
  EXPECT_THAT(Copy(w, 1), ElementsAre(-2, -4));
}

TEST(VariableOptimizer, SkippingAggregationGivesEachCopyItsOwnReplicasGradient) {
  const auto strategy = Mirrored(2);
  const VariablePtr w = Zeros(*strategy, {1});
  const VariablePtr v = Zeros(*strategy, {1}, "v");
  const auto optimizer = Sgd(1);
  const Value shared = Floats({5});
  ASSERT_OK(OnReplicas(*strategy, [&] {
    const auto id = static_cast<float>(ReplicaId());
    return optimizer->ApplyGradients({{Floats({1 + id}), w}, {shared, v}},
                                     {.skip_aggregation = true});
  }));
  EXPECT_THAT(Copies(w), ElementsAre(-1, -2));
  EXPECT_THAT(Copies(v), ElementsAre(-5, -5));
  ASSERT_OK(optimizer->ApplyGradients({{PerReplica({Floats({1}), Floats({3})}), w}},
                                      {.skip_aggregation = true}));
  EXPECT_THAT(Copies(w), ElementsAre(-2, -5));
  EXPECT_EQ(optimizer->iterations().value(), 2);
}

// A variable as a gradient is read as each replica's copy, also if the replicas name the copies.
TEST(VariableOptimizer, AVariableAsGradientCountsAsItsCopies) {
  const auto strategy = Mirrored(2);
  const VariablePtr sum = VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {1}),
                                     VariableAggregation::kSum, VariableSynchronization::kOnRead);
  ASSERT_OK(OnReplicas(
      *strategy, [&] { return sum->Assign(Floats({static_cast<float>(1 + 2 * ReplicaId())})); }));
  const VariablePtr w = Zeros(*strategy, {1}, "w"), v = Zeros(*strategy, {1}, "v");
  const auto optimizer = Sgd(1);
  const auto apply = [&](bool skip_aggregation) {
    return OnReplicas(*strategy, [&] {
      const Value own = sum->components()[static_cast<size_t>(ReplicaId())];
      return optimizer->ApplyGradients({{sum, w}, {own, v}},
                                       {.skip_aggregation = skip_aggregation});
    });
  };
  ASSERT_OK(apply(false));
  EXPECT_THAT(Copies(w), ElementsAre(-4, -4));
  EXPECT_THAT(Copies(v), ElementsAre(-4, -4));
  ASSERT_OK(apply(true));
  EXPECT_THAT(Copies(w), ElementsAre(-5, -7));
  EXPECT_THAT(Copies(v), ElementsAre(-5, -7));
}

TEST(VariableOptimizer, InCrossReplicaContextPerReplicaIsSummedAndOthersAreSums) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = Zeros(*strategy, {1}, "a"), b = Zeros(*strategy, {1}, "b"),
                    c = Zeros(*strategy, {}, "c");
  const auto optimizer = Sgd(1);
  const auto apply = [&] {
    return optimizer->ApplyGradients({{PerReplica({Floats({1}), Floats({2})}), a},
                                      {Value::Mirrored({Floats({4}), Floats({4})}), b},
                                      {2.5, c}});
  };
  ASSERT_OK(apply());  // outside every scope
  {
    const Scope scope = strategy->EnterScope().value();
    ASSERT_OK(apply());
  }
  EXPECT_THAT(Copies(a), ElementsAre(-6, -6));
  EXPECT_THAT(Copies(b), ElementsAre(-8, -8));
  EXPECT_THAT(Copies(c), ElementsAre(-5, -5));
}

TEST(VariableOptimizer, OneDeviceAndNoStrategyWorkInsideRunAndOutside) {
  OneDeviceStrategy one(ReplicaDevice(1));
  for (Strategy* strategy : {static_cast<Strategy*>(&one), &DefaultStrategy()}) {
    const VariablePtr w = Zeros(*strategy, {1});
    const auto optimizer = Sgd(0.5, 0.5);
    const auto apply = [&] { return optimizer->ApplyGradients({{Floats({2}), w}}); };
    ASSERT_OK(OnReplicas(*strategy, apply));
    ASSERT_OK(apply());
    EXPECT_THAT(Copy(w), ElementsAre(-2.5));
    const std::vector<VariablePtr> own = optimizer->variables();
    EXPECT_THAT(NamesOf(own), ElementsAre("sgd/iteration", "sgd/w_momentum"));
    EXPECT_THAT(Copy(own[0]), ElementsAre(2));
    EXPECT_THAT(Copy(own[1]), ElementsAre(-1.5));
    EXPECT_EQ(own[1]->device(), w->device());
  }
}

TEST(VariableOptimizer, SlotsAreBesideTheirVariablesAndNamedAsKerasNamesThem) {
  const auto strategy = Mirrored(2);
  const VariablePtr w = Zeros(*strategy, {2}, "dense/kernel");
  const VariablePtr b = Zeros(*strategy, {}, "b");
  const auto optimizer =
      VariableOptimizer::Create({.type = "adam", .arguments = {{"amsgrad", 1}}}, "first").value();
  EXPECT_TRUE(optimizer->variables().empty());
  EXPECT_EQ(optimizer->iterations().value(), 0);
  ASSERT_OK(OnReplicas(*strategy, [&] { return optimizer->Build({w}); }));
  ASSERT_OK(optimizer->Build({w, b}));  // keeps w's slots
  const std::vector<VariablePtr> own = optimizer->variables();
  EXPECT_THAT(NamesOf(own),
              ElementsAre("first/iteration", "first/dense_kernel_momentum",
                          "first/dense_kernel_velocity", "first/dense_kernel_velocity_hat",
                          "first/b_momentum", "first/b_velocity", "first/b_velocity_hat"));
  for (size_t i = 1; i < own.size(); ++i) {
    EXPECT_FALSE(own[i]->trainable());
    ASSERT_EQ(own[i]->components().size(), 2u);
    EXPECT_EQ(own[i]->components()[1]->device(), ReplicaDevice(1));
    EXPECT_EQ(own[i]->shape(), i < 4 ? w->shape() : b->shape());
  }
  EXPECT_EQ(optimizer->iterations().value(), 0);
}

TEST(VariableOptimizer, SlotsHaveTheOptimizersInitialValuesAndTheVariablesDtype) {
  const VariablePtr w = Made(DefaultStrategy(), "w", Tensor::Zeros(DType::kFloat64, {2}));
  const auto optimizer = VariableOptimizer::Create({.type = "ftrl"}).value();
  ASSERT_OK(optimizer->Build({w}));
  const VariablePtr accumulator = optimizer->variables()[1];
  EXPECT_EQ(accumulator->name(), "ftrl/w_accumulator");
  EXPECT_EQ(accumulator->dtype(), DType::kFloat64);
  EXPECT_THAT(Copy(accumulator), Each(0.1));
  ASSERT_OK(optimizer->ApplyGradients({{Tensor::Of<double>({2}, {1, 2}), w}}));
  EXPECT_THAT(Copy(accumulator), Pointwise(::testing::DoubleNear(1e-15), {1.1, 4.1}));
}

TEST(VariableOptimizer, RepeatedRowsAreAddedUp) {
  const auto strategy = Mirrored(2);
  const VariablePtr w = Zeros(*strategy, {4, 1});
  const auto optimizer = VariableOptimizer::Create(
                             {.type = "adagrad",
                              .learning_rate = ConstantRate(1),
                              .arguments = {{"initial_accumulator_value", 0}, {"epsilon", 0.0001}}})
                             .value();
  ASSERT_OK(OnReplicas(*strategy, [&] {
    // Row 3 from both replicas, twice from the second; row 1 from the first.
    return optimizer->ApplyGradients(
        {{ReplicaId() == 0 ? Rows({3, 1}, {1, 2}) : Rows({3, 3}, {0.5f, 0.5f}), w}});
  }));
  const std::vector<VariablePtr> own = optimizer->variables();
  EXPECT_THAT(Copy(own[1], 0), ElementsAre(0, 4, 0, 4));
  EXPECT_THAT(Copy(own[1], 1), ElementsAre(0, 4, 0, 4));
  EXPECT_THAT(Copy(w, 1), ElementsAre(0, Copy(w, 0)[3], 0, Copy(w, 0)[1]));
  EXPECT_NEAR(Copy(w, 0)[1], -1, 1e-4);
}

// As in Keras: a row's momentum continues to move it.
TEST(VariableOptimizer, MissingRowsHaveAGradientOfZero) {
  const VariablePtr w = Zeros(DefaultStrategy(), {3, 1});
  const auto optimizer = Sgd(1, 0.5);
  ASSERT_OK(optimizer->ApplyGradients({{Rows({0, 2}, {2, 4}), w}}));
  ASSERT_OK(optimizer->ApplyGradients({{Rows({1}, {8}), w}}));
  EXPECT_THAT(Copy(w), ElementsAre(-3, -8, -6));
  const Value no_rows = IndexedSlices{Tensor::Vector<int64_t>({}), Tensor::Of<float>({0, 1}, {})};
  ASSERT_OK(optimizer->ApplyGradients({{no_rows, w}}));
  EXPECT_THAT(Copy(w), ElementsAre(-3.5, -12, -7));
}

TEST(VariableOptimizer, SchedulesFollowTheUpdateCount) {
  const VariablePtr w = Zeros(DefaultStrategy(), {});
  OptimizerConfig config{.type = "sgd"};
  config.learning_rate = {
      .type = "piecewise_constant_decay", .boundaries = {0, 1}, .values = {1, 10, 100}};
  const auto optimizer = VariableOptimizer::Create(config).value();
  for (const double rate : {1, 10, 100}) {
    EXPECT_EQ(optimizer->learning_rate().value(), rate);
    ASSERT_OK(optimizer->ApplyGradients({{1.0, w}}));
  }
  EXPECT_THAT(Copy(w), ElementsAre(-111));
}

// The gradients 3 and 4 only together exceed the limit of 2.5, which halves them.
TEST(VariableOptimizer, ClippingAppliesToTheSums) {
  const auto clipped = [](OptimizerConfig config) {
    const auto strategy = Mirrored(2);
    const VariablePtr a = Zeros(*strategy, {2}, "a"), b = Zeros(*strategy, {1}, "b");
    config.type = "sgd";
    config.learning_rate = ConstantRate(1);
    const auto optimizer = VariableOptimizer::Create(config).value();
    EXPECT_OK(OnReplicas(*strategy, [&] {
      return optimizer->ApplyGradients({{Floats({1.5, 2}), a}, {Floats({0}), b}});
    }));
    EXPECT_EQ(Copy(a, 0), Copy(a, 1));
    return Copy(a);
  };
  EXPECT_THAT(clipped({.clipvalue = 3.5}), ElementsAre(-3, -3.5));
  EXPECT_THAT(clipped({.clipnorm = 2.5}), ElementsAre(-1.5, -2));
  EXPECT_THAT(clipped({.global_clipnorm = 2.5}), ElementsAre(-1.5, -2));
  EXPECT_THAT(clipped({.clipnorm = 5.5}), ElementsAre(-3, -4));
}

TEST(VariableOptimizer, GlobalClippingAppliesToAllGradientsOfBothDtypes) {
  const VariablePtr a = Zeros(DefaultStrategy(), {1}, "a");
  const VariablePtr b = Made(DefaultStrategy(), "b", Tensor::Zeros(DType::kFloat64, {1}));
  const auto optimizer =
      VariableOptimizer::Create(
          {.type = "sgd", .learning_rate = ConstantRate(1), .global_clipnorm = 2.5})
          .value();
  const Value of_a = Floats({3});
  ASSERT_OK(optimizer->ApplyGradients({{of_a, a}, {Tensor::Of<double>({1}, {4}), b}}));
  EXPECT_THAT(Copy(a), ElementsAre(-1.5));
  EXPECT_THAT(Copy(b), ElementsAre(-2));
  EXPECT_THAT(Doubles(of_a), ElementsAre(3)) << "the caller's tensor was clipped in place";
  // Infinite values are not hidden.
  ASSERT_OK(optimizer->ApplyGradients(
      {{Floats({std::numeric_limits<float>::infinity()}), a}, {Tensor::Of<double>({1}, {4}), b}}));
  EXPECT_TRUE(std::isnan(Copy(a)[0]) && std::isnan(Copy(b)[0]));
}

// Keras clips values before it adds up repeated rows.
TEST(VariableOptimizer, RowsAreClippedBeforeTheyAreAddedUp) {
  const auto moved = [](OptimizerConfig config) {
    const VariablePtr w = Zeros(DefaultStrategy(), {2, 1});
    config.type = "sgd";
    config.learning_rate = ConstantRate(1);
    const auto optimizer = VariableOptimizer::Create(config).value();
    EXPECT_OK(optimizer->ApplyGradients({{Rows({1, 0, 1}, {4, 0, 3}), w}}));
    return Copy(w);
  };
  EXPECT_THAT(moved({.clipvalue = 3.5}), ElementsAre(0, -6.5));
  EXPECT_THAT(moved({.clipnorm = 2.5}), ElementsAre(0, -3.5));
}

TEST(VariableOptimizer, VariablesWithoutGradientAreNotUpdated) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = Zeros(*strategy, {1}, "a"), b = Zeros(*strategy, {1}, "b");
  const auto optimizer = Sgd(1, 0.9);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(OnReplicas(*strategy, [&] {
      return optimizer->ApplyGradients({{Value(), a}, {Floats({1}), b}});
    }));
  }
  EXPECT_THAT(Copies(a), ElementsAre(0, 0));
  EXPECT_THAT(NamesOf(optimizer->variables()), ElementsAre("sgd/iteration", "sgd/b_momentum"));
  EXPECT_EQ(optimizer->iterations().value(), 2);
  EXPECT_THAT(OnReplicas(*strategy,
                         [&] {
                           return optimizer->ApplyGradients({{Value(), a}, {Value(), b}});
                         }),
              StatusIs(kInvalid, HasSubstr("neither it nor any other variable has a gradient")));
  EXPECT_EQ(optimizer->iterations().value(), 2);
}

// `apply` is refused with a message that has `text`, and changes nothing.
void ExpectRefused(const VariablePtr& w, absl::StatusCode code, const std::string& text,
                   const std::vector<GradientAndVariable>& gradients) {
  const std::vector<double> before = Copy(w);
  const auto optimizer = Sgd(1);
  EXPECT_THAT(optimizer->ApplyGradients(gradients), StatusIs(code, HasSubstr(text)));
  EXPECT_EQ(Copy(w), before);
  EXPECT_EQ(optimizer->iterations().value(), 0);
}

TEST(VariableOptimizerErrors, GradientsOfOtherTypesAreNamed) {
  const VariablePtr w = Zeros(DefaultStrategy(), {2, 1}), v = Zeros(DefaultStrategy(), {1}, "v");
  const Value good = Floats({1});
  ExpectRefused(v, kInvalid, "\"w\": found float32 [2], expected float32 [2, 1]",
                {{good, v}, {Floats({1, 2}), w}});
  ExpectRefused(v, kInvalid, "\"w\": found float64 [2, 1], expected float32 [2, 1]",
                {{good, v}, {Tensor::Of<double>({2, 1}, {1, 2}), w}});
  ExpectRefused(v, kInvalid, "found text", {{"one", v}});
  ExpectRefused(v, kInvalid, "row 2 is outside [0, 2)", {{good, v}, {Rows({0, 2}, {1, 1}), w}});
  ExpectRefused(v, kInvalid, "\"w\": found float32 [1, 2], expected float32 [1, 1]",
                {{good, v}, {Rows({0}, {1, 1}), w}});
  ExpectRefused(
      v, kInvalid, "rows are given as float32 [1]",
      {{good, v}, {IndexedSlices{Tensor::Vector<float>({0}), Tensor::Of<float>({1, 1}, {1})}, w}});
}

TEST(VariableOptimizerErrors, VariablesThatNoOptimizerUpdatesAreNamed) {
  const VariablePtr w = Zeros(DefaultStrategy(), {1});
  const Value good = Floats({1});
  ExpectRefused(w, kInvalid, "found no variable", {});
  ExpectRefused(w, kInvalid, "is null", {{good, w}, {good, nullptr}});
  ExpectRefused(w, kInvalid, "\"w\": it is given twice", {{good, w}, {good, w}});
  const VariablePtr counter = Made(DefaultStrategy(), "counter", Tensor::Zeros(DType::kInt64, {1}));
  ExpectRefused(w, kInvalid, "\"counter\": it is int64; optimizers move float32 and float64",
                {{good, w}, {Tensor::Vector<int64_t>({1}), counter}});
  const VariablePtr sharded = ShardedVariable::Create("sharded", {w}).value();
  ExpectRefused(w, kInvalid, "\"sharded\": it is not one tensor", {{good, sharded}});
  const auto strategy = Mirrored(2);
  const VariablePtr on_read =
      VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {1}), VariableAggregation::kSum,
                 VariableSynchronization::kOnRead);
  ExpectRefused(on_read, kInvalid, "it is ON_READ", {{good, on_read}});
  ExpectRefused(w, kInvalid, "it is of MirroredStrategy, others are of the default strategy",
                {{good, w}, {good, on_read}});
}

TEST(VariableOptimizerErrors, AStrategyOtherThanTheVariablesIsRefused) {
  constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
  const auto one = Mirrored(2), other = Mirrored(2);
  const VariablePtr w = Zeros(*one, {1}), plain = Zeros(DefaultStrategy(), {1}, "plain");
  const auto optimizer = Sgd(1);
  {
    const Scope scope = other->EnterScope().value();
    EXPECT_THAT(optimizer->ApplyGradients({{Floats({1}), w}}),
                StatusIs(kFailed, HasSubstr("different strategies cannot be mixed")));
    EXPECT_THAT(optimizer->ApplyGradients({{Floats({1}), plain}}),
                StatusIs(kFailed, HasSubstr("variables of no strategy where MirroredStrategy")));
  }
  ASSERT_OK(optimizer->ApplyGradients({{Floats({1}), w}}));
  EXPECT_THAT(optimizer->ApplyGradients({{Floats({1}), plain}}),
              StatusIs(kInvalid, HasSubstr("make one for each")));
  EXPECT_EQ(optimizer->iterations().value(), 1);
}

// The writes do not commute with the steps, so copies that got them in different orders differ for
// good. Two optimizers get the variables in opposite orders: neither may wait for the other.
// It would run for each copy, and count its steps on one of them.
TEST(VariableOptimizer, AnUpdateFunctionCannotApplyGradients) {
  const auto strategy = Mirrored(2);
  const VariablePtr w =
      VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {2}), VariableAggregation::kNone);
  const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
  ASSERT_OK(optimizer->Build({{w}}));
  const auto apply = [&] { return optimizer->ApplyGradients({{Floats({1, 2}), w}}); };
  for (const std::function<absl::Status()>& inside :
       {std::function<absl::Status()>(apply),
        std::function<absl::Status()>([&] { return OnReplicas(*strategy, apply); })}) {
    EXPECT_THAT(strategy->Update(w, inside), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                      HasSubstr("in an update function")));
    EXPECT_THAT(Copies(optimizer->variables()[0]), ElementsAre(0, 0));
  }
  EXPECT_OK(apply());
}

TEST(VariableOptimizer, ConcurrentWritersLeaveTheCopiesOfVariablesAndSlotsEqual) {
  const auto strategy = Mirrored(4);
  const VariablePtr a = Zeros(*strategy, {1}, "a"), b = Zeros(*strategy, {1}, "b");
  const auto first = Sgd(1, 0.5), second = Sgd(1);
  ASSERT_OK(first->Build({a, b}));
  std::vector<VariablePtr> written = {a, b};
  for (const VariablePtr& variable : first->variables()) {
    if (variable->dtype() == DType::kFloat32) written.push_back(variable);
  }
  ASSERT_EQ(written.size(), 4);
  const auto repeat = [](const std::function<absl::Status()>& once) {
    for (int i = 0; i < 2000; ++i) ASSERT_OK(once());
  };
  const IndexedSlices negative = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({-1})};
  std::vector<std::thread> writing;
  for (const VariablePtr& v : written) {
    writing.emplace_back([&] { repeat([&] { return v->Scatter(ScatterOp::kMul, negative); }); });
  }
  const Value one = Floats({1});
  writing.emplace_back([&] {
    repeat([&] { return second->ApplyGradients({{one, b}, {one, a}}); });
  });
  writing.emplace_back([&] { repeat([&] { return a->AssignAdd(one); }); });
  repeat([&] { return first->ApplyGradients({{one, a}, {one, b}}); });
  for (std::thread& thread : writing) thread.join();
  for (const VariablePtr& v : written) EXPECT_THAT(Copies(v), Each(Copies(v)[0])) << v->name();
}

TEST(VariableOptimizerErrors, ReplicasThatDisagreeGetAnErrorAndTheNextStepWorks) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = Zeros(*strategy, {1}, "a"), b = Zeros(*strategy, {1}, "b");
  const auto optimizer = Sgd(1);
  const auto expect = [&](const std::string& text,
                          const std::function<std::vector<GradientAndVariable>(bool)>& of) {
    EXPECT_THAT(
        OnReplicas(*strategy, [&] { return optimizer->ApplyGradients(of(ReplicaId() == 0)); }),
        StatusIs(kInvalid, HasSubstr(text)));
  };
  using Pairs = std::vector<GradientAndVariable>;
  const Value good = Floats({1});
  expect("some replicas gave a gradient and some none", [&](bool first) {
    return Pairs{{first ? Value() : good, a}};
  });
  expect("replicas gave different variables", [&](bool first) {
    return Pairs{{good, first ? a : b}};
  });
  expect("lists", [&](bool first) {
    return first ? Pairs{{good, a}} : Pairs{{good, a}, {good, b}};
  });
  const VariablePtr table = Zeros(*strategy, {1, 1}, "table");
  expect("some replicas gave a tensor and some IndexedSlices", [&](bool first) {
    return Pairs{{first ? Rows({0}, {1}) : Value(Tensor::Of<float>({1, 1}, {1})), table}};
  });
  expect("\"a\": found float32 [2]", [&](bool first) {
    return Pairs{{first ? Floats({1, 2}) : Floats({1}), a}};
  });
  EXPECT_THAT(Copies(a), ElementsAre(0, 0));
  ASSERT_OK(OnReplicas(*strategy, [&] { return optimizer->ApplyGradients({{good, a}}); }));
  EXPECT_THAT(Copies(a), ElementsAre(-2, -2));
  EXPECT_THAT(VariableOptimizer::Create({.type = "adamm"}).status(),
              StatusIs(kInvalid, HasSubstr("did you mean")));
}

}  // namespace
}  // namespace cairn::test
