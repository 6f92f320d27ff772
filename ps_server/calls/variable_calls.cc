#include "ps_server/calls/variable_calls.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/variables/spec_difference.h"
#include "common/variables/variable_map.h"
#include "ps_server/calls/map_changes.h"
#include "ps_server/core/figures.h"
#include "ps_server/core/request_items.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::Duration kMovingRetry = absl::Milliseconds(50);

absl::Status ConflictError(const ServerCore& core, const VariableSpec& have,
                           const VariableSpec& want, absl::string_view advice) {
  return WithReason(
      absl::AlreadyExistsError(absl::StrCat("create \"", want.name, "\" on ", core.name, ": ",
                                            SpecDifferenceText(have, want), advice)),
      wire::ErrorReason::SPEC_CONFLICT);
}

// Whether both are the same variable before and after its rows moved: whoever has the older map is
// told when it names a row.
bool HasMoved(const VariableSpec& have, const VariableSpec& want) {
  return have.map_version != want.map_version && SameButPlaces(have, want);
}

// Optimizers whose arguments are to change.
struct OptimizerChange {
  std::shared_ptr<Variable> variable;
  OptimizerConfig optimizer;
};

struct Wanted {
  std::vector<VariableSpec> fresh;  // not there yet, each once
  std::vector<OptimizerChange> changes;
};

absl::StatusOr<Wanted> Sort(const ServerCore& core, const VariableMap& variables,
                            const std::vector<wire::VariableSpec>& specs, bool may_change) {
  Wanted wanted;
  std::map<std::string, size_t> index;
  for (const wire::VariableSpec& wire : specs) {
    absl::StatusOr<VariableSpec> spec =
        FromWire(wire, core.options.server_index, core.most_servers());
    if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("create on ", core.name));
    const auto there = variables.find(spec->name);
    const auto earlier = index.find(spec->name);
    const VariableSpec* have = there != variables.end() ? &there->second->spec()
                               : earlier != index.end() ? &wanted.fresh[earlier->second]
                                                        : nullptr;
    if (have == nullptr) {
      index.emplace(spec->name, wanted.fresh.size());
      wanted.fresh.push_back(*std::move(spec));
      continue;
    }
    if (*have == *spec || HasMoved(*have, *spec)) continue;
    VariableSpec like = *spec;
    like.optimizer = have->optimizer;
    const bool arguments_alone =
        (*have == like || HasMoved(*have, like)) && MayFollow(have->optimizer, spec->optimizer);
    if (!may_change || !arguments_alone || there == variables.end()) {
      return ConflictError(core, *have, *spec, ": use that, another name, or drop the job");
    }
    wanted.changes.push_back({there->second, spec->optimizer});
  }
  return wanted;
}

// kAlreadyExists: another live worker counts on the arguments as they are.
absl::Status CheckNobodyCountsOn(const ServerCore& core, const Job& job, int32_t worker,
                                 const OptimizerChange& change) {
  for (const auto& session : job.sessions()) {
    const bool counts = session->leased() && !session->left() && session->counts_on_specs();
    if (!counts || session->worker() == worker) continue;
    VariableSpec want = change.variable->spec();
    want.optimizer = change.optimizer;
    return ConflictError(
        core, change.variable->spec(), want,
        absl::StrCat("; worker ", session->worker(), " (", session->origin(),
                     ") trains with that, last seen ",
                     absl::FormatDuration(absl::Trunc(session->SinceSeen(), absl::Milliseconds(1))),
                     " ago: end it first, or wait until its lease of ",
                     absl::FormatDuration(core.options.lease), " has ended"));
  }
  return absl::OkStatus();
}

// create_slot held. A crash between two leaves what the same call, repeated, finishes.
absl::Status ChangeOptimizers(ServerCore& core, Job& job, int32_t worker,
                              absl::Span<const OptimizerChange> changes) {
  for (const OptimizerChange& change : changes) {
    RETURN_IF_ERROR(CheckNobodyCountsOn(core, job, worker, change));
    const std::string& name = change.variable->spec().name;
    if (core.moves.Find(job.name(), name) == nullptr) continue;
    return BusyError(absl::StrCat("create \"", name, "\" on ", core.name,
                                  ": its rows are moving, and its optimizer is to change"),
                     kMovingRetry);
  }
  for (const OptimizerChange& change : changes) {
    Variable& before = *change.variable;
    RETURN_IF_ERROR(WriteRecord(core, job, [&]() -> absl::Status {
      const std::string what = OptimizerChangeText(before.spec().optimizer, change.optimizer);
      ASSIGN_OR_RETURN(
          const std::shared_ptr<Variable> next,
          Variable::WithOptimizer(before, change.optimizer, core.options.server_index));
      auto variables = job.VariablesWith({next});
      RETURN_IF_ERROR(core.store->PutMap(next->record(), {}, {}));
      job.SetVariables(std::move(variables));
      LOG(INFO) << core.name << ": optimizer of \"" << before.spec().name << "\" of job "
                << job.name() << ": " << what;
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

// Without room for calls beside them `specs`, which are new, would be of no use: no push would fit.
absl::Status CheckRoomForCalls(const ServerCore& core, absl::Span<const VariableSpec> specs) {
  int64_t there = StoreMemoryOf(core.budget.limit_bytes()).total_bytes;
  for (const std::shared_ptr<Job>& job : core.registry.jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) there += variable->fixed_bytes();
  }
  const int64_t most = core.budget.variables_bytes();
  int64_t bytes = 0;
  for (const VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const int64_t more, Variable::FixedBytes(spec, core.options.server_index));
    bytes += more;
    if (bytes <= most - there) continue;
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "create on ", core.name, ": variable \"", spec.name, "\" needs ", more,
            " bytes; variables and the store have ", there + bytes - more, " of ", most,
            ", seven eighths of --memory_budget_bytes (calls need the rest): raise it, use more "
            "servers, or drop jobs")),
        wire::ErrorReason::MEMORY_BUDGET);
  }
  return absl::OkStatus();
}

// The job on disk and in memory. create_slot held.
absl::Status Remove(ServerCore& core, const std::string& name) {
  // Between epochs: one that runs would write stripes of the job again.
  const std::shared_ptr<Job> job = core.registry.Find(name);
  const auto drop = [&] {
    CAIRN_CRASH_POINT("drop: begun");
    if (const absl::Status dropped = core.store->DropJob(name); !dropped.ok()) {
      return core.flusher.Refuse(dropped);
    }
    CAIRN_CRASH_POINT("drop: gone on disk");
    core.registry.Erase(name);
    core.moves.EraseJob(name);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(core.flusher.Exclusively([&] { return core.evictor.Exclusively(drop); }));
  if (job != nullptr) {
    job->EndWaits(absl::FailedPreconditionError(
        absl::StrCat("job ", name, " was dropped meanwhile: start this task again")));
  }
  return absl::OkStatus();
}

// An idle job, of those not seen for a lease the one that was last seen first; nullptr: none.
std::shared_ptr<Job> LongestIdle(const ServerCore& core) {
  const bool shared = core.options.server_count > 1 || core.members.version() > 0;
  const bool granting = shared && core.options.server_index == 0;
  std::shared_ptr<Job> longest;
  absl::Duration since = core.options.lease;
  for (const std::shared_ptr<Job>& job : core.registry.jobs()) {
    const absl::Duration seen = job->SinceSeen();
    if (seen <= since || !job->Idle(shared, granting)) continue;
    longest = job;
    since = seen;
  }
  return longest;
}

void FillServerFigures(const ServerCore& core, wire::DescribeReply& reply) {
  constexpr size_t kMostJobs = 1024;
  reply.disk_bytes = core.store->DiskBytes();
  const auto since = core.flusher.SinceEpoch();
  reply.seconds_since_epoch = since.has_value() ? absl::ToDoubleSeconds(*since) : -1;
  reply.status_page = core.options.status_page;
  reply.__set_staleness(StalenessOf(core.staleness.Read()));
  for (const std::shared_ptr<Job>& job : core.registry.jobs()) {
    reply.jobs.push_back(job->name());
    reply.dirty_stripes += DirtyStripesOf(*job);
  }
  if (reply.jobs.size() > kMostJobs) reply.jobs.resize(kMostJobs);
}

template <size_t n>
std::vector<wire::RowRange> RangesOf(const std::array<int64_t, n>& least,
                                     const std::array<int64_t, n>& rows) {
  std::vector<wire::RowRange> ranges(n);
  for (size_t i = 0; i < n; ++i) {
    ranges[i].least = least[i];
    ranges[i].rows = rows[i];
  }
  return ranges;
}

void FillRows(const HostedTable& table, wire::ShardInfo& info) {
  info.rows_in_memory = table.rows_in_memory();
  wire::RowFigures figures;
  AddCounts(table.counts(), figures);
  info.__set_row_figures(figures);
  const RowCensus taken = table.census();
  wire::RowCensus census;
  census.by_age = RangesOf(RowCensus::kAges, taken.by_age);
  census.by_use = RangesOf(RowCensus::kUses, taken.by_use);
  info.__set_row_census(census);
}

void FillUses(const Variable& variable, wire::VariableInfo& info) {
  const auto shards = variable.shards();
  for (size_t i = 0; i < shards.size(); ++i) info.shards[i].uses = shards[i]->uses();
}

}  // namespace

wire::VariableInfo InfoOf(const Variable& variable) {
  wire::VariableInfo info;
  info.spec = ToWire(variable.spec());
  for (const HostedShard* shard : variable.shards()) {
    wire::ShardInfo part;
    part.shard = shard->index();
    part.first_row = shard->first_row();
    part.rows = shard->row_count();
    part.stripes = shard->stripe_count();
    part.version = shard->version();
    part.memory_bytes = shard->memory_bytes();
    if (shard == variable.table()) FillRows(*variable.table(), part);
    info.shards.push_back(part);
  }
  for (const SlotSpec& slot : variable.slots()) info.slots.push_back(slot.name);
  return info;
}

absl::Status CreateVariables(ServerCore& core, const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs) {
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   TakeCreateSlot(core, absl::StrCat("create_variables of job ", caller.job)));
  RETURN_IF_ERROR(core.flusher.failure());
  std::shared_ptr<Job> job = core.registry.Find(caller.job);
  const auto there = job != nullptr ? job->variables() : std::make_shared<const VariableMap>();
  const std::shared_ptr<Session> session =
      job == nullptr || caller.worker < 0 ? nullptr : job->FindSession(caller.worker);
  ASSIGN_OR_RETURN(const Wanted wanted, Sort(core, *there, specs, session != nullptr));
  if (!wanted.changes.empty()) {
    RETURN_IF_ERROR(ChangeOptimizers(core, *job, caller.worker, wanted.changes));
  }
  if (session != nullptr) session->NoteCountsOnSpecs();
  const std::vector<VariableSpec>& fresh = wanted.fresh;
  if (fresh.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(core.members.CheckStays());
  RETURN_IF_ERROR(CheckRoomForCalls(core, fresh));
  std::vector<std::shared_ptr<Variable>> made;
  for (const VariableSpec& spec : fresh) {
    ASSIGN_OR_RETURN(std::shared_ptr<Variable> variable,
                     Variable::Make(core.next_variable_id, caller.job, spec,
                                    core.options.server_index, core.budget));
    ++core.next_variable_id;
    variable->Initialize();
    made.push_back(std::move(variable));
  }
  // Only now, so that what is refused leaves no job behind.
  if (job == nullptr) {
    RETURN_IF_ERROR(MakeRoom(core));
    ASSIGN_OR_RETURN(job, core.registry.FindOrMake(caller.job, Quota::For::kCaller));
  }
  // A crash between two records leaves variables that the same call, repeated, finds there.
  for (const auto& variable : made) {
    auto variables = job->VariablesWith({variable});
    CAIRN_CRASH_POINT("create: before a variable");
    const absl::Status written = core.store->PutVariable(variable->record());
    if (!written.ok()) {
      return Annotate(core.flusher.Refuse(written), absl::StrCat("create on ", core.name));
    }
    job->SetVariables(std::move(variables));
  }
  CAIRN_CRASH_POINT("create: before the answer");
  return absl::OkStatus();
}

absl::Status MakeRoom(ServerCore& core) {
  constexpr int kMostJobs = 16;  // each costs a sync
  for (int tries = 0; tries < kMostJobs && core.registry.full(); ++tries) {
    const std::shared_ptr<Job> idle = LongestIdle(core);
    if (idle == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(Remove(core, idle->name()));
    LOG(INFO) << core.name << " forgot job " << idle->name()
              << ", which has no variables and whose workers are away, to make room";
  }
  return absl::OkStatus();
}

absl::Status ForgetOtherLife(ServerCore& core, const std::string& name, int64_t timeline) {
  const auto other = [&] {
    const std::shared_ptr<Job> job = core.registry.Find(name);
    const int64_t held = job == nullptr ? 0 : std::abs(job->timeline());
    return held != 0 && held != timeline ? job : nullptr;
  };
  if (other() == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   TakeCreateSlot(core, absl::StrCat("hello of job ", name)));
  const std::shared_ptr<Job> job = other();
  if (job == nullptr) return absl::OkStatus();
  if (job->variables()->empty()) return Remove(core, name);
  return absl::FailedPreconditionError(absl::StrCat(
      "hello to ", core.name, ": it holds job ", name, " as it began at ",
      TimelineText(std::abs(job->timeline())), ", ps:0 as it began at ", TimelineText(timeline),
      ": one of the two was started on another directory; start it on its own --data_dir, or drop "
      "the job (--fresh)"));
}

absl::Status Describe(ServerCore& core, const Admitted& admitted,
                      const wire::DescribeRequest& request, wire::DescribeReply& reply) {
  const VariableMap& variables = *admitted.variables;
  std::vector<absl::string_view> names(request.variables.begin(), request.variables.end());
  if (names.empty()) {
    for (const auto& [name, variable] : variables) names.push_back(name);
    std::sort(names.begin(), names.end());
  }
  for (const absl::string_view name : names) {
    const auto found = variables.find(name);
    if (found == variables.end()) {
      return UnknownVariable(core.name, variables, {.call = "describe", .variable = name});
    }
    reply.variables.push_back(InfoOf(*found->second));
    if (request.with_uses) FillUses(*found->second, reply.variables.back());
  }
  reply.server_index = core.options.server_index;
  reply.durability = std::string(DurabilityName(core.options.durability));
  reply.memory_used_bytes = core.budget.used_bytes();
  reply.memory_budget_bytes = core.budget.limit_bytes();
  reply.uptime_seconds = absl::ToDoubleSeconds(UptimeOf(core));
  reply.counters = CountersOf(core);
  if (admitted.job != nullptr) reply.timeline = admitted.job->timeline();
  const std::optional<absl::Duration> since =
      admitted.job == nullptr ? std::nullopt : admitted.job->SinceCheckpoint();
  reply.seconds_since_checkpoint = since.has_value() ? absl::ToDoubleSeconds(*since) : -1;
  if (request.with_server) FillServerFigures(core, reply);
  return absl::OkStatus();
}

absl::Status DropJob(ServerCore& core, const wire::Caller& caller) {
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   TakeCreateSlot(core, absl::StrCat("drop_job of job ", caller.job)));
  const absl::Status status = Remove(core, caller.job);
  if (!status.ok()) return Annotate(status, absl::StrCat("drop_job on ", core.name));
  LOG(INFO) << core.name << " dropped job " << caller.job;
  CAIRN_CRASH_POINT("drop: before the answer");
  return absl::OkStatus();
}

}  // namespace cairn
