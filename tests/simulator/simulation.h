// A whole run: servers, workers, a network between them, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/options.h"

namespace cairn::simulator {

struct Result {
  // Empty: none. Else what is wrong, and the command line that shows it again.
  std::string violation;
  uint64_t trace_hash = 0;

  double simulated_seconds = 0;
  double wall_seconds = 0;
  double worker_hours = 0;
  int64_t events = 0;
  int64_t pushes = 0;  // parts that servers took, repeated ones included
  int64_t rows_checked = 0;
  int64_t epochs = 0;
  int64_t server_crashes = 0, worker_starts = 0, fenced = 0, fenced_by_late_hello = 0, gave_up = 0;
  int64_t movers = 0, moves = 0;  // of them those that moved what they were to
  int64_t joins = 0, leaves = 0;  // of servers
  int64_t resets = 0, replies_lost = 0, late = 0, partitions = 0, retries = 0;

  // Calls to the busiest server over the mean of all; ps:0, which grants incarnations, by itself.
  double calls_max_over_mean = 0, coordinator_calls_over_mean = 0;
  int32_t busiest_server = 0;
  double largest_server_load = 0;  // of its cores, over the whole run
  // Calls and connections tried in the busiest second after a restart of all servers, over those of
  // a steady second; and seconds until nine tenths of the steady rate of steps are back, from the
  // restart and from the run's start. -1: no restart, or not seen.
  double steady_calls_per_second = 0, steady_steps_per_second = 0;
  double restart_storm = -1, restart_seconds = -1, start_seconds = -1;

  std::string Json(const Options& options) const;
};

Result Simulate(const Options& options);

}  // namespace cairn::simulator
