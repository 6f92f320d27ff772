// What a run's counts say: hot spots, storms, slow starts.
#pragma once

#include "tests/simulator/observer.h"
#include "tests/simulator/simulation.h"

namespace cairn::simulator {

// Of a run that has come to `end`.
void FillFigures(const Options& options, const Observer& observer, Nanos end, Result* result);

}  // namespace cairn::simulator
