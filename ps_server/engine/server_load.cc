#include "ps_server/engine/server_load.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "common/timeline.h"
#include "ps_server/calls/map_changes.h"
#include "ps_server/persistence/variable_load.h"
#include "storage/stripe_store.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

struct Arrived {
  std::shared_ptr<Variable> variable;
  VariableSpec map;
};

absl::Status ReadVariables(JobCatalog& catalog, Moves& moves, MemoryBudget& budget,
                           int64_t& variables) {
  const ServerInfo& info = catalog.info();
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> records, catalog.store().Variables());
  std::vector<std::shared_ptr<Variable>> loaded;
  std::vector<Arrived> arrived;
  for (const VariableRecord& record : records) {
    ASSIGN_OR_RETURN(Variable::Kept kept,
                     Variable::Decode(record, info.index(), info.max_servers()));
    ASSIGN_OR_RETURN(std::shared_ptr<Variable> variable,
                     Variable::Make(record.id, record.job, kept.spec, info.index(),
                                    kept.rows_per_stripe, budget));
    if (kept.arriving.has_value()) arrived.push_back({variable, *std::move(kept.arriving)});
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                     catalog.registry().FindOrMake(record.job, Quota::For::kStore));
    job->SetVariables(job->VariablesWith({variable}));
    catalog.NoteId(record.id);
    loaded.push_back(std::move(variable));
  }
  CAIRN_CRASH_POINT("start: variables read");
  // Deletes what an interrupted restore has written: ids without a record, which may be below those
  // of variables that were created in the meantime.
  std::vector<uint32_t> ids;
  for (const VariableRecord& record : records) ids.push_back(record.id);
  ids.push_back(std::numeric_limits<uint32_t>::max());
  std::ranges::sort(ids);
  uint32_t next = 1;  // the first id
  for (const uint32_t id : ids) {
    if (id > next) RETURN_IF_ERROR(catalog.store().DropLeftovers(next, id));
    next = id + 1;
  }
  variables = static_cast<int64_t>(loaded.size());
  RETURN_IF_ERROR(LoadVariables(catalog.store(), budget, loaded));
  for (const Arrived& rows : arrived) {
    RETURN_IF_ERROR(LoadArrived(catalog, moves, budget, *rows.variable, rows.map));
  }
  return absl::OkStatus();
}

absl::Status ReadShards(JobCatalog& catalog) {
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> records, catalog.store().Shards());
  absl::flat_hash_map<uint32_t, std::shared_ptr<Variable>> by_id;
  for (const auto& job : catalog.registry().jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) by_id[variable->id()] = variable;
  }
  for (const ShardRecord& record : records) {
    const auto variable = by_id.find(record.variable);
    if (variable == by_id.end()) continue;
    for (HostedShard* shard : variable->second->shards()) {
      if (shard->index() == static_cast<int32_t>(record.shard)) shard->Load(record);
    }
  }
  return absl::OkStatus();
}

// Loads the steps of synchronous jobs. `closed`: the record of kStepWorker of each job.
absl::Status ReadSteps(JobCatalog& catalog, absl::flat_hash_map<std::string, WorkerRecord> closed) {
  ASSIGN_OR_RETURN(std::vector<DecisionRecord> records, catalog.store().Decisions());
  absl::flat_hash_map<std::string, std::vector<DecisionRecord>> decisions;
  for (DecisionRecord& record : records) {
    // A job has no record of kStepWorker if it had decided steps but closed none before the last
    // snapshot.
    closed.try_emplace(record.job, WorkerRecord{.job = record.job, .worker = kStepWorker});
    decisions[record.job].push_back(std::move(record));
  }
  for (const auto& [job, record] : closed) {
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> made,
                     catalog.registry().FindOrMake(job, Quota::For::kStore));
    made->steps().Load(record, std::move(decisions[job]));
  }
  return absl::OkStatus();
}

absl::Status ReadWorkers(JobCatalog& catalog) {
  const bool applied_is_durable = catalog.info().applied_is_durable();
  ASSIGN_OR_RETURN(const std::vector<WorkerRecord> records, catalog.store().Workers());
  absl::flat_hash_map<std::string, WorkerRecord> closed;
  for (const WorkerRecord& record : records) {
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                     catalog.registry().FindOrMake(record.job, Quota::For::kStore));
    if (record.worker == kStepWorker) {
      closed[record.job] = record;
      continue;
    }
    if (record.worker == kTimelineWorker) {
      job->AddTimelineRecord(std::make_shared<Session>(record, applied_is_durable));
      continue;
    }
    ASSIGN_OR_RETURN(
        const std::shared_ptr<Session> session,
        job->AddSession(std::make_shared<Session>(record, applied_is_durable), Quota::For::kStore));
    session->NoteRestarted();
    session->NoteCountsOnSpecs();  // until its next start
    // The worker may be about to say hello again: until its lease ends, other workers wait for it.
    if (!session->left()) session->Renew(catalog.info().options.lease);
    job->cohort().Return(session);
  }
  return ReadSteps(catalog, std::move(closed));
}

}  // namespace

absl::StatusOr<int64_t> LoadServer(JobCatalog& catalog, Moves& moves, MemoryBudget& budget) {
  int64_t variables = 0;
  RETURN_IF_ERROR(ReadVariables(catalog, moves, budget, variables));
  RETURN_IF_ERROR(ReadShards(catalog));
  RETURN_IF_ERROR(ReadWorkers(catalog));
  return variables;
}

}  // namespace cairn
