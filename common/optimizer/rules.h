// The table of optimizers: arguments, slots, constants and loop of each.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/arguments.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/optimizer_loop.h"

namespace cairn {

// The union of all optimizers' arguments; a type ignores those that it does not have.
struct Hyperparameters {
  double momentum = 0;
  double rho = 0;
  double beta_1 = 0;
  double beta_2 = 0;
  double epsilon = 0;
  double initial_accumulator_value = 0;
  double learning_rate_power = 0;
  double l1_regularization_strength = 0;
  double l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool centered = false;
  bool amsgrad = false;
};

Hyperparameters ReadHyperparameters(const Arguments& arguments);

using RuleConstants = std::array<double, UpdateStep::kConstants>;

struct OptimizerRule {
  absl::string_view type;
  double default_learning_rate;
  std::vector<ArgumentSpec> arguments;
  // The rule's slots, in the order in which the kernels take them.
  std::vector<SlotSpec> (*slots)(const Hyperparameters& h);
  // The rule's loop. `guarded` is left false, because every rule has a guarded variant.
  OptimizerLoop (*loop)(const Hyperparameters& h);
  // The kernels' constants from [2] on, for update `t` (1 for the first) at rate `rate`. `cast`
  // rounds to the variable's type, as Keras does for some hyperparameters before it computes with
  // them.
  RuleConstants (*constants)(const Hyperparameters& h, int64_t t, double rate,
                             double (*cast)(double));
  // Whether a zero gradient changes nothing if there is no weight decay.
  bool (*zero_is_identity)(const Hyperparameters& h);
};

// All rules except "none". The span stays valid until the process ends.
absl::Span<const OptimizerRule> OptimizerRules();

}  // namespace cairn
