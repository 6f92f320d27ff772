// A complete run: servers, workers, the network between them, and faults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/options.h"

namespace cairn::simulator {

struct Result {
  // Empty: none. Else the violation and the command line that reproduces it.
  std::string violation;
  uint64_t trace_hash = 0;

  double simulated_seconds = 0;
  double wall_seconds = 0;
  double worker_hours = 0;
  int64_t events = 0;
  int64_t pushes = 0;  // parts that servers took, including repeated ones
  int64_t rows_checked = 0;
  int64_t epochs = 0;
  int64_t server_crashes = 0, worker_starts = 0, fenced = 0, fenced_by_late_hello = 0, gave_up = 0;
  int64_t movers = 0, moves = 0;  // `moves`: movers that completed
  int64_t joins = 0, leaves = 0;  // of servers
  int64_t resets = 0, replies_lost = 0, late = 0, partitions = 0, retries = 0;

  // Calls to the busiest server over the mean of all servers, and those of ps:0, which grants
  // incarnations.
  double calls_max_over_mean = 0, coordinator_calls_over_mean = 0;
  int32_t busiest_server = 0;
  double largest_server_load = 0;  // share of its cores' time in the whole run
  // Attempted calls and connections in the busiest second after a restart of all servers, over
  // those of a steady second; seconds from the restart, and from the start of the run, until the
  // rate of steps reaches nine tenths of the steady rate. -1: no restart, or not reached.
  double steady_calls_per_second = 0, steady_steps_per_second = 0;
  double restart_storm = -1, restart_seconds = -1, start_seconds = -1;

  std::string Json(const Options& options) const;
};

Result Simulate(const Options& options);

}  // namespace cairn::simulator
