#include "ps_server/core/server_core.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"
#include "ps_server/jobs/order_rules.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// The boot count orders the starts of a directory; the random bits tell directories apart.
int64_t MakeBootId(int64_t boot_count) {
  constexpr int kRandomBits = 32;
  std::random_device random;
  const int64_t count = boot_count & std::numeric_limits<int32_t>::max();
  return count << kRandomBits | static_cast<int64_t>(random() & 0xffffffffu);
}

std::shared_ptr<const VariableMap> NoVariables() {
  static const auto* const none = new std::shared_ptr<const VariableMap>(new VariableMap());
  return *none;
}

}  // namespace

ServerCore::ServerCore(const EngineOptions& engine_options,
                       std::unique_ptr<StripeStore> stripe_store)
    : options(engine_options),
      name(absl::StrCat("ps:", engine_options.server_index)),
      store(std::move(stripe_store)),
      boot_id(MakeBootId(store->boot_count())),
      started(MonotonicNow()),
      budget(engine_options.memory_budget_bytes, engine_options.memory_wait, &waits),
      registry(name, {.jobs = options.max_jobs, .workers = options.max_workers}, budget,
               {.coordinator = options.server_index == 0,
                .applied_is_durable = options.durability == Durability::kOff}),
      flusher(*store, registry, options, &waits),
      evictor(*store, registry, budget, flusher, options),
      row_expirer(*store, registry, budget, flusher, evictor, options),
      members(options.server_index, options.server_count),
      rows{name, *store, budget, flusher, counters, staleness, options.not_finite},
      order{name, flusher, waits, counters} {}

StoreMemory StoreMemoryOf(int64_t memory_budget_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t cache = std::clamp(memory_budget_bytes / 64, kMiB, 32 * kMiB);
  const int64_t buffer = std::clamp(memory_budget_bytes / 32, kMiB, 64 * kMiB);
  // RocksDB fills one write buffer while it writes out another.
  return {.block_cache_bytes = static_cast<size_t>(cache),
          .write_buffer_bytes = static_cast<size_t>(buffer),
          .total_bytes = cache + 2 * buffer};
}

absl::StatusOr<Admitted> Admit(ServerCore& core, const wire::Caller& caller) {
  if (ExpectsAnotherBoot(caller.boot_id, core.boot_id)) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          core.name, " has boot id ", core.boot_id, ", the caller expects ",
                          caller.boot_id, ": it was restarted, say hello again")),
                      wire::ErrorReason::REBOOTED);
  }
  Admitted admitted{.job = core.registry.Find(caller.job)};
  admitted.variables = admitted.job == nullptr ? NoVariables() : admitted.job->variables();
  if (caller.worker < 0) return admitted;
  if (admitted.job != nullptr) admitted.session = admitted.job->FindSession(caller.worker);
  if (admitted.session == nullptr) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(core.name, " knows no worker ", caller.worker,
                                                   " of job ", caller.job, ": say hello first")),
        wire::ErrorReason::REBOOTED);
  }
  absl::Status status = CheckIncarnation(core.order, *admitted.session, caller.incarnation);
  if (!status.ok()) return status;
  if (admitted.session->stopped()) {
    status = admitted.job->cohort().Check(*admitted.session);
    if (!status.ok()) return Annotate(status, core.name);
  }
  if (caller.__isset.vitals) {
    admitted.session->Beat(core.options.lease, caller.vitals);
  } else {
    admitted.session->Renew(core.options.lease);
  }
  return admitted;
}

absl::StatusOr<ExclusiveSlot::Held> TakeCreateSlot(ServerCore& core, absl::string_view what) {
  const WaitBoard::Waiting waiting(&core.waits, "create",
                                   "another create_variables, drop_job or restore to end");
  return core.create_slot.Take(absl::StrCat(core.name, ": ", what), core.options.disk_wait);
}

void FillState(const ServerCore& core, Job* job, const Session* session, wire::ServerState& state) {
  state.boot_id = core.boot_id;
  if (const int64_t version = core.members.version(); version > 0) {
    state.__set_members_version(version);
  }
  if (job != nullptr) job->steps().Fill(state);
  if (session != nullptr) session->Fill(state);
}

}  // namespace cairn
