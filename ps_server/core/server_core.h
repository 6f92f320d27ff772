// Owns the parts of one server. Calls do not take this object: each takes only the parts that it
// uses.
#pragma once

#include <memory>

#include "common/metrics/slotted.h"
#include "ps_server/base/counters.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/base/rpc_meter.h"
#include "ps_server/base/server_info.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/core/admission.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "ps_server/core/statistics.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/moves/members.h"
#include "ps_server/moves/moves.h"
#include "ps_server/persistence/evictor.h"
#include "ps_server/persistence/flusher.h"
#include "ps_server/persistence/row_expirer.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: as its members.
struct ServerCore {
  ServerCore(const EngineOptions& options, std::unique_ptr<StripeStore> stripe_store);

  const std::unique_ptr<StripeStore> store;
  const ServerInfo info;
  WaitBoard waits;
  MemoryBudget budget;
  Registry registry;
  Moves moves;
  Flusher flusher;
  Evictor evictor;
  RowExpirer row_expirer;
  Counters counters;
  RpcMeter rpcs;
  Histogram staleness{kStalenessBounds};  // of each push to a shard
  Members members;

  // The subsystems that calls take, each made of parts above.
  const RowAccess rows;
  UpdateOrder order;
  Admission admission;
  JobCatalog catalog;
  const StatisticsReader statistics;
};

}  // namespace cairn
