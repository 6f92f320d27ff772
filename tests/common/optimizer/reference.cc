#include "tests/common/optimizer/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace cairn::test {
namespace {

// One update in the making: short names as in the formulas.
struct Step {
  const OptimizerConfig& config;
  double t;
  double lr;
  double g;
  double& w;
  std::vector<double>& s;

  double Arg(const char* name) const { return config.arguments.at(name); }
  bool Flag(const char* name) const { return Arg(name) != 0; }
};

void Sgd(const Step& u) {
  const double mu = u.Arg("momentum");
  if (mu == 0) {
    u.w -= u.lr * u.g;
    return;
  }
  u.s[0] = mu * u.s[0] - u.lr * u.g;
  u.w += u.Flag("nesterov") ? mu * u.s[0] - u.lr * u.g : u.s[0];
}

void Adagrad(const Step& u) {
  u.s[0] += u.g * u.g;
  u.w -= u.lr * u.g / std::sqrt(u.s[0] + u.Arg("epsilon"));
}

void Adadelta(const Step& u) {
  const double rho = u.Arg("rho");
  const double epsilon = u.Arg("epsilon");
  u.s[0] = rho * u.s[0] + (1 - rho) * u.g * u.g;
  const double step = std::sqrt(u.s[1] + epsilon) * u.g / std::sqrt(u.s[0] + epsilon);
  u.s[1] = rho * u.s[1] + (1 - rho) * step * step;
  u.w -= u.lr * step;
}

void Rmsprop(const Step& u) {
  const double rho = u.Arg("rho");
  const double mu = u.Arg("momentum");
  u.s[0] = rho * u.s[0] + (1 - rho) * u.g * u.g;
  double variance = u.s[0];
  if (u.Flag("centered")) {
    double& average = u.s.back();
    average = rho * average + (1 - rho) * u.g;
    variance -= average * average;
  }
  const double step = u.lr * u.g / std::sqrt(variance + u.Arg("epsilon"));
  if (mu > 0) u.s[1] = mu * u.s[1] + step;
  u.w -= mu > 0 ? u.s[1] : step;
}

void Adam(const Step& u) {
  const double beta_1 = u.Arg("beta_1");
  const double beta_2 = u.Arg("beta_2");
  const double alpha = u.lr * std::sqrt(1 - std::pow(beta_2, u.t)) / (1 - std::pow(beta_1, u.t));
  u.s[0] = beta_1 * u.s[0] + (1 - beta_1) * u.g;
  u.s[1] = beta_2 * u.s[1] + (1 - beta_2) * u.g * u.g;
  double velocity = u.s[1];
  if (u.s.size() == 3) velocity = u.s[2] = std::max(u.s[2], u.s[1]);
  u.w -= alpha * u.s[0] / (std::sqrt(velocity) + u.Arg("epsilon"));
}

void Adamax(const Step& u) {
  const double beta_1 = u.Arg("beta_1");
  u.s[0] = beta_1 * u.s[0] + (1 - beta_1) * u.g;
  u.s[1] = std::max(u.Arg("beta_2") * u.s[1], std::abs(u.g));
  u.w -= u.lr * u.s[0] / ((1 - std::pow(beta_1, u.t)) * (u.s[1] + u.Arg("epsilon")));
}

void Nadam(const Step& u) {
  const double beta_1 = u.Arg("beta_1");
  const double beta_2 = u.Arg("beta_2");
  const auto term = [&](double t) { return beta_1 * (1 - 0.5 * std::pow(0.96, t)); };
  double product = 1;
  for (double t = 1; t <= u.t; ++t) product *= term(t);
  const double next = term(u.t + 1);
  u.s[0] = beta_1 * u.s[0] + (1 - beta_1) * u.g;
  u.s[1] = beta_2 * u.s[1] + (1 - beta_2) * u.g * u.g;
  const double m_hat = next * u.s[0] / (1 - product * next) + (1 - term(u.t)) * u.g / (1 - product);
  const double v_hat = u.s[1] / (1 - std::pow(beta_2, u.t));
  u.w -= u.lr * m_hat / (std::sqrt(v_hat) + u.Arg("epsilon"));
}

void Lion(const Step& u) {
  const double beta_1 = u.Arg("beta_1");
  const double beta_2 = u.Arg("beta_2");
  const double mixed = beta_1 * u.s[0] + (1 - beta_1) * u.g;
  u.w -= u.lr * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
  u.s[0] = beta_2 * u.s[0] + (1 - beta_2) * u.g;
}

void Ftrl(const Step& u) {
  const double power = -u.Arg("learning_rate_power");
  const double l1 = u.Arg("l1_regularization_strength");
  const double l2 = u.Arg("l2_regularization_strength") + u.Arg("beta") / (2 * u.lr);
  const double shrinkage = u.Arg("l2_shrinkage_regularization_strength");
  const double before = std::pow(u.s[0], power);
  u.s[0] += u.g * u.g;
  const double after = std::pow(u.s[0], power);
  u.s[1] += u.g + 2 * shrinkage * u.w - (after - before) / u.lr * u.w;
  u.w = (std::clamp(u.s[1], -l1, l1) - u.s[1]) / (after / u.lr + 2 * l2);
}

}  // namespace

void ReferenceUpdate(const OptimizerConfig& config, int64_t t, double rate, double gradient,
                     ReferenceElement* element) {
  if (config.clipvalue > 0) gradient = std::clamp(gradient, -config.clipvalue, config.clipvalue);
  if (const auto decay = config.arguments.find("weight_decay"); decay != config.arguments.end()) {
    element->value -= element->value * decay->second * rate;
  }
  const Step step = {config,   static_cast<double>(t), rate,
                     gradient, element->value,         element->slots};
  const std::string& type = config.type;
  if (type == "sgd") return Sgd(step);
  if (type == "adagrad") return Adagrad(step);
  if (type == "adadelta") return Adadelta(step);
  if (type == "rmsprop") return Rmsprop(step);
  if (type == "adam" || type == "adamw" || type == "lazy_adam") return Adam(step);
  if (type == "adamax") return Adamax(step);
  if (type == "nadam") return Nadam(step);
  if (type == "lion") return Lion(step);
  if (type == "ftrl") return Ftrl(step);
  throw std::invalid_argument("no reference for optimizer " + type);
}

}  // namespace cairn::test
