// Builds /status.json, the data of the status page. README.md describes its fields.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps_server/core/statistics.h"
#include "ps_server/monitor/history.h"
#include "ps_server/monitor/peers.h"
#include "ps_server/net/listener_options.h"
#include "thrift/job_state.h"

namespace cairn {

// The server's position in its cluster.
struct ClusterPlace {
  int32_t server_index = 0;
  std::vector<std::string> servers;  // addresses, by index
};

// Limits on the jobs in one answer, and on the workers of all of them together. Jobs with live
// workers come first. The answer also has the total counts.
inline constexpr size_t kMaxJobsShown = 64;
inline constexpr size_t kMaxWorkersShown = 500;
// Limit on the workers that are named for a server which they cannot reach.
inline constexpr size_t kMaxNamed = 3;

// The input of one answer.
struct StatusReading {
  ClusterPlace place;
  std::string state;                       // "opening", "serving", "stopping"
  std::optional<EngineStatistics> engine;  // nullopt: the server does not serve
  ListenerStatistics listener;
  std::vector<Sample> samples;
  int64_t last_sample = 0;
  std::string job;  // the selected job; empty or unknown here: the first in the answer
  // Answers of the other servers about `job`; null: they have not been asked yet.
  std::shared_ptr<const std::vector<PeerAnswer>> peers;
};

// The job that a page shows if its request names none: the first in the answer; empty: no job.
std::string FirstJob(const EngineStatistics& engine);
// The views that all servers have of `reading.job`.
std::vector<JobView> JobViewsOf(const StatusReading& reading);

// `job_state`: of reading.job, with the duration of a stall if it is known.
std::string StatusJson(const StatusReading& reading, const JobState& job_state);

}  // namespace cairn
