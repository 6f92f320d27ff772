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
  std::vector<std::string> emptied;  // "ps:2", "2": are to end without rows
  std::string by = "memory";         // what is evened out: "memory", "load"
  double watch_seconds = 10;         // to learn the load
  double tolerance = 0.05;           // above the mean
  double busy_fraction = 0.5;        // of the time that copying takes at most
  double wait_seconds = 600;         // for one move
};

// Shows what is to be moved, with its cost, and moves it: one (variable, source, target) after the
// other. What an earlier one that died had left to do is done first. A move that fails ends it;
// those before it stand. By load it watches the servers first; where nobody pulls or pushes
// meanwhile, it moves nothing and says so (kFailedPrecondition).
absl::StatusOr<Answer> RunRebalance(const RebalanceOptions& options);

}  // namespace cairn
