#include "worker/client/impl/job_checkpoints.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/variables/variable_map.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "worker/client/delivery/position.h"

namespace cairn {
namespace {

constexpr absl::Duration kUndoTimeout = absl::Minutes(1);

wire::CheckpointRequest RequestOf(const wire::Caller& caller, absl::string_view directory,
                                  absl::string_view name) {
  wire::CheckpointRequest request;
  request.caller = caller;
  request.directory = std::string(directory);
  request.name = std::string(name);
  return request;
}

absl::StatusOr<ServerCheckpoint> FromReply(const wire::CheckpointReply& reply, int32_t server) {
  ServerCheckpoint part{
      .server = server, .folder = reply.folder, .host = reply.host, .seconds = reply.seconds};
  for (const wire::CheckpointFile& file : reply.files) {
    part.files.push_back({file.name, file.bytes, static_cast<uint64_t>(file.checksum)});
  }
  for (const wire::CheckpointWorker& worker : reply.workers) {
    if (worker.worker == kTimelineWorker) {
      part.timeline = worker.incarnation;
      continue;
    }
    part.workers.push_back({worker.worker, worker.incarnation, worker.sequence, worker.position});
  }
  for (const wire::VariableInfo& info : reply.variables) {
    CheckpointVariable variable;
    // Rows may be on servers that this client does not know yet; Whole detects that.
    ASSIGN_OR_RETURN(variable.spec, FromWire(info.spec, server, kMaxServers));
    for (const wire::ShardInfo& shard : info.shards) {
      variable.rows += shard.rows;
      variable.updates = std::max(variable.updates, shard.version);
    }
    part.variables.push_back(std::move(variable));
  }
  return part;
}

wire::RestoreRequest RequestOf(const RestoreSource& source) {
  wire::RestoreRequest request;
  request.from_job = source.job;
  for (const RestoreFolder& folder : source.folders) {
    request.folders.emplace_back();
    request.folders.back().path = folder.path;
    for (const CheckpointFile& file : folder.files) {
      request.folders.back().files.emplace_back();
      request.folders.back().files.back().name = file.name;
      request.folders.back().files.back().bytes = file.bytes;
      request.folders.back().files.back().checksum = static_cast<int64_t>(file.checksum);
    }
  }
  return request;
}

// The workers' state after the restore, the same on all `server_count` servers: each worker resumes
// after the last sequence that every server of the checkpoint had. Stripes that are ahead skip the
// recomputed pushes.
std::vector<wire::CheckpointWorker> WorkersAt(const RestoreSource& source, int64_t timeline,
                                              size_t server_count) {
  std::map<int32_t, std::vector<ResumeAnswer>> answers;
  for (size_t s = 0; s < source.folders.size(); ++s) {
    for (const CheckpointWorker& worker : source.folders[s].workers) {
      std::vector<ResumeAnswer>& of_worker = answers[worker.worker];
      // A server without a record of the worker has applied nothing.
      of_worker.resize(source.folders.size());
      of_worker[s] = {worker.sequence, worker.position};
    }
  }
  std::vector<wire::CheckpointWorker> workers;
  for (const auto& [ordinal, of_worker] : answers) {
    const ResumePoint point = ChooseResumePoint(of_worker);
    wire::CheckpointWorker worker;
    worker.worker = ordinal;
    worker.incarnation = FirstIncarnation(timeline);
    worker.sequence = point.sequence;
    if (point.sequence > 0) {
      const std::vector<int64_t> last_part(server_count, point.sequence);
      EncodePosition(point.sequence, last_part, point.position, &worker.position);
    }
    workers.push_back(std::move(worker));
  }
  return workers;
}

// Fills in the parts of servers that have left a synchronous job. Their rows moved to other servers
// with all steps applied (ps_server/MEMBERS.md), so these parts get the highest sequence of every
// worker. ps:0 (`parts[0]`) never leaves.
void FillDepartedParts(std::vector<ServerCheckpoint>& parts) {
  if (FindWorker(parts[0], kStepWorker) == nullptr) return;
  std::map<int32_t, CheckpointWorker> highest;
  for (const ServerCheckpoint& part : parts) {
    for (const CheckpointWorker& worker : part.workers) {
      CheckpointWorker& known = highest.try_emplace(worker.worker, worker).first->second;
      known.sequence = std::max(known.sequence, worker.sequence);
      known.position.clear();  // other parts have it
    }
  }
  for (ServerCheckpoint& part : parts) {
    if (!part.files.empty()) continue;
    part.workers.clear();
    for (const auto& [ordinal, worker] : highest) part.workers.push_back(worker);
  }
}

// Whether every row is in the copy of the server that owns it by the newest map. Servers are copied
// one after the other, so a row that moves in the meantime may be in no copy, or on a server that
// joined too late to be asked. `parts`: by server.
bool Whole(const std::vector<ServerCheckpoint>& parts) {
  std::map<std::string, std::vector<const VariableSpec*>> copies;  // by server
  for (size_t s = 0; s < parts.size(); ++s) {
    for (const CheckpointVariable& variable : parts[s].variables) {
      std::vector<const VariableSpec*>& of_variable = copies[variable.spec.name];
      of_variable.resize(parts.size());
      of_variable[s] = &variable.spec;
    }
  }
  for (const auto& [name, of_variable] : copies) {
    const VariableSpec* newest = nullptr;
    for (const VariableSpec* const copy : of_variable) {
      if (copy == nullptr) continue;
      if (newest == nullptr || copy->map_version > newest->map_version) newest = copy;
    }
    const std::vector<int32_t> owners = PlacesOf(*newest);
    const auto asked = static_cast<int32_t>(parts.size());
    if (std::any_of(owners.begin(), owners.end(), [=](int32_t ps) { return ps >= asked; })) {
      return false;
    }
    for (int32_t s = 0; s < asked; ++s) {
      if (!GivesAll(of_variable[static_cast<size_t>(s)], *newest, s)) return false;
    }
  }
  return true;
}

// kAborted unless every server has closed `step` as its last step; 0: the job is not synchronous.
absl::Status CheckClosed(const std::string& job, int64_t step, const JobHoldings& holdings) {
  for (const ServerHolding& server : holdings.servers) {
    if (server.closed_step == step) continue;
    return Aborted(
        "job ", job, " is synchronous and closed steps meanwhile (", server.name,
        " has closed step ", server.closed_step, ", and the expected step is ", step,
        "): its first worker makes checkpoints between two steps (checkpoint.every_steps)");
  }
  return absl::OkStatus();
}

// kAborted if a part's record of closed steps is not `step`.
absl::Status CheckClosed(const std::string& job, int64_t step,
                         const std::vector<ServerCheckpoint>& parts) {
  JobHoldings recorded;
  for (const ServerCheckpoint& part : parts) {
    const CheckpointWorker* const steps = FindWorker(part, kStepWorker);
    recorded.servers.push_back({.name = absl::StrCat("the part of ps:", part.server),
                                .closed_step = steps == nullptr ? 0 : steps->sequence});
  }
  return CheckClosed(job, step, recorded);
}

}  // namespace

absl::StatusOr<std::vector<ServerCheckpoint>> JobCheckpoints::Checkpoint(
    absl::string_view directory, absl::string_view name, Deadline deadline) {
  constexpr int kMostTries = 5;
  Backoff backoff(deps_.identity.ps_wait, deadline);
  for (int tries = 1;; ++tries) {
    absl::StatusOr<std::vector<ServerCheckpoint>> parts = TryCheckpoint(directory, name, deadline);
    const bool moved = ReasonOf(parts.status()) == wire::ErrorReason::MOVED;
    if ((!moved && !absl::IsAborted(parts.status())) || tries == kMostTries) return parts;
    if (moved) RETURN_IF_ERROR(deps_.membership.Refresh(deadline));
    RETURN_IF_ERROR(DropCheckpoint(directory, name, deadline));
    if (!backoff.Pause()) return parts;
  }
}

absl::StatusOr<std::vector<ServerCheckpoint>> JobCheckpoints::TryCheckpoint(
    absl::string_view directory, absl::string_view name, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("checkpoint", deadline));
  const std::vector<int32_t> servers = deps_.sessions.Live();
  ASSIGN_OR_RETURN(const JobHoldings holdings, deps_.calls.Describe(servers, deadline));
  RETURN_IF_ERROR(CheckAgreement(holdings));
  const int64_t closed_step = holdings.servers.front().closed_step;
  RETURN_IF_ERROR(CheckClosed(deps_.identity.job, closed_step, holdings));
  std::vector<wire::CheckpointReply> replies(deps_.sessions.size());
  RETURN_IF_ERROR(deps_.calls.All(
      servers, "checkpoint", deadline.Remaining(), deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
        replies[server] = {};
        service.checkpoint(replies[server], RequestOf(caller, directory, name));
      }));
  std::vector<ServerCheckpoint> parts;
  for (size_t s = 0; s < replies.size(); ++s) {
    const auto server = static_cast<int32_t>(s);
    const bool left = deps_.sessions[s].departed();  // before or during this call
    absl::StatusOr<ServerCheckpoint> part =
        left ? PartOfDeparted(server, deadline) : FromReply(replies[s], server);
    if (!part.ok()) {
      return Annotate(part.status(), absl::StrCat("checkpoint of ", deps_.sessions[s].name()));
    }
    parts.push_back(*std::move(part));
  }
  FillDepartedParts(parts);
  if (!Whole(parts)) {
    return WithReason(Unavailable("checkpoint ", name,
                                  ": rows moved between "
                                  "servers while it was written: make it again"),
                      wire::ErrorReason::MOVED);
  }
  RETURN_IF_ERROR(CheckNoStepClosed(closed_step, parts, deadline));
  return parts;
}

// The servers copy rows after the record of closed steps. If a step closed meanwhile, a restored
// job would apply it twice to rows that were copied after it.
absl::Status JobCheckpoints::CheckNoStepClosed(int64_t before,
                                               const std::vector<ServerCheckpoint>& parts,
                                               Deadline deadline) {
  RETURN_IF_ERROR(CheckClosed(deps_.identity.job, before, parts));
  ASSIGN_OR_RETURN(const JobHoldings after, deps_.calls.Describe(deps_.sessions.Live(), deadline));
  return CheckClosed(deps_.identity.job, before, after);
}

absl::StatusOr<ServerCheckpoint> JobCheckpoints::PartOfDeparted(int32_t server, Deadline deadline) {
  wire::ChangeMembersReply reply;
  RETURN_IF_ERROR(
      deps_.calls.One(0, "change_members", deps_.calls.rpc_timeout(), deadline,
                      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                        wire::ChangeMembersRequest request;
                        request.caller = caller;
                        // already removed: ps:0 answers with its last sequences
                        request.action = wire::MembersAction::REMOVE;
                        request.index = server;
                        service.change_members(reply, request);
                      }));
  ServerCheckpoint part{.server = server};
  for (const wire::LastWord& word : reply.last_words) {
    if (word.job == deps_.identity.job) {
      part.workers.push_back({.worker = word.worker, .sequence = word.applied});
    }
  }
  return part;
}

absl::Status JobCheckpoints::DropCheckpoint(absl::string_view directory, absl::string_view name,
                                            Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("drop_checkpoint", deadline));
  return deps_.calls.All(
      deps_.sessions.Live(), "drop_checkpoint", deadline.Remaining(), deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
        wire::ServerState state;
        service.drop_checkpoint(state, RequestOf(caller, directory, name));
      });
}

absl::StatusOr<wire::RestoreRequest> JobCheckpoints::RestoreRequestOf(
    const RestoreSource& source) const {
  if (deps_.membership.version() > 0) {
    return FailedPrecondition(
        "restore: servers have joined or left since the cluster file was written, but a restore "
        "needs exactly the servers of that file: restart them with empty directories");
  }
  wire::RestoreRequest request = RequestOf(source);
  request.timeline =
      WithServers(TimelineOfManifest(source.timeline), static_cast<int32_t>(deps_.sessions.size()));
  request.workers = WorkersAt(source, request.timeline, deps_.sessions.size());
  return request;
}

absl::Status JobCheckpoints::SendRestore(int32_t server, const wire::RestoreRequest& request,
                                         Deadline deadline, wire::RestoreReply& reply) {
  return deps_.calls.One(
      server, "restore", deadline.Remaining(), deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
        wire::RestoreRequest mine = request;
        mine.caller = caller;
        reply = {};
        service.restore(reply, mine);
      });
}

absl::Status JobCheckpoints::VerifyRestore(const RestoreSource& source, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("restore", deadline));
  ASSIGN_OR_RETURN(wire::RestoreRequest request, RestoreRequestOf(source));
  request.__set_verify_only(true);
  std::vector<char> restored(deps_.sessions.size());
  const absl::Status status =
      deps_.calls.ForEach(deps_.sessions.Live(), [&](int32_t server) -> absl::Status {
        wire::RestoreReply reply;
        const absl::Status answer = SendRestore(server, request, deadline, reply);
        // A server that does not know verify_only (cairn.thrift).
        if (absl::IsAlreadyExists(answer)) return absl::OkStatus();
        restored[static_cast<size_t>(server)] = answer.ok() && !reply.verified;
        return answer;
      });
  UndoRestore(restored);
  return status;
}

absl::Status JobCheckpoints::Restore(const RestoreSource& source, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("restore", deadline));
  ASSIGN_OR_RETURN(const wire::RestoreRequest request, RestoreRequestOf(source));
  std::vector<char> restored(deps_.sessions.size());
  const auto restore = [&](int32_t server) {
    wire::RestoreReply reply;
    const absl::Status status = SendRestore(server, request, deadline, reply);
    restored[static_cast<size_t>(server)] = status.ok();
    return status;
  };
  // ps:0 comes last: the restore is complete once ps:0 holds the job.
  const std::vector<int32_t> servers = deps_.sessions.Live();
  absl::Status status = deps_.calls.ForEach(absl::MakeConstSpan(servers).subspan(1), restore);
  CAIRN_CRASH_POINT("restore: all but ps:0 have it");
  if (status.ok()) status = restore(0);
  if (status.ok()) status = CheckRestored(deadline);
  if (!status.ok()) UndoRestore(restored);
  return status;
}

// With as many servers as in the checkpoint, each reads its own part only, and cannot know the
// newest map.
absl::Status JobCheckpoints::CheckRestored(Deadline deadline) {
  std::vector<wire::CheckpointReply> replies(deps_.sessions.size());
  RETURN_IF_ERROR(deps_.calls.All(
      deps_.sessions.Live(), "describe", deps_.calls.rpc_timeout(), deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
        wire::DescribeRequest request;
        request.caller = caller;
        wire::DescribeReply reply;
        service.describe(reply, request);
        replies[static_cast<size_t>(server)].variables = std::move(reply.variables);
      }));
  std::vector<ServerCheckpoint> parts;
  for (size_t s = 0; s < replies.size(); ++s) {
    ASSIGN_OR_RETURN(parts.emplace_back(), FromReply(replies[s], static_cast<int32_t>(s)));
  }
  if (Whole(parts)) return absl::OkStatus();
  return absl::DataLossError(
      "the checkpoint lacks rows that moved between servers while it was made: restore another "
      "checkpoint");
}

// A server that cannot be reached keeps its part. Examine reports it
// (JobHoldings::from_unfinished_restore).
void JobCheckpoints::UndoRestore(absl::Span<const char> restored) {
  if (std::all_of(restored.begin(), restored.end(), [](char one) { return one == 0; })) return;
  const absl::Status dropped = deps_.calls.ForEach(deps_.sessions.Live(), [&](int32_t server) {
    if (restored[static_cast<size_t>(server)] == 0) return absl::OkStatus();
    return deps_.calls.One(
        server, "drop_job", deps_.calls.rpc_timeout(), Deadline::In(kUndoTimeout),
        [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
          wire::ServerState state;
          service.drop_job(state, caller);
        });
  });
  if (!dropped.ok()) {
    LOG(WARNING) << "a restore failed, and its job could not be dropped from every server: "
                 << dropped.message();
  }
}

}  // namespace cairn
