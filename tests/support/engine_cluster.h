// Real servers in the test process: engines with a directory each, each behind a listener.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/copy_store.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

// Aborts if a server cannot be started. Thread safety: none, except for the servers themselves.
class EngineCluster {
 public:
  // `memory_budget_bytes` is for each server; 0: EngineOptions' default.
  explicit EngineCluster(int32_t servers, Durability durability = Durability::kSnapshot,
                         int64_t memory_budget_bytes = 0,
                         absl::Duration snapshot_interval = EngineOptions().snapshot_interval)
      : durability_(durability),
        memory_budget_bytes_(memory_budget_bytes),
        snapshot_interval_(snapshot_interval),
        servers_(static_cast<size_t>(servers)) {
    for (int32_t s = 0; s < servers; ++s) Start(s, 0);
  }

  // Writes everything, ends the server, and restarts it on the same port.
  void Restart(int32_t server) {
    const std::string address = this->address(server);
    Stop(server);
    Start(server, PortOf(address));
  }
  // Simulates a kill: restarts the server with the current contents of its disk. No writes may run.
  void Crash(int32_t server) {
    namespace fs = std::filesystem;
    const std::string address = this->address(server);
    const std::string now = DirectoryOf(server);
    CopyStore(now, now + ".kept");
    Stop(server);
    fs::remove_all(now);
    fs::rename(now + ".kept", now);
    Start(server, PortOf(address));
  }
  // Adds a server that only the server itself knows of.
  int32_t Add() {
    servers_.emplace_back();
    Start(static_cast<int32_t>(servers_.size()) - 1, 0);
    return static_cast<int32_t>(servers_.size()) - 1;
  }
  void Stop(int32_t server) {
    servers_[server].listener.reset();  // its threads call the engine
    servers_[server].engine.reset();
  }

  std::string address(int32_t server) const { return servers_[server].listener->address(); }
  Engine& engine(int32_t server) { return *servers_[server].engine; }

  absl::StatusOr<std::unique_ptr<PsClient>> Connect(ClientOptions options, bool in_process,
                                                    Deadline deadline) {
    if (in_process) {
      std::vector<wire::ParameterServerIf*> services;
      for (Server& server : servers_) services.push_back(&server.engine->service());
      return PsClient::ConnectInProcess(options, services, deadline);
    }
    for (size_t s = options.servers.size(); s < servers_.size(); ++s) {
      options.servers.push_back(address(static_cast<int32_t>(s)));
    }
    return PsClient::Connect(options, deadline);
  }

 private:
  struct Server {
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Listener> listener;  // destroyed before its engine
  };

  std::string DirectoryOf(int32_t server) const { return folder_.Join(absl::StrCat("ps", server)); }

  void Start(int32_t server, int32_t port) {
    EngineOptions options;
    options.directory = DirectoryOf(server);
    options.server_index = server;
    options.server_count = static_cast<int32_t>(servers_.size());
    options.durability = durability_;
    options.snapshot_interval = snapshot_interval_;
    if (memory_budget_bytes_ > 0) options.memory_budget_bytes = memory_budget_bytes_;
    Server& started = servers_[server];
    started.engine = Engine::Open(options).value();
    ListenerOptions listening;
    listening.port = port;
    started.listener = Listener::Start(*started.engine, OnOwnAddress(listening)).value();
  }

  const Durability durability_;
  const int64_t memory_budget_bytes_;
  const absl::Duration snapshot_interval_;
  const TempDir folder_;
  std::vector<Server> servers_;
};

}  // namespace cairn::test
