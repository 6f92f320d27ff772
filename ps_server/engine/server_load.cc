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

absl::Status ReadVariables(ServerCore& core, int64_t& variables) {
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> records, core.store->Variables());
  std::vector<std::shared_ptr<Variable>> loaded;
  std::vector<Arrived> arrived;
  for (const VariableRecord& record : records) {
    ASSIGN_OR_RETURN(Variable::Kept kept,
                     Variable::Decode(record, core.options.server_index, core.most_servers()));
    ASSIGN_OR_RETURN(std::shared_ptr<Variable> variable,
                     Variable::Make(record.id, record.job, kept.spec, core.options.server_index,
                                    kept.rows_per_stripe, core.budget));
    if (kept.arriving.has_value()) arrived.push_back({variable, *std::move(kept.arriving)});
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                     core.registry.FindOrMake(record.job, Quota::For::kStore));
    job->SetVariables(job->VariablesWith({variable}));
    core.next_variable_id = std::max(core.next_variable_id, record.id + 1);
    loaded.push_back(std::move(variable));
  }
  CAIRN_CRASH_POINT("start: variables read");
  // A restore that was interrupted; ids count up, so its are used again.
  RETURN_IF_ERROR(
      core.store->DropLeftovers(core.next_variable_id, std::numeric_limits<uint32_t>::max()));
  variables = static_cast<int64_t>(loaded.size());
  RETURN_IF_ERROR(LoadVariables(*core.store, core.budget, loaded));
  for (const Arrived& rows : arrived) {
    RETURN_IF_ERROR(LoadArrived(core, *rows.variable, rows.map));
  }
  return absl::OkStatus();
}

absl::Status ReadShards(ServerCore& core) {
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> records, core.store->Shards());
  absl::flat_hash_map<uint32_t, std::shared_ptr<Variable>> by_id;
  for (const auto& job : core.registry.jobs()) {
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

// `closed`: by job, the records of kStepWorker.
absl::Status ReadSteps(ServerCore& core, absl::flat_hash_map<std::string, WorkerRecord> closed) {
  ASSIGN_OR_RETURN(std::vector<DecisionRecord> records, core.store->Decisions());
  absl::flat_hash_map<std::string, std::vector<DecisionRecord>> decisions;
  for (DecisionRecord& record : records) {
    // A step may have been decided, and none have closed, before the last epoch.
    closed.try_emplace(record.job, WorkerRecord{.job = record.job, .worker = kStepWorker});
    decisions[record.job].push_back(std::move(record));
  }
  for (const auto& [job, record] : closed) {
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> made,
                     core.registry.FindOrMake(job, Quota::For::kStore));
    made->steps().Load(record, std::move(decisions[job]));
  }
  return absl::OkStatus();
}

absl::Status ReadWorkers(ServerCore& core) {
  ASSIGN_OR_RETURN(const std::vector<WorkerRecord> records, core.store->Workers());
  absl::flat_hash_map<std::string, WorkerRecord> closed;
  for (const WorkerRecord& record : records) {
    ASSIGN_OR_RETURN(const std::shared_ptr<Job> job,
                     core.registry.FindOrMake(record.job, Quota::For::kStore));
    if (record.worker == kStepWorker) {
      closed[record.job] = record;
      continue;
    }
    if (record.worker == kTimelineWorker) {
      job->AddLife(std::make_shared<Session>(record, core.applied_is_durable()));
      continue;
    }
    ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                     job->AddSession(std::make_shared<Session>(record, core.applied_is_durable()),
                                     Quota::For::kStore));
    session->NoteRestarted();
    session->NoteCountsOnSpecs();  // until its next start
    // It may be on its way to say hello again; until its lease ends others keep step with it.
    if (!session->left()) session->Renew(core.options.lease);
    job->cohort().Return(session);
  }
  return ReadSteps(core, std::move(closed));
}

}  // namespace

absl::StatusOr<int64_t> LoadServer(ServerCore& core) {
  int64_t variables = 0;
  RETURN_IF_ERROR(ReadVariables(core, variables));
  RETURN_IF_ERROR(ReadShards(core));
  RETURN_IF_ERROR(ReadWorkers(core));
  return variables;
}

}  // namespace cairn
