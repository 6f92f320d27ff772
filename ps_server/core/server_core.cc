#include "ps_server/core/server_core.h"

#include <utility>

namespace cairn {

ServerCore::ServerCore(const EngineOptions& options, std::unique_ptr<StripeStore> stripe_store)
    : store(std::move(stripe_store)),
      info(options, store->boot_count()),
      budget(options.memory_budget_bytes, options.memory_wait, &waits),
      registry(info.name, {.jobs = options.max_jobs, .workers = options.max_workers}, budget,
               {.coordinator = info.index() == 0, .applied_is_durable = info.applied_is_durable()}),
      moves(waits),
      flusher(*store, registry, info.options, &waits),
      evictor(*store, registry, budget, flusher, info.options),
      row_expirer(*store, registry, budget, flusher, evictor, info.options),
      members(info.index(), options.server_count),
      rows{info.name, *store, budget, flusher, counters, staleness, options.not_finite},
      order{info.name, flusher, waits, counters},
      admission(info, registry, members, order, *store),
      catalog(info, *store, registry, flusher, evictor, moves, members, waits),
      statistics{info,     *store, budget,    registry, flusher,
                 counters, rpcs,   staleness, waits,    members} {
  flusher.SetUpkeep([this] { moves.FreeIdlePieces(info.options.lease); });
}

}  // namespace cairn
