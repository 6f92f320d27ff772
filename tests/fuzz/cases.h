// Runs rounds of generated sequences in a child process, which a finding may end, and shrinks
// rounds that lead to a finding.
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
  int32_t sequences_per_round = 48;  // on a single store
  bool failing_allocations = false;
  // A call that takes longer is a finding.
  absl::Duration call_deadline = absl::Seconds(60);
};

// One sequence: its start, and its calls.
struct Sequence {
  Tape begin;
  std::vector<Tape> calls;
};
// All calls on one store, starting with its creation.
struct Round {
  Tape store;
  std::vector<Sequence> sequences;
};

struct Report {
  std::string what;     // "": no finding
  std::string details;  // of the finding, or the output of the process
  int64_t calls = 0;    // including those of checks
  uint64_t seed = 0;    // of the round
  Round round;          // up to the finding
};

// Runs rounds with seeds `seed`, `seed` + 1, …, until a finding, `calls` or `duration`.
Report RunRounds(const RunOptions& options, uint64_t seed, int64_t calls, absl::Duration duration);
// Repeats one round. `trace`: prints each call of its last four sequences.
Report RunRound(const RunOptions& options, const Round& round, bool trace);
// Returns the smallest round with the same finding that was found within `duration`: fewer and
// simpler calls. Returns the round of `report` if the finding does not recur.
Round Shrink(const RunOptions& options, const Report& report, absl::Duration duration);

}  // namespace cairn::fuzz
