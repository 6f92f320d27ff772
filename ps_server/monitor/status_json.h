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

// Workers and waiting calls of one job in one answer; the text says how many there are more.
inline constexpr size_t kMostWorkersShown = 500;
inline constexpr size_t kMostWaitsShown = 100;

// `state`: "opening", "serving", "stopping". `engine` is null but while it serves.
std::string StatusJson(const ClusterPlace& place, const std::string& state,
                       const EngineFigures* engine, const ListenerFigures& listener,
                       const std::vector<Sample>& samples, int64_t last_sample);

}  // namespace cairn
