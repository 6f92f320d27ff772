// Runs rounds of generated sequences in a process of their own, which a finding may end, and makes
// those that lead to a finding small.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/target.h"

namespace cairn::fuzz {

struct RunOptions {
  Transport transport = Transport::kDirect;
  int32_t sequences_per_round = 48;  // on one store
  bool failing_allocations = false;
  // A call that takes longer is a finding.
  absl::Duration call_deadline = absl::Seconds(60);
};

// One sequence: how it begins, and its calls.
struct Sequence {
  Tape begin;
  std::vector<Tape> calls;
};
// What is run on one store, from its making on.
struct Round {
  Tape store;
  std::vector<Sequence> sequences;
};

struct Report {
  std::string what;     // "": no finding
  std::string details;  // of what, or what the process wrote
  int64_t calls = 0;    // those of checks included
  uint64_t seed = 0;    // of the round
  Round round;          // as far as it came
};

// Rounds of seeds `seed`, `seed` + 1, …, until a finding, `calls` or `duration`.
Report RunRounds(const RunOptions& options, uint64_t seed, int64_t calls, absl::Duration duration);
// One round once more. `trace`: prints each call.
Report RunRound(const RunOptions& options, const Round& round, bool trace);
// A round with fewer and simpler calls that leads to the same finding, as far as one was found in
// `duration`; `report`'s own if it does not come again.
Round Shrink(const RunOptions& options, const Report& report, absl::Duration duration);

}  // namespace cairn::fuzz
