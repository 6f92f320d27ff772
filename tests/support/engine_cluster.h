// Real servers in the test process: engines with a directory each, each behind a listener.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/net/listener.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"
#include "worker/client/ps_client.h"

namespace cairn {

class Engine;

namespace test {

// Aborts if a server cannot be started. Thread safety: none, except for the servers themselves.
class EngineCluster {
 public:
  // `memory_budget_bytes` is for each server; 0: EngineOptions' default.
  explicit EngineCluster(int32_t servers, Durability durability = Durability::kSnapshot,
                         int64_t memory_budget_bytes = 0,
                         absl::Duration snapshot_interval = EngineOptions().snapshot_interval);
  ~EngineCluster();

  // Writes everything, ends the server, and restarts it on the same port.
  void Restart(int32_t server);
  // Simulates a kill: restarts the server with the current contents of its disk. No writes may run.
  void Crash(int32_t server);
  // Adds a server that only the server itself knows of.
  int32_t Add();
  void Stop(int32_t server);

  std::string address(int32_t server) const { return servers_[server].listener->address(); }
  wire::ParameterServerIf& service(int32_t server);

  absl::StatusOr<std::unique_ptr<PsClient>> Connect(ClientOptions options, bool in_process,
                                                    Deadline deadline);

 private:
  struct Server {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Listener> listener;  // destroyed before its engine
  };

  std::string DirectoryOf(int32_t server) const;
  void Start(int32_t server, int32_t port);

  const Durability durability_;
  const int64_t memory_budget_bytes_;
  const absl::Duration snapshot_interval_;
  const TempDir folder_;
  std::vector<Server> servers_;
};

}  // namespace test
}  // namespace cairn
