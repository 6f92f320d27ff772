#include "ps_server/calls/calls.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/variables/spec_difference.h"
#include "common/variables/variable_map.h"
#include "ps_server/base/bad_alloc.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::Duration kMovingRetry = absl::Milliseconds(50);

absl::Status ConflictError(const ServerInfo& info, const VariableSpec& have,
                           const VariableSpec& want, absl::string_view advice) {
  return WithReason(AlreadyExists("create \"", want.name, "\" on ", info.name, ": ",
                                  SpecDifferenceText(have, want), advice),
                    wire::ErrorReason::SPEC_CONFLICT);
}

// Whether both are specs of one variable, before and after its rows moved. A worker with the older
// map receives MOVED when it names a row.
bool HasMoved(const VariableSpec& have, const VariableSpec& want) {
  return have.map_version != want.map_version && SameButPlaces(have, want);
}

// A change of the arguments of an optimizer.
struct OptimizerChange {
  std::shared_ptr<Variable> variable;
  OptimizerConfig optimizer;
};

struct Wanted {
  std::vector<VariableSpec> fresh;  // not created yet, without repeats
  std::vector<OptimizerChange> changes;
};

absl::StatusOr<Wanted> Sort(const ServerInfo& info, const VariableMap& variables,
                            const std::vector<wire::VariableSpec>& specs, bool may_change) {
  Wanted wanted;
  std::map<std::string, size_t> index;
  for (const wire::VariableSpec& wire : specs) {
    absl::StatusOr<VariableSpec> spec = FromWire(wire, info.index(), info.max_servers());
    if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("create on ", info.name));
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
      return ConflictError(info, *have, *spec, ": use that, another name, or drop the job");
    }
    wanted.changes.push_back({there->second, spec->optimizer});
  }
  return wanted;
}

// kAlreadyExists: another live worker relies on the current arguments.
absl::Status CheckNobodyCountsOn(const ServerInfo& info, const Job& job, int32_t worker,
                                 const OptimizerChange& change) {
  for (const auto& session : job.sessions()) {
    const bool counts = session->leased() && !session->left() && session->counts_on_specs();
    if (!counts || session->worker() == worker) continue;
    VariableSpec want = change.variable->spec();
    want.optimizer = change.optimizer;
    return ConflictError(
        info, change.variable->spec(), want,
        absl::StrCat("; worker ", session->worker(), " (", session->origin(),
                     ") trains with that, last seen ",
                     absl::FormatDuration(absl::Trunc(session->SinceSeen(), absl::Milliseconds(1))),
                     " ago: end it first, or wait until its lease of ",
                     absl::FormatDuration(info.options.lease), " has ended"));
  }
  return absl::OkStatus();
}

// The caller holds the slot. After a crash between two changes, a repeated call makes the remaining
// ones.
absl::Status ChangeOptimizers(JobCatalog& catalog, const Moves& moves, Job& job, int32_t worker,
                              absl::Span<const OptimizerChange> changes) {
  const ServerInfo& info = catalog.info();
  for (const OptimizerChange& change : changes) {
    RETURN_IF_ERROR(CheckNobodyCountsOn(info, job, worker, change));
    const std::string& name = change.variable->spec().name;
    if (moves.Find(job.name(), name) == nullptr) continue;
    return BusyError(absl::StrCat("create \"", name, "\" on ", info.name,
                                  ": its optimizer cannot change while its rows move"),
                     kMovingRetry);
  }
  for (const OptimizerChange& change : changes) {
    Variable& before = *change.variable;
    RETURN_IF_ERROR(catalog.WriteRecord(job, [&]() -> absl::Status {
      const std::string what = OptimizerChangeText(before.spec().optimizer, change.optimizer);
      ASSIGN_OR_RETURN(const std::shared_ptr<Variable> next,
                       Variable::WithOptimizer(before, change.optimizer, info.index()));
      auto variables = job.VariablesWith({next});
      const VariableRecord record = next->record();
      RETURN_IF_ERROR(CatchBadAlloc([&] { return catalog.store().PutMap(record, {}, {}); }));
      next->Follow(before);
      job.SetVariables(std::move(variables));
      LOG(INFO) << info.name << ": optimizer of \"" << before.spec().name << "\" of job "
                << job.name() << ": " << what;
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

// kResourceExhausted: the new variables would leave too little memory for calls, so that no push
// could run.
absl::Status CheckRoomForCalls(const Registry& registry, const MemoryBudget& budget,
                               const ServerInfo& info, absl::Span<const VariableSpec> specs) {
  int64_t there = StoreMemoryOf(budget.limit_bytes()).total_bytes;
  for (const std::shared_ptr<Job>& job : registry.jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) there += variable->fixed_bytes();
  }
  const int64_t most = budget.variables_bytes();
  int64_t bytes = 0;
  for (const VariableSpec& spec : specs) {
    ASSIGN_OR_RETURN(const int64_t more, Variable::FixedBytes(spec, info.index()));
    bytes += more;
    if (bytes <= most - there) continue;
    return WithReason(
        ResourceExhausted(
            "create on ", info.name, ": variable \"", spec.name, "\" needs ", more,
            " bytes; variables and the store have ", there + bytes - more, " of ", most,
            ", seven eighths of --memory_budget_bytes (calls need the rest): raise it, use more "
            "servers, or drop jobs"),
        wire::ErrorReason::MEMORY_BUDGET);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateVariables(JobCatalog& catalog, const Moves& moves, const RowAccess& rows,
                             const wire::Caller& caller,
                             const std::vector<wire::VariableSpec>& specs) {
  const ServerInfo& info = catalog.info();
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   catalog.TakeSlot(absl::StrCat("create_variables of job ", caller.job)));
  RETURN_IF_ERROR(rows.flusher.failure());
  std::shared_ptr<Job> job = catalog.registry().Find(caller.job);
  const auto there = job != nullptr ? job->variables() : std::make_shared<const VariableMap>();
  const std::shared_ptr<Session> session =
      job == nullptr || caller.worker < 0 ? nullptr : job->FindSession(caller.worker);
  ASSIGN_OR_RETURN(const Wanted wanted, Sort(info, *there, specs, session != nullptr));
  if (!wanted.changes.empty()) {
    RETURN_IF_ERROR(ChangeOptimizers(catalog, moves, *job, caller.worker, wanted.changes));
  }
  if (session != nullptr) session->NoteCountsOnSpecs();
  const std::vector<VariableSpec>& fresh = wanted.fresh;
  if (fresh.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(catalog.CheckStays());
  RETURN_IF_ERROR(CheckRoomForCalls(catalog.registry(), rows.budget, info, fresh));
  std::vector<std::shared_ptr<Variable>> made;
  for (const VariableSpec& spec : fresh) {
    ASSIGN_OR_RETURN(
        std::shared_ptr<Variable> variable,
        Variable::Make(catalog.next_id(), caller.job, spec, info.index(), rows.budget));
    catalog.ReserveIds(1);
    variable->Initialize();
    made.push_back(std::move(variable));
  }
  // Creates the job last, so that a rejected call leaves no job behind.
  if (job == nullptr) {
    RETURN_IF_ERROR(catalog.DropIdleJobs());
    ASSIGN_OR_RETURN(job, catalog.registry().FindOrMake(caller.job, Quota::For::kCaller));
  }
  // After a crash between two records, a repeated call finds the variables that were stored.
  for (const auto& variable : made) RETURN_IF_ERROR(catalog.Add(*job, variable));
  CAIRN_CRASH_POINT("create: before the answer");
  return absl::OkStatus();
}

absl::Status DropJob(JobCatalog& catalog, Admission& admission, const wire::Caller& caller) {
  const std::string& server = catalog.info().name;
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot,
                   catalog.TakeSlot(absl::StrCat("drop_job of job ", caller.job)));
  // A caller that this server does not know may drop the job: a repeated call finds no job.
  const std::shared_ptr<Job> job = catalog.registry().Find(caller.job);
  const std::shared_ptr<Session> session =
      job == nullptr || caller.worker < 0 ? nullptr : job->FindSession(caller.worker);
  if (session != nullptr && caller.incarnation < session->incarnation()) {
    RETURN_IF_ERROR(admission.CheckIncarnation(*session, caller.incarnation));
  }
  const absl::Status status = catalog.Drop(caller.job);
  if (!status.ok()) return Annotate(status, absl::StrCat("drop_job on ", server));
  LOG(INFO) << server << " dropped job " << caller.job;
  CAIRN_CRASH_POINT("drop: before the answer");
  return absl::OkStatus();
}

}  // namespace cairn
