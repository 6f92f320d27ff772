#include "ps_server/calls/map_changes.h"

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/moves/arriving_rows.h"
#include "ps_server/moves/outgoing_rows.h"
#include "ps_server/persistence/variable_load.h"

namespace cairn {

absl::Status TakeMap(JobCatalog& catalog, Job& job, Variable& variable, const VariableSpec& map,
                     ArrivingRows* arriving, OutgoingRows* outgoing) {
  Variable* const comes = arriving == nullptr ? nullptr : arriving->variable().get();
  // An error, also for lack of memory, makes the server refuse updates: stripes may have been
  // handed over, and the next snapshot would lack their updates.
  const auto take = [&]() -> absl::Status {
    const bool none_before = variable.shards().empty();
    std::vector<ShardRecord> shards;
    if (comes != nullptr) shards = arriving->shards();
    const std::shared_ptr<Variable> next =
        Variable::WithMap(variable, map, catalog.info().index(), comes);
    if (next->table() != nullptr) {
      // A table has one update count for all of its buckets here: it adopts the source's count only
      // if it had no buckets here before.
      if (none_before && !shards.empty()) next->table()->TakeOver(shards.front());
      if (!none_before) shards.clear();
    }
    std::vector<StripeId> removed;
    if (outgoing != nullptr) {
      removed = outgoing->ids();
      next->NoteHandedOver();
    }
    const auto changed = variable.shards();
    auto variables = job.VariablesWith({next});
    CAIRN_CRASH_POINT("move: before the map");
    RETURN_IF_ERROR(catalog.store().PutMap(next->record(), shards, removed));
    CAIRN_CRASH_POINT("move: map written");
    for (HostedShard* shard : changed) shard->dirty().DropHandedOver();
    job.SetVariables(std::move(variables));
    return absl::OkStatus();
  };
  return catalog.WriteRecord(job, [&] { return CatchBadAlloc(take); });
}

absl::Status TakeArrived(JobCatalog& catalog, Moves& moves, Job& job, absl::string_view variable,
                         int64_t version) {
  const std::shared_ptr<Move> move = moves.Find(job.name(), variable);
  if (move == nullptr || move->arriving == nullptr || move->map.map_version != version) {
    return absl::OkStatus();
  }
  const TracedLock lock = moves.Lock(*move);
  if (!move->ready || move->ended) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   catalog.TakeSlot(absl::StrCat("rows of \"", variable, "\" that arrive")));
  const auto variables = job.variables();
  const auto found = variables->find(variable);
  // Another map has replaced the one that these rows follow, so they do not belong to this server.
  if (found == variables->end() || found->second->spec().map_version + 1 != move->map.map_version) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(TakeMap(catalog, job, *found->second, move->map, move->arriving.get(), nullptr));
  move->ended = true;
  moves.Erase(job.name(), variable);
  LOG(INFO) << catalog.info().name << " has taken rows of \"" << variable << "\" of job "
            << job.name() << ", by map version " << move->map.map_version;
  return absl::OkStatus();
}

absl::Status TimelineEnded(const JobCatalog& catalog, const Job& job, const absl::Status& status) {
  return WithReason(
      FailedPrecondition(catalog.info().name, ": job ", job.name(), " began at ",
                         TimelineText(std::abs(job.timeline())),
                         ", after the caller described it: it was dropped or restored; describe it "
                         "again (",
                         status.message(), ")"),
      wire::ErrorReason::TIMELINE_ENDED);
}

absl::Status LoadArrived(JobCatalog& catalog, Moves& moves, MemoryBudget& budget,
                         const Variable& variable, const VariableSpec& map) {
  ASSIGN_OR_RETURN(std::unique_ptr<ArrivingRows> rows,
                   ArrivingRows::Make(variable, map, catalog.info().index(), budget));
  RETURN_IF_ERROR(LoadVariables(catalog.store(), budget, {rows->variable()}));
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> records, catalog.store().Shards());
  for (const ShardRecord& record : records) {
    if (record.variable != variable.id()) continue;
    for (HostedShard* shard : rows->variable()->shards()) {
      if (shard->index() == static_cast<int32_t>(record.shard)) shard->TakeOver(record);
    }
  }
  auto move = std::make_shared<Move>(map, /*begun_as=*/0, nullptr, std::move(rows));
  move->ready = true;
  moves.Put(variable.job(), variable.spec().name, std::move(move));
  return absl::OkStatus();
}

}  // namespace cairn
