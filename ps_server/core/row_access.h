// What a call that reads or updates rows uses of its server.
#pragma once

#include "absl/strings/string_view.h"
#include "common/metrics/slotted.h"
#include "ps_server/base/counters.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/persistence/flusher.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: that of its members.
struct RowAccess {
  const absl::string_view server;  // "ps:0", for messages
  const StripeStore& store;        // of cold rows
  MemoryBudget& budget;
  Flusher& flusher;  // makes updates durable, and knows whether the disk has failed
  Counters& counters;
  Histogram& staleness;  // of each push to a shard
  const NotFinitePolicy not_finite;

  // -1: unknown.
  void NoteStaleness(int64_t updates) const {
    if (updates >= 0) staleness.Observe(static_cast<double>(updates));
  }
};

}  // namespace cairn
