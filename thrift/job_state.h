// The state of a job and of its workers, derived from what servers answer: one rule for status
// pages, metrics and cairnctl, so that all of them say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "thrift/cairn_types.h"
#include "thrift/limits.h"

namespace cairn {

// Three heartbeats in a row did not come. A stopped worker shows on the status page within 2 s.
inline constexpr double kMissingSeconds = 3.5 * kHeartbeatSeconds;

// Whether the worker should be heard of: it has joined, and has neither left nor been lost.
bool IsExpectedToCall(const wire::WorkerStanding& worker);
// Lost, or expected and silent.
bool IsMissing(const wire::WorkerStanding& worker);
// Expected and not missing.
bool IsHeard(const wire::WorkerStanding& worker);

// "worker:1", as it names itself; "worker 1" of clients that do not.
std::string TaskOf(const wire::WorkerStanding& worker);

// Mean of the recent losses of workers that are heard; nullopt: none has told one.
std::optional<double> MeanLoss(absl::Span<const wire::WorkerStanding> workers);

// "4 s", "3 min", "2 h 5 min".
std::string RoughDuration(double seconds);

// One server's answer about one job.
struct JobView {
  int32_t server = 0;
  absl::Status status;  // why there is no answer; the rest is empty then
  std::vector<wire::WorkerStanding> workers;
  std::vector<wire::WaitingCall> waiting;
};

// Whether a server with this status is there, and does not let the caller ask: its part of the
// job is unknown, and nothing is wrong with the job.
bool IsRefusal(const absl::Status& status);

// Every worker once, by ordinal: as the server that heard it last describes it, with the highest
// step that any server knows.
std::vector<wire::WorkerStanding> MergedWorkers(absl::Span<const JobView> servers);

// Progress of the job: that of the worker that has most left to do. nullopt: no worker tells.
struct JobProgress {
  double share_done = 0;  // 0 to 1
  std::optional<double> seconds_left;
};
std::optional<JobProgress> ProgressOf(absl::Span<const wire::WorkerStanding> workers);

enum class JobPhase { kNoWorkers, kStarting, kTraining, kWaiting, kStalled, kFinished, kStopped };
absl::string_view JobPhaseName(JobPhase phase);  // "no workers", "starting", "training", …

struct JobState {
  JobPhase phase = JobPhase::kNoWorkers;
  std::string details;            // "ps:1 does not answer worker:0, worker:1"
  std::optional<double> seconds;  // how long the phase has lasted, where the servers know

  // "Stalled 4 s: ps:1 does not answer worker:0, worker:1".
  std::string Sentence() const;
};

JobState StateOf(absl::Span<const JobView> servers);

}  // namespace cairn
