// Derives hot spots, retry storms and start times from the counts of a run.
#pragma once

#include "tests/simulator/observer.h"
#include "tests/simulator/simulation.h"

namespace cairn::simulator {

// Fills in `result` for a run that ended at `end`.
void FillStatistics(const Options& options, const Observer& observer, Nanos end, Result* result);

}  // namespace cairn::simulator
