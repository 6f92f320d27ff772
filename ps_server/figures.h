// What one server knows of itself at a moment, for metrics and the status page.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/metrics/slotted.h"
#include "ps_server/rpc_meter.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

struct JobFigures {
  std::string name;
  std::string consistency;  // "async", "ssp, …": ConsistencyText
  int64_t variables = 0;
  int64_t rows = 0;
  int64_t memory_bytes = 0;
  int64_t dirty_stripes = 0;
  int64_t closed_step = 0;  // of a synchronous job
  wire::WhyReply why;       // workers, and calls that wait for others

  // Pushes of workers that count, applied and not durable yet.
  int64_t DurableLag() const;
};

struct EngineFigures {
  std::string durability;
  double uptime_seconds = 0;
  double lease_seconds = 0;
  absl::Status failure;  // why it refuses pushes
  std::map<std::string, int64_t> counters;
  std::map<std::string, int64_t> waiting_calls;  // by what they wait for
  int64_t memory_used_bytes = 0;
  int64_t memory_budget_bytes = 0;
  std::vector<JobFigures> jobs;  // by name
  std::vector<RpcFigure> rpcs;
  int64_t rpcs_running = 0;
  Histogram::Reading staleness;
  Histogram::Reading epoch_seconds;
  double seconds_since_epoch = -1;  // -1: none ended yet
  std::vector<StoreFigure> store;
  int64_t disk_bytes = 0;
};

struct ServerCore;

// Takes no lock for longer than one job's lists need.
EngineFigures FiguresOf(const ServerCore& core);

// "p99" and so on of pushes to any job.
wire::Staleness StalenessOf(const ServerCore& core);

}  // namespace cairn
