// A ParameterServerStrategy with real servers in the test's own process.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/engine_cluster.h"
#include "worker/strategy/parameter_server_strategy.h"

namespace cairn::test {

inline ClusterSpec ClusterOf(int32_t workers, int32_t servers) {
  const auto tasks = [](const char* job, int32_t count) {
    std::vector<std::string> addresses;
    for (int32_t i = 0; i < count; ++i) addresses.push_back(absl::StrCat(job, i, ":1"));
    return addresses;
  };
  return ClusterSpec::FromLists(
      {{"chief", {"chief:1"}}, {"worker", tasks("worker", workers)}, {"ps", tasks("ps", servers)}});
}

// The strategy of worker `worker` of `job`, over sockets.
inline std::unique_ptr<ParameterServerStrategy> ConnectStrategy(
    EngineCluster& servers, int32_t server_count, const std::string& job, int32_t worker,
    int32_t workers, ParameterServerOptions options = {}) {
  ClientOptions client;
  client.job = job;
  client.worker = worker;
  client.task = absl::StrCat("worker:", worker);
  client.ps_wait = absl::Milliseconds(500);
  std::shared_ptr<PsClient> connected =
      servers.Connect(client, /*in_process=*/false, Deadline::In(absl::Seconds(30))).value();
  return ParameterServerStrategy::Create(ClusterOf(workers, server_count),
                                         HostOnServers(std::move(connected)), std::move(options))
      .value();
}

}  // namespace cairn::test
