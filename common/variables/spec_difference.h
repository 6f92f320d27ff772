// Describes how two specs of one variable differ, and whether a live job may make that change.
#pragma once

#include <string>

#include "common/variables/variable_spec.h"

namespace cairn {

// Whether a variable with the optimizer `have` may continue with `want`: the type must be the same,
// and the new arguments must not change the slots or their initial values.
bool MayFollow(const OptimizerConfig& have, const OptimizerConfig& want);

// "learning_rate 0.1 -> 0.05, beta_1 0.9 -> 0.8"; empty if they are equal.
std::string OptimizerChangeText(const OptimizerConfig& have, const OptimizerConfig& want);

// Only the fields that differ: "shape: the job has [32], asked for [64]; optimizer.learning_rate:
// the job has 0.1, asked for 0.05".
std::string SpecDifferenceText(const VariableSpec& have, const VariableSpec& want);

}  // namespace cairn
