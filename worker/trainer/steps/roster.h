// Records which of a job's workers have finished and which are alive: a small table on the servers,
// for the worker that evaluates after the others and for starting the job over together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// The table is an embedding "cairn/workers" on ps:0: its key is the worker's ordinal, its row [runs
// finished, heartbeats], updated by SGD with rate 1. Heartbeats are unsequenced pushes
// (heartbeat_thread.h). The end of a run travels with the worker's last training push: a push
// recomputed after a crash must be the same step that some servers may already have.
struct RosterRow {
  int64_t runs_finished = 0;
  int64_t beats = 0;  // changes with every heartbeat
};

VariableSpec RosterSpec();
// Whether the roster is among a job's variables: the job has begun.
bool HasRoster(absl::Span<const VariableSpec> specs);

// Rows of workers 0 … workers - 1; zero for workers that were never seen. kNotFound: the job has no
// roster.
absl::StatusOr<std::vector<RosterRow>> ReadRoster(PsClient& client, int32_t workers,
                                                  Deadline deadline);

using RosterGradient = std::array<float, 2>;

// One worker's entries. Thread safety: none.
class RosterEntry {
 public:
  // The interval between a worker's heartbeats.
  static constexpr absl::Duration kBeatInterval = absl::Milliseconds(250);

  explicit RosterEntry(int32_t worker) : key_(worker) {}

  // A heartbeat is due. Times are MonotonicNow().
  bool Due(absl::Duration now) const { return now >= next_beat_; }
  // The part of a push that sends a heartbeat and adds `finished_runs`; it views this entry and
  // `gradient`, which it fills.
  PushSource Source(absl::Duration now, int64_t finished_runs, RosterGradient* gradient);

 private:
  const int64_t key_;
  int64_t beats_ = 0;
  absl::Duration next_beat_ = -absl::InfiniteDuration();
};

}  // namespace cairn
