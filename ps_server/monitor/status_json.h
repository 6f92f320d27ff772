// The status page's data, /status.json. README.md in this folder describes the fields.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps_server/core/figures.h"
#include "ps_server/monitor/history.h"
#include "ps_server/monitor/peers.h"
#include "ps_server/net/listener_options.h"
#include "thrift/job_state.h"

namespace cairn {

// Where the server is in its cluster.
struct ClusterPlace {
  int32_t server_index = 0;
  std::vector<std::string> servers;  // addresses, by index
};

// Jobs in one answer, and workers of all of them together: those with workers that are there come
// first. The answer has the counts of all.
inline constexpr size_t kMostJobsShown = 64;
inline constexpr size_t kMostWorkersShown = 500;
// Workers that do not reach a server.
inline constexpr size_t kMostNamed = 3;

// All of one moment.
struct StatusReading {
  ClusterPlace place;
  std::string state;                    // "opening", "serving", "stopping"
  std::optional<EngineFigures> engine;  // while it serves
  ListenerFigures listener;
  std::vector<Sample> samples;
  int64_t last_sample = 0;
  std::string job;  // the one that is looked at; empty or unknown here: the first that is shown
  // Of the other servers about `job`; null: they have not been asked yet.
  std::shared_ptr<const std::vector<PeerAnswer>> peers;
};

// The job that a page which names none looks at: the first in the order of the answer; empty: there
// is none.
std::string FirstJob(const EngineFigures& engine);
// What every server says of `reading.job`.
std::vector<JobView> JobViewsOf(const StatusReading& reading);

// `job_state`: of reading.job, with how long a stall has lasted where that is known.
std::string StatusJson(const StatusReading& reading, const JobState& job_state);

}  // namespace cairn
