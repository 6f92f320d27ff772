#include "tests/ps_server/sync_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ps_server/core/statistics.h"
#include "ps_server/engine/engine.h"
#include "tests/support/copy_store.h"

namespace cairn {

SyncCluster::SyncCluster(int32_t servers, absl::Duration lease) : lease_(lease) {
  for (int32_t s = 0; s < servers; ++s) {
    folders_.push_back(folder_.Join(absl::StrCat("ps", s)));
    engines_.push_back(nullptr);
  }
  for (int32_t s = 0; s < servers; ++s) Start(s);
}

SyncCluster::~SyncCluster() = default;

wire::ParameterServerIf& SyncCluster::service(int32_t server) {
  return engines_[server]->service();
}

int64_t SyncCluster::Syncs(int32_t server) {
  for (const StoreStatistic& statistic :
       engines_[server]->ReadStatistics(StatisticsDetail::kMetrics).store) {
    if (statistic.name == "rocksdb_wal_syncs_total") return static_cast<int64_t>(statistic.value);
  }
  return -1;
}

void SyncCluster::Crash(int32_t server) {
  const std::string copy = folder_.Join(absl::StrCat("copy", copies_++));
  test::CopyStore(folders_[server], copy);
  folders_[server] = copy;
  crashed_.push_back(std::move(engines_[server]));
  Start(server);
}

void SyncCluster::Start(int32_t server) {
  EngineOptions options;
  options.directory = folders_[server];
  options.server_index = server;
  options.server_count = size();
  options.snapshot_interval = absl::Hours(1);
  options.lease = lease_;
  engines_[server] = Engine::Open(options).value();
}

}  // namespace cairn
