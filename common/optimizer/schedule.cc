#include "common/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/arguments.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/status.h"

namespace cairn {
namespace {

using Presence = ArgumentSpec::Presence;

constexpr ArgumentSpec kInitialRate = {"initial_learning_rate", 0, Range::kNotNegative,
                                       Presence::kRequired};
constexpr ArgumentSpec kDecaySteps = {"decay_steps", 0, Range::kPositive, Presence::kRequired};
constexpr ArgumentSpec kAlpha = {"alpha", 0, Range::kNotNegative};

double Constant(const ScheduleConfig& config, double) {
  return config.arguments.at("learning_rate");
}

// Steps in units of decay_steps.
double Periods(const Arguments& arguments, double step) {
  const double periods = step / arguments.at("decay_steps");
  return ArgumentOr(arguments, "staircase", 0) != 0 ? std::floor(periods) : periods;
}

double Exponential(const ScheduleConfig& config, double step) {
  const Arguments& at = config.arguments;
  return at.at("initial_learning_rate") * std::pow(at.at("decay_rate"), Periods(at, step));
}

double InverseTime(const ScheduleConfig& config, double step) {
  const Arguments& at = config.arguments;
  return at.at("initial_learning_rate") / (1 + at.at("decay_rate") * Periods(at, step));
}

double Polynomial(const ScheduleConfig& config, double step) {
  const Arguments& at = config.arguments;
  double decay_steps = at.at("decay_steps");
  if (ArgumentOr(at, "cycle", 0) != 0) decay_steps *= std::max(1.0, std::ceil(step / decay_steps));
  const double left = 1 - std::min(step, decay_steps) / decay_steps;
  const double end = ArgumentOr(at, "end_learning_rate", 0.0001);
  return (at.at("initial_learning_rate") - end) * std::pow(left, ArgumentOr(at, "power", 1)) + end;
}

double Piecewise(const ScheduleConfig& config, double step) {
  const auto after = std::lower_bound(config.boundaries.begin(), config.boundaries.end(), step);
  return config.values[static_cast<size_t>(after - config.boundaries.begin())];
}

// Falls from 1 at `done` = 0 to `alpha` at `done` = 1, with `height` 1.
double CosineFactor(double done, double height, double alpha) {
  return (1 - alpha) * 0.5 * height * (1 + std::cos(std::numbers::pi * done)) + alpha;
}

double Cosine(const ScheduleConfig& config, double step) {
  const Arguments& at = config.arguments;
  const double initial = at.at("initial_learning_rate");
  const double decay_steps = at.at("decay_steps");
  const bool warms_up = at.contains("warmup_target");
  const double warmup_steps = warms_up ? ArgumentOr(at, "warmup_steps", 0) : 0;
  const double top = warms_up ? at.at("warmup_target") : initial;
  if (step < warmup_steps) return initial + (top - initial) * step / warmup_steps;
  const double done = std::min(step - warmup_steps, decay_steps) / decay_steps;
  return top * CosineFactor(done, 1, ArgumentOr(at, "alpha", 0));
}

// Start of restart `i`, in units of the first period; each period is `growth` (> 1) times as long
// as the previous one.
double RestartBegin(double growth, double i) { return (std::pow(growth, i) - 1) / (growth - 1); }

double CosineRestarts(const ScheduleConfig& config, double step) {
  const Arguments& at = config.arguments;
  const double growth = ArgumentOr(at, "t_mul", 2);
  double done = step / at.at("first_decay_steps");
  double restart = std::floor(done);
  if (growth == 1) {
    done -= restart;
  } else {
    restart = std::floor(std::log(1 + done * (growth - 1)) / std::log(growth));
    // Rounding may put the first step of a restart into the previous one.
    if (RestartBegin(growth, restart + 1) <= done) ++restart;
    if (RestartBegin(growth, restart) > done) --restart;
    done = (done - RestartBegin(growth, restart)) / std::pow(growth, restart);
  }
  const double height = std::pow(ArgumentOr(at, "m_mul", 1), restart);
  return at.at("initial_learning_rate") * CosineFactor(done, height, ArgumentOr(at, "alpha", 0));
}

struct ScheduleRule {
  absl::string_view type;
  std::vector<ArgumentSpec> arguments;
  double (*rate)(const ScheduleConfig& config, double step);
};

const std::vector<ScheduleRule>& Rules() {
  static const auto* rules = new std::vector<ScheduleRule>{
      {"constant", {{"learning_rate", 0, Range::kNotNegative, Presence::kRequired}}, &Constant},
      {"exponential_decay",
       {kInitialRate,
        kDecaySteps,
        {"decay_rate", 0, Range::kNotNegative, Presence::kRequired},
        {"staircase", 0, Range::kFlag}},
       &Exponential},
      {"inverse_time_decay",
       {kInitialRate,
        kDecaySteps,
        {"decay_rate", 0, Range::kNotNegative, Presence::kRequired},
        {"staircase", 0, Range::kFlag}},
       &InverseTime},
      {"polynomial_decay",
       {kInitialRate,
        kDecaySteps,
        {"end_learning_rate", 0.0001, Range::kNotNegative},
        {"power", 1, Range::kNotNegative},
        {"cycle", 0, Range::kFlag}},
       &Polynomial},
      {"piecewise_constant_decay", {}, &Piecewise},
      {"cosine_decay",
       {kInitialRate,
        kDecaySteps,
        kAlpha,
        {"warmup_target", 0, Range::kNotNegative, Presence::kOptional},
        {"warmup_steps", 0, Range::kNotNegative}},
       &Cosine},
      {"cosine_decay_restarts",
       {kInitialRate,
        {"first_decay_steps", 0, Range::kPositive, Presence::kRequired},
        // Keras yields no rate after shrinking periods (t_mul < 1) have ended, so these are
        // refused.
        {"t_mul", 2, Range::kAtLeastOne},
        {"m_mul", 1, Range::kNotNegative},
        kAlpha},
       &CosineRestarts}};
  return *rules;
}

const ScheduleRule* FindScheduleRule(absl::string_view type) {
  for (const ScheduleRule& rule : Rules()) {
    if (rule.type == type) return &rule;
  }
  return nullptr;
}

absl::Status CheckPiecewise(const ScheduleConfig& config) {
  const auto refuse = [](const auto&... parts) {
    return InvalidArgument("schedule 'piecewise_constant_decay': ", parts...);
  };
  if (config.values.size() != config.boundaries.size() + 1) {
    return refuse("values has ", config.values.size(), " numbers and boundaries ",
                  config.boundaries.size(), "; values must have one more than boundaries");
  }
  for (size_t i = 0; i < config.boundaries.size(); ++i) {
    const double boundary = config.boundaries[i];
    if (!std::isfinite(boundary) || (i > 0 && boundary <= config.boundaries[i - 1])) {
      return refuse("boundaries[", i, "] is ", NumberText(boundary),
                    "; boundaries must be finite and ascending");
    }
  }
  for (size_t i = 0; i < config.values.size(); ++i) {
    if (std::isfinite(config.values[i]) && config.values[i] >= 0) continue;
    return refuse("values[", i, "] is ", NumberText(config.values[i]), "; must be 0 or more");
  }
  return absl::OkStatus();
}

std::string ListText(absl::Span<const double> numbers) {
  return absl::StrCat("[",
                      absl::StrJoin(numbers, ", ",
                                    [](std::string* out, double number) {
                                      absl::StrAppend(out, NumberText(number));
                                    }),
                      "]");
}

}  // namespace

ScheduleConfig ConstantRate(double learning_rate) {
  ScheduleConfig config;
  config.arguments["learning_rate"] = learning_rate;
  return config;
}

ScheduleConfig WithDefaults(const ScheduleConfig& config) {
  ScheduleConfig full = config;
  if (const ScheduleRule* rule = FindScheduleRule(config.type); rule != nullptr) {
    AddDefaults(rule->arguments, &full.arguments);
  }
  return full;
}

absl::Status ValidateSchedule(const ScheduleConfig& config) {
  const ScheduleRule* rule = FindScheduleRule(config.type);
  if (rule == nullptr) {
    std::vector<absl::string_view> types;
    for (const ScheduleRule& known : Rules()) types.push_back(known.type);
    return InvalidArgument("unknown schedule ", QuotedName(config.type),
                           DidYouMean(config.type, types), "; known: ", absl::StrJoin(types, ", "));
  }
  RETURN_IF_ERROR(CheckArguments(absl::StrCat("schedule '", config.type, "'"), config.arguments,
                                 rule->arguments));
  if (rule->rate == &Piecewise) return CheckPiecewise(config);
  if (!config.boundaries.empty() || !config.values.empty()) {
    return InvalidArgument("schedule '", config.type,
                           "' takes no boundaries and values; piecewise_constant_decay does");
  }
  return absl::OkStatus();
}

double LearningRateAt(const ScheduleConfig& config, int64_t updates_done) {
  const ScheduleRule* rule = FindScheduleRule(config.type);
  return rule == nullptr ? 0 : rule->rate(config, static_cast<double>(updates_done));
}

std::string ScheduleText(const ScheduleConfig& config) {
  if (config.type == "constant" && config.arguments.size() == 1) {
    return NumberText(config.arguments.begin()->second);
  }
  if (config.type == "piecewise_constant_decay") {
    return absl::StrCat(config.type, "(boundaries=", ListText(config.boundaries),
                        ", values=", ListText(config.values), ")");
  }
  return absl::StrCat(config.type, "(", ArgumentsText(config.arguments), ")");
}

}  // namespace cairn
