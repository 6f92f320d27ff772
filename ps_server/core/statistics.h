// The current statistics of one server, for metrics and the status page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/slotted.h"
#include "ps_server/base/counters.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/base/rpc_meter.h"
#include "ps_server/base/server_info.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/rows/row_census.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Which statistics to read. Samples are taken once a second and pages are read more often, so both
// leave out expensive statistics.
enum class StatisticsDetail : int {
  kSample,   // no variables, `rpcs`, `store`, disk and waits
  kMetrics,  // everything except the lists of waiting calls; `waiting_calls` counts them
  kPage,     // no `rpcs`, `store`, `waiting_calls` and dirty stripes
};

// Limit on the waiting calls that are listed for one job: those that have waited longest.
inline constexpr size_t kMaxWaitsShown = 100;

struct JobStatistics {
  std::string name;
  std::string consistency;  // "async", "ssp, …": ConsistencyText
  int64_t variables = 0;
  int64_t rows = 0;
  int64_t rows_in_memory = 0;
  wire::RowFigures row_counts;  // of tables, since the start
  RowCensus census;             // of tables; all 0 in a sample
  int64_t memory_bytes = 0;
  int64_t dirty_stripes = 0;
  std::vector<wire::WorkerStanding> workers;
  std::optional<absl::Duration> since_checkpoint;  // nullopt: none since the start
  int64_t waiting_count = 0;
  std::vector<wire::WaitingCall> waiting;

  // The number of pushes, by all workers, that are applied and not durable yet.
  int64_t DurableLag() const;
};

struct EngineStatistics {
  int64_t boot_id = 0;  // identifies this start of the server
  std::string durability;
  absl::Duration uptime;
  absl::Duration lease;
  absl::Status failure;  // why the server rejects pushes; OK: it accepts them
  std::map<std::string, int64_t> counters;
  std::map<std::string, int64_t> waiting_calls;  // by WaitingCall.waits_for
  int64_t memory_used_bytes = 0;
  int64_t memory_budget_bytes = 0;
  std::vector<JobStatistics> jobs;  // by name
  std::vector<RpcStatistics> rpcs;
  int64_t rpcs_running = 0;
  Histogram::Reading staleness;
  Histogram::Reading epoch_seconds;
  std::optional<absl::Duration> since_epoch;  // nullopt: none has ended yet
  std::vector<StoreStatistic> store;
  int64_t disk_bytes = 0;
  wire::Members members;  // for a page, at ps:0: the servers that have joined and left

  // Time since the last snapshot ended; if none has, since the start of the server.
  absl::Duration EpochAge() const { return since_epoch.value_or(uptime); }
};

class Flusher;
class Members;
class Registry;

// Gathers the statistics of one server from its parts.
// Thread safety: every method may be called from several threads at once. No method holds a lock
// for longer than it takes to copy the lists of one job.
struct StatisticsReader {
  EngineStatistics Read(StatisticsDetail detail) const;
  // Fills in the fields about the whole server; the expensive ones only if `with_server` is set.
  void Fill(bool with_server, wire::DescribeReply& reply) const;

  const ServerInfo& info;
  const StripeStore& store;
  const MemoryBudget& budget;
  const Registry& registry;
  const Flusher& flusher;
  const Counters& counters;
  const RpcMeter& rpcs;
  const Histogram& staleness;
  const WaitBoard& waits;
  const Members& members;
};

// The mean, maximum and quantiles of the staleness of pushes.
wire::Staleness StalenessOf(const Histogram::Reading& reading);

}  // namespace cairn
