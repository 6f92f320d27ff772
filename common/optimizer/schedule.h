// Learning-rate schedules with Keras' formulas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"

namespace cairn {

// `type`: constant, exponential_decay, inverse_time_decay, polynomial_decay,
// piecewise_constant_decay, cosine_decay, cosine_decay_restarts. `arguments`: by Keras name,
// booleans as 0 and 1; constant has one, learning_rate. The two lists belong to
// piecewise_constant_decay.
struct ScheduleConfig {
  std::string type = "constant";
  absl::btree_map<std::string, double> arguments = {};
  std::vector<double> boundaries = {};
  std::vector<double> values = {};

  bool operator==(const ScheduleConfig& other) const = default;
};

// A constant rate.
ScheduleConfig ConstantRate(double learning_rate);

// `config` with all defaults filled in.
ScheduleConfig WithDefaults(const ScheduleConfig& config);

// kInvalidArgument: an unknown type or argument (the message has the nearest known name), or an
// argument that is missing or out of range.
absl::Status ValidateSchedule(const ScheduleConfig& config);

// The rate after `updates_done` updates (0 for the first), computed in double.
// `config` must be valid.
double LearningRateAt(const ScheduleConfig& config, int64_t updates_done);

// "0.1" for a constant, else "exponential_decay(decay_rate=0.9, …)"; for messages.
std::string ScheduleText(const ScheduleConfig& config);

}  // namespace cairn
