// The state of a job and of its workers, derived from the servers' replies. Status pages, metrics
// and cairnctl share this rule, so that they agree.
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

// Three missed heartbeats in a row. A stopped worker shows on the status page within 2 s.
inline constexpr double kMissingSeconds = 3.5 * kHeartbeatSeconds;

// Whether the worker should call: it has joined, and has neither left nor been lost.
bool IsExpectedToCall(const wire::WorkerStanding& worker);
// Lost, or expected to call but silent.
bool IsMissing(const wire::WorkerStanding& worker);
// Expected to call and not missing.
bool IsHeard(const wire::WorkerStanding& worker);

// The worker's own name, "worker:1", or "worker 1" for clients that send no name.
std::string TaskOf(const wire::WorkerStanding& worker);

// Mean of the recent losses of workers that are not missing; nullopt: none has sent a loss.
std::optional<double> MeanLoss(absl::Span<const wire::WorkerStanding> workers);

// "4 s", "3 min", "2 h 5 min".
std::string RoughDuration(double seconds);

// One server's reply about one job.
struct JobView {
  int32_t server = 0;
  absl::Status status;  // if it is not OK, there was no reply and the rest is empty
  std::vector<wire::WorkerStanding> workers;
  std::vector<wire::WaitingCall> waiting;
};

// Whether a server with this status is running but does not permit the caller to ask. Its part of
// the job's state is unknown, which is not a fault of the job.
bool IsRefusal(const absl::Status& status);

// Every worker once, by ordinal: the description of the server that heard from it last, with the
// highest step that any server knows.
std::vector<wire::WorkerStanding> MergedWorkers(absl::Span<const JobView> servers);

// The job's progress: that of the worker with the most work left. nullopt: no worker reports
// progress.
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
  std::optional<double> seconds;  // how long the phase has lasted, if the servers know

  // "Stalled 4 s: ps:1 does not answer worker:0, worker:1".
  std::string Sentence() const;
};

JobState StateOf(absl::Span<const JobView> servers);

}  // namespace cairn
