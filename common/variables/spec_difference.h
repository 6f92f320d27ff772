// In what two specs of one variable differ, and whether that may change while the job lives.
#pragma once

#include <string>

#include "common/variables/variable_spec.h"

namespace cairn {

// Whether a variable that has the optimizer `have` may go on with `want`: the same type with other
// arguments that leave its slots, and their initial values, as they are.
bool MayFollow(const OptimizerConfig& have, const OptimizerConfig& want);

// "learning_rate 0.1 -> 0.05, beta_1 0.9 -> 0.8"; empty where they are equal.
std::string OptimizerChangeText(const OptimizerConfig& have, const OptimizerConfig& want);

// Only the fields that differ: "shape: the job has [32], asked for [64]; optimizer.learning_rate:
// the job has 0.1, asked for 0.05".
std::string SpecDifferenceText(const VariableSpec& have, const VariableSpec& want);

}  // namespace cairn
