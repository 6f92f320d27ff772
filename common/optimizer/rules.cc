#include "common/optimizer/rules.h"

#include <algorithm>
#include <cmath>

namespace cairn {
namespace {

using Slots = std::vector<SlotSpec>;
using H = Hyperparameters;
using Kind = OptimizerLoop::Kind;
using Cast = double (*)(double);

// beta^t, with beta in the variable's precision as in Keras.
double Power(double beta, int64_t t, Cast cast) {
  return std::pow(cast(beta), static_cast<double>(t));
}

// Adam's learning rate with both bias corrections.
double Alpha(const H& h, int64_t t, double rate, Cast cast) {
  return rate * std::sqrt(1 - Power(h.beta_2, t, cast)) / (1 - Power(h.beta_1, t, cast));
}

RuleConstants SgdConstants(const H& h, int64_t, double rate, Cast) {
  return {0, 0, rate, h.momentum};
}
RuleConstants AdagradConstants(const H& h, int64_t, double rate, Cast) {
  return {0, 0, rate, h.epsilon};
}
RuleConstants AdadeltaConstants(const H& h, int64_t, double rate, Cast) {
  return {0, 0, rate, h.rho, 1 - h.rho, h.epsilon};
}
RuleConstants RmspropConstants(const H& h, int64_t, double rate, Cast) {
  return {0, 0, rate, h.rho, 1 - h.rho, h.epsilon, h.momentum};
}
RuleConstants AdamConstants(const H& h, int64_t t, double rate, Cast cast) {
  return {0, 0, Alpha(h, t, rate, cast), 1 - h.beta_1, 1 - h.beta_2, h.epsilon};
}
RuleConstants AdamaxConstants(const H& h, int64_t t, double rate, Cast cast) {
  return {0, 0, rate / (1 - Power(h.beta_1, t, cast)), 1 - h.beta_1, h.beta_2, h.epsilon};
}
RuleConstants LionConstants(const H& h, int64_t, double rate, Cast cast) {
  const double beta_1 = cast(h.beta_1);
  const double beta_2 = cast(h.beta_2);
  return {0, 0, rate, beta_1, 1 - beta_1, beta_2, 1 - beta_2};
}
RuleConstants FtrlConstants(const H& h, int64_t, double rate, Cast) {
  return {0,
          0,
          1 / rate,
          h.l1_regularization_strength,
          2 * h.l2_shrinkage_regularization_strength,
          2 * h.l2_regularization_strength + h.beta / rate,
          -h.learning_rate_power};
}

// Keras stores the product of all momentum terms beta_1 * (1 - 0.96^i / 2), i <= t, in a variable.
// It depends only on t, so it is recomputed here, and a restart loses nothing.
RuleConstants NadamConstants(const H& h, int64_t t, double rate, Cast cast) {
  constexpr double kDecay = 0.96;
  // For larger i, 0.96^i / 2 is below a double's precision, and each term equals beta_1.
  constexpr int64_t kLastVaryingTerm = 1024;
  const int64_t varying = std::min(t, kLastVaryingTerm);
  double product = std::pow(h.beta_1, static_cast<double>(t - varying));
  double decayed = 1;
  for (int64_t i = 0; i < varying; ++i) {
    decayed *= kDecay;
    product *= h.beta_1 * (1 - 0.5 * decayed);
  }
  const double beta_1 = cast(h.beta_1);
  const double beta_2 = cast(h.beta_2);
  const double u = beta_1 * (1 - 0.5 * Power(kDecay, t, cast));
  const double u_next = beta_1 * (1 - 0.5 * Power(kDecay, t + 1, cast));
  return {0,
          0,
          rate * u_next / (1 - product * u_next),
          rate * (1 - u) / (1 - product),
          1 - beta_1,
          1 - beta_2,
          1 / (1 - Power(h.beta_2, t, cast)),
          h.epsilon};
}

constexpr ArgumentSpec kWeightDecay = {"weight_decay", 0, Range::kNotNegative};
constexpr ArgumentSpec kEpsilon = {"epsilon", 1e-7, Range::kNotNegative};
constexpr ArgumentSpec kBeta1 = {"beta_1", 0.9, Range::kZeroToBelowOne};
constexpr ArgumentSpec kBeta2 = {"beta_2", 0.999, Range::kZeroToBelowOne};
constexpr ArgumentSpec kAmsgrad = {"amsgrad", 0, Range::kFlag};
constexpr ArgumentSpec kInitialAccumulator = {"initial_accumulator_value", 0.1,
                                              Range::kNotNegative};

bool Never(const H&) { return false; }
bool Always(const H&) { return true; }

Slots AdamSlots(const H& h) {
  Slots slots = {{"momentum", 0}, {"velocity", 0}};
  if (h.amsgrad) slots.push_back({"velocity_hat", 0});
  return slots;
}

Slots RmspropSlots(const H& h) {
  Slots slots = {{"velocity", 0}};
  if (h.momentum > 0) slots.push_back({"momentum", 0});
  if (h.centered) slots.push_back({"average_gradient", 0});
  return slots;
}

template <Kind kKind>
OptimizerLoop LoopOf(const H&) {
  return {.kind = kKind};
}

OptimizerLoop SgdLoop(const H& h) {
  if (h.momentum == 0) return {.kind = Kind::kSgd};
  return {.kind = Kind::kMomentum, .nesterov = h.nesterov};
}
OptimizerLoop RmspropLoop(const H& h) {
  return {.kind = Kind::kRmsprop, .momentum = h.momentum > 0, .centered = h.centered};
}
OptimizerLoop AdamLoop(const H& h) { return {.kind = Kind::kAdam, .amsgrad = h.amsgrad}; }
OptimizerLoop FtrlLoop(const H& h) {
  return {.kind = Kind::kFtrl, .square_root = h.learning_rate_power == -0.5};
}

OptimizerRule Sgd() {
  return {"sgd",
          0.01,
          {{"momentum", 0, Range::kZeroToOne}, {"nesterov", 0, Range::kFlag}, kWeightDecay},
          [](const H& h) {
            return h.momentum != 0 ? Slots{{"momentum", 0}} : Slots{};
          },
          &SgdLoop,
          &SgdConstants,
          [](const H& h) { return h.momentum == 0; }};
}

OptimizerRule Adagrad() {
  return {"adagrad",
          0.001,
          {kInitialAccumulator, kEpsilon, kWeightDecay},
          [](const H& h) {
            return Slots{{"accumulator", h.initial_accumulator_value}};
          },
          &LoopOf<Kind::kAdagrad>,
          &AdagradConstants,
          &Always};
}

OptimizerRule Adadelta() {
  return {"adadelta",
          0.001,
          {{"rho", 0.95, Range::kZeroToOne}, kEpsilon, kWeightDecay},
          [](const H&) {
            return Slots{{"accumulated_grad", 0}, {"accumulated_delta_var", 0}};
          },
          &LoopOf<Kind::kAdadelta>,
          &AdadeltaConstants,
          &Never};
}

OptimizerRule Rmsprop() {
  return {"rmsprop",
          0.001,
          {{"rho", 0.9, Range::kZeroToOne},
           {"momentum", 0, Range::kZeroToOne},
           kEpsilon,
           {"centered", 0, Range::kFlag},
           kWeightDecay},
          &RmspropSlots,
          &RmspropLoop,
          &RmspropConstants,
          &Never};
}

OptimizerRule Adam() {
  return {"adam",     0.001,     {kBeta1, kBeta2, kEpsilon, kAmsgrad, kWeightDecay},
          &AdamSlots, &AdamLoop, &AdamConstants,
          &Never};
}

OptimizerRule AdamW() {
  OptimizerRule rule = Adam();
  rule.type = "adamw";
  rule.arguments.back().default_value = 0.004;
  return rule;
}

// TensorFlow Addons computes beta * m + (1 - beta) * g, and Keras m + (g - m) * (1 - beta): equal
// up to rounding.
OptimizerRule LazyAdam() {
  OptimizerRule rule = Adam();
  rule.type = "lazy_adam";
  rule.arguments = {kBeta1, kBeta2, kEpsilon};
  rule.zero_is_identity = &Always;
  return rule;
}

OptimizerRule Adamax() {
  return {"adamax",
          0.001,
          {kBeta1, {"beta_2", 0.999, Range::kZeroToOne}, kEpsilon, kWeightDecay},
          [](const H&) {
            return Slots{{"momentum", 0}, {"norm", 0}};
          },
          &LoopOf<Kind::kAdamax>,
          &AdamaxConstants,
          &Never};
}

OptimizerRule Nadam() {
  return {"nadam",
          0.001,
          {kBeta1, kBeta2, kEpsilon, kWeightDecay},
          &AdamSlots,
          &LoopOf<Kind::kNadam>,
          &NadamConstants,
          &Never};
}

OptimizerRule Lion() {
  return {
      "lion",
      0.001,
      {{"beta_1", 0.9, Range::kAboveZeroToOne}, {"beta_2", 0.99, Range::kZeroToOne}, kWeightDecay},
      [](const H&) {
        return Slots{{"momentum", 0}};
      },
      &LoopOf<Kind::kLion>,
      &LionConstants,
      &Never};
}

OptimizerRule Ftrl() {
  return {"ftrl",
          0.001,
          {{"learning_rate_power", -0.5, Range::kNotPositive},
           kInitialAccumulator,
           {"l1_regularization_strength", 0, Range::kNotNegative},
           {"l2_regularization_strength", 0, Range::kNotNegative},
           {"l2_shrinkage_regularization_strength", 0, Range::kNotNegative},
           {"beta", 0, Range::kNotNegative},
           kWeightDecay},
          [](const H& h) {
            return Slots{{"accumulator", h.initial_accumulator_value}, {"linear", 0}};
          },
          &FtrlLoop,
          &FtrlConstants,
          &Never};
}

struct NumberField {
  absl::string_view name;
  double Hyperparameters::*field;
};
constexpr NumberField kNumberFields[] = {
    {"momentum", &H::momentum},
    {"rho", &H::rho},
    {"beta_1", &H::beta_1},
    {"beta_2", &H::beta_2},
    {"epsilon", &H::epsilon},
    {"initial_accumulator_value", &H::initial_accumulator_value},
    {"learning_rate_power", &H::learning_rate_power},
    {"l1_regularization_strength", &H::l1_regularization_strength},
    {"l2_regularization_strength", &H::l2_regularization_strength},
    {"l2_shrinkage_regularization_strength", &H::l2_shrinkage_regularization_strength},
    {"beta", &H::beta},
    {"weight_decay", &H::weight_decay},
};

}  // namespace

Hyperparameters ReadHyperparameters(const Arguments& arguments) {
  Hyperparameters h;
  for (const NumberField& number : kNumberFields) {
    h.*number.field = ArgumentOr(arguments, number.name, 0);
  }
  h.nesterov = ArgumentOr(arguments, "nesterov", 0) != 0;
  h.centered = ArgumentOr(arguments, "centered", 0) != 0;
  h.amsgrad = ArgumentOr(arguments, "amsgrad", 0) != 0;
  return h;
}

absl::Span<const OptimizerRule> OptimizerRules() {
  static const auto* rules =
      new std::vector<OptimizerRule>{Sgd(),    Adagrad(), Adadelta(), Rmsprop(), Adam(), AdamW(),
                                     Adamax(), Nadam(),   LazyAdam(), Ftrl(),    Lion()};
  return *rules;
}

}  // namespace cairn
