// The status page's data, /status.json. README.md in this folder describes the fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ps_server/figures.h"
#include "ps_server/listener.h"
#include "ps_server/monitor/history.h"

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

// `state`: "opening", "serving", "stopping". `engine` is null but while it serves.
std::string StatusJson(const ClusterPlace& place, const std::string& state,
                       const EngineFigures* engine, const ListenerFigures& listener,
                       const std::vector<Sample>& samples, int64_t last_sample);

}  // namespace cairn
