// Moves rows between a job's servers while it trains.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct RebalanceOptions {
  TargetOptions target;
  bool plan_only = false;
  std::vector<std::string> emptied;  // "ps:2", "2": servers that must end without rows
  std::string by = "memory";         // the quantity to balance: "memory", "load"
  double watch_seconds = 10;         // how long to measure the load
  double tolerance = 0.05;           // allowed excess over the mean
  double busy_fraction = 0.5;        // at most this share of the time is spent copying
  double wait_seconds = 600;         // for one move
};

// Prints the plan with its cost, then makes the moves one after the other, each for one (variable,
// source, target). First finishes the moves of an earlier run that died. A failed move ends the
// run; finished moves stay. By load it first measures the servers; if no worker pulls or pushes
// meanwhile, it moves nothing and returns kFailedPrecondition.
absl::StatusOr<Answer> RunRebalance(const RebalanceOptions& options);

}  // namespace cairn
