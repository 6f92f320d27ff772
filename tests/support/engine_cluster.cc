#include "tests/support/engine_cluster.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps_server/engine/engine.h"
#include "tests/support/addresses.h"
#include "tests/support/copy_store.h"

namespace cairn::test {

EngineCluster::EngineCluster(int32_t servers, Durability durability, int64_t memory_budget_bytes,
                             absl::Duration snapshot_interval)
    : durability_(durability),
      memory_budget_bytes_(memory_budget_bytes),
      snapshot_interval_(snapshot_interval),
      servers_(static_cast<size_t>(servers)) {
  for (int32_t s = 0; s < servers; ++s) Start(s, 0);
}

EngineCluster::~EngineCluster() = default;

void EngineCluster::Restart(int32_t server) {
  const std::string address = this->address(server);
  Stop(server);
  Start(server, PortOf(address));
}

void EngineCluster::Crash(int32_t server) {
  namespace fs = std::filesystem;
  const std::string address = this->address(server);
  const std::string now = DirectoryOf(server);
  CopyStore(now, now + ".kept");
  Stop(server);
  fs::remove_all(now);
  fs::rename(now + ".kept", now);
  Start(server, PortOf(address));
}

int32_t EngineCluster::Add() {
  servers_.emplace_back();
  Start(static_cast<int32_t>(servers_.size()) - 1, 0);
  return static_cast<int32_t>(servers_.size()) - 1;
}

void EngineCluster::Stop(int32_t server) {
  servers_[server].listener.reset();  // its threads call the engine
  servers_[server].engine.reset();
}

wire::ParameterServerIf& EngineCluster::service(int32_t server) {
  return servers_[server].engine->service();
}

absl::StatusOr<std::unique_ptr<PsClient>> EngineCluster::Connect(ClientOptions options,
                                                                 bool in_process,
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

std::string EngineCluster::DirectoryOf(int32_t server) const {
  return folder_.Join(absl::StrCat("ps", server));
}

void EngineCluster::Start(int32_t server, int32_t port) {
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

}  // namespace cairn::test
