// Every rule and flag of the optimizers, for tests of the loops that compute them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "common/optimizer/optimizer.h"

namespace cairn::test {

struct OptimizerCase {
  std::string name;
  std::string type;
  absl::btree_map<std::string, double> arguments;
  double clipvalue = 0;
};
inline std::ostream& operator<<(std::ostream& out, const OptimizerCase& c) { return out << c.name; }

inline OptimizerConfig ConfigOf(const OptimizerCase& c) {
  OptimizerConfig config;
  config.type = c.type;
  config.learning_rate = ConstantRate(0.05);
  config.arguments = c.arguments;
  config.clipvalue = c.clipvalue;
  return WithDefaults(config);
}

inline std::vector<OptimizerCase> OptimizerCases() {
  return {
      {"Sgd", "sgd", {}},
      {"SgdGuarded", "sgd", {{"weight_decay", 0.3}}, 0.8},
      {"SgdMomentum", "sgd", {{"momentum", 0.7}}},
      {"SgdNesterov", "sgd", {{"momentum", 0.7}, {"nesterov", 1}}},
      {"SgdNesterovGuarded", "sgd", {{"momentum", 0.7}, {"nesterov", 1}, {"weight_decay", 0.1}}, 1},
      {"Adagrad", "adagrad", {}},
      {"AdagradGuarded", "adagrad", {{"weight_decay", 0.02}}, 0.5},
      {"Adadelta", "adadelta", {{"epsilon", 1e-3}}},
      {"Rmsprop", "rmsprop", {}},
      {"RmspropMomentum", "rmsprop", {{"momentum", 0.6}}},
      {"RmspropCentered", "rmsprop", {{"centered", 1}, {"epsilon", 1e-2}}},
      {"RmspropCenteredMomentum",
       "rmsprop",
       {{"centered", 1}, {"momentum", 0.6}, {"epsilon", 1e-2}}},
      {"Adam", "adam", {{"beta_2", 0.96}}},
      {"AdamAmsgrad", "adam", {{"beta_2", 0.96}, {"amsgrad", 1}}},
      {"AdamGuarded", "adam", {{"beta_2", 0.96}, {"weight_decay", 0.1}}, 0.7},
      {"AdamW", "adamw", {{"beta_2", 0.96}}},
      {"LazyAdam", "lazy_adam", {{"beta_2", 0.96}}},
      {"Adamax", "adamax", {}},
      {"Nadam", "nadam", {{"beta_2", 0.96}}},
      {"Lion", "lion", {}},
      {"Ftrl", "ftrl", {{"l1_regularization_strength", 0.1}}},
      {"FtrlAll",
       "ftrl",
       {{"learning_rate_power", -0.6},
        {"beta", 0.5},
        {"l1_regularization_strength", 0.1},
        {"l2_regularization_strength", 0.2},
        {"l2_shrinkage_regularization_strength", 0.1}}},
  };
}

}  // namespace cairn::test
