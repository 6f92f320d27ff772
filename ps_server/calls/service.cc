#include "ps_server/calls/service.h"

#include <memory>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "ps_server/calls/calls.h"
#include "ps_server/calls/check_request.h"
#include "ps_server/calls/map_changes.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/reply_holds.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

const wire::Caller& CallerOf(const wire::Caller& caller) { return caller; }
const wire::Caller& CallerOf(const wire::StepRequest& request) { return request.push.caller; }
template <typename Request>
const wire::Caller& CallerOf(const Request& request) {
  return request.caller;
}
wire::Caller CallerOf(const wire::HelloRequest& request) {
  wire::Caller caller;
  caller.job = request.job;
  caller.worker = request.worker;
  return caller;
}

}  // namespace

bool CallGate::Enter() {
  if (closing_.load()) return false;
  mutex_.ReaderLock();
  if (!closing_.load()) return true;
  mutex_.ReaderUnlock();
  return false;
}

absl::Status StoppingError(absl::string_view server) {
  return WithReason(Unavailable(server, " is shutting down: retry when it is back"),
                    wire::ErrorReason::STOPPING);
}

absl::Status DrainingError(absl::string_view server) {
  return WithReason(
      Unavailable(
          server,
          " is draining: an operator asked it to write everything and exit (cairnctl drain). "
          "Workers wait for it: start it again on its --data_dir"),
      wire::ErrorReason::STOPPING);
}

void CallGate::Close() {
  closing_.store(true);
  absl::MutexLock lock(&mutex_);
}

void Service::Throw(const wire::Caller& caller, const absl::Status& status) {
  wire::ServerError error = ToServerError(status);
  const std::shared_ptr<Job> job = core_.registry.Find(caller.job);
  const std::shared_ptr<Session> session =
      job != nullptr && caller.worker >= 0 ? job->FindSession(caller.worker) : nullptr;
  core_.admission.FillState(job.get(), session.get(), error.state);
  error.__isset.state = true;
  throw error;
}

void Service::Serve(Method method, const wire::Caller& caller, wire::ServerState* state,
                    absl::FunctionRef<absl::Status()> check, Body body) {
  RpcMeter::Call metered(core_.rpcs, method);
  absl::Status status;
  const WaitBoard::Calling calling(caller.job, caller.worker);
  if (gate_.Enter()) {
    const auto leave = absl::MakeCleanup([this] { gate_.Leave(); });
    try {
      Admitted admitted;
      status = check();
      if (status.ok() && state != nullptr) status = AdmitCaller(method, caller, admitted);
      if (status.ok()) status = body(admitted);
      if (status.ok() && state != nullptr) {
        core_.admission.FillState(admitted.job.get(), admitted.session.get(), *state);
      }
    } catch (const std::bad_alloc&) {
      status = WithReason(ResourceExhausted(core_.info.name,
                                            ": the machine has no memory left: lower "
                                            "--memory_budget_bytes or use more servers"),
                          wire::ErrorReason::MEMORY_BUDGET);
    }
  } else {
    status = Refusal();
  }
  metered.Ended(status.code());
  if (!status.ok()) Throw(caller, status);
}

template <typename Request>
void Service::Run(Method method, const Request& request, wire::ServerState* state, Body body) {
  Serve(
      method, CallerOf(request), state, [&] { return CheckRequest(request); }, body);
}

absl::Status Service::Refusal() const {
  return draining_.load() ? DrainingError(core_.info.name) : StoppingError(core_.info.name);
}

void Service::CancelLongCalls() {
  checkpoints_.CancelReads();
  core_.registry.EndWaits(Refusal());
}

void Service::Shut() {
  gate_.Refuse();
  CancelLongCalls();
  gate_.Close();
}

absl::Status Service::AdmitCaller(Method method, const wire::Caller& caller, Admitted& admitted) {
  ASSIGN_OR_RETURN(admitted, core_.admission.Admit(caller));
  SkipVoidSequences(admitted, caller);
  // A client names the boot id of a restarted server in calls other than pushes only after it has
  // resent what the server lost.
  const bool pushes = method == Method("push") || method == Method("assign");
  if (!pushes && admitted.session != nullptr && caller.boot_id == core_.info.boot_id) {
    admitted.session->NoteCaughtUp();
  }
  return absl::OkStatus();
}

void Service::hello(wire::HelloReply& reply, const wire::HelloRequest& request) {
  Run("hello", request, nullptr, [&](const Admitted&) {
    return Hello(core_.catalog, core_.admission, core_.members, request, reply);
  });
}

void Service::heartbeat(wire::ServerState& state, const wire::Caller& caller) {
  Run("heartbeat", caller, &state, [](const Admitted&) { return absl::OkStatus(); });
}

void Service::leave(wire::ServerState& state, const wire::Caller& caller) {
  Run("leave", caller, &state, [&](const Admitted& admitted) {
    return Leave(core_.info, core_.admission, core_.flusher, admitted, caller.incarnation);
  });
}

void Service::create_variables(wire::ServerState& state, const wire::Caller& caller,
                               const std::vector<wire::VariableSpec>& specs) {
  const auto check = [&] {
    RETURN_IF_ERROR(CheckRequest(caller));
    return CheckRequest(specs);
  };
  Serve("create_variables", caller, &state, check, [&](const Admitted&) {
    return CreateVariables(core_.catalog, core_.moves, core_.rows, caller, specs);
  });
}

void Service::push(wire::PushReply& reply, const wire::PushRequest& request) {
  Run("push", request, &reply.state, [&](const Admitted& admitted) {
    RETURN_IF_ERROR(TakeArrivedIfBusy<wire::PushItem>(
        core_.catalog, core_.moves, admitted, request.items,
        Push(core_.rows, core_.order, steps_, admitted, request, reply)));
    CAIRN_CRASH_POINT("push: applied");
    RETURN_IF_ERROR(core_.flusher.AwaitPromised());
    CAIRN_CRASH_POINT("push: before the answer");
    return absl::OkStatus();
  });
}

void Service::assign(wire::PushReply& reply, const wire::AssignRequest& request) {
  Run("assign", request, &reply.state, [&](const Admitted& admitted) {
    RETURN_IF_ERROR(TakeArrivedIfBusy<wire::AssignItem>(
        core_.catalog, core_.moves, admitted, request.items,
        Assign(core_.rows, core_.order, steps_, admitted, request, reply)));
    return core_.flusher.AwaitPromised();
  });
}

void Service::pull(wire::PullReply& reply, const wire::PullRequest& request) {
  Run("pull", request, &reply.state,
      [&](const Admitted& admitted) { return PullInStep(admitted, request, reply); });
}

absl::Status Service::PullInStep(const Admitted& admitted, const wire::PullRequest& request,
                                 wire::PullReply& reply) {
  RETURN_IF_ERROR(AwaitStep(core_.info.name, steps_, admitted, request, reply));
  const auto pull = [&](const Admitted& now) {
    return TakeArrivedIfBusy<wire::PullItem>(
        core_.catalog, core_.moves, now, request.items,
        Pull(core_.rows, core_.info.boot_id, now, request, reply));
  };
  if (request.step == 0 || admitted.job == nullptr) return pull(admitted);
  // Rows may have moved during the wait, and may have newer values on their new server.
  Admitted now = admitted;
  now.variables = now.job->variables();
  return pull(now);
}

void Service::step(wire::StepReply& reply, const wire::StepRequest& request) {
  Run("step", request, &reply.push.state, [&](const Admitted& admitted) {
    RETURN_IF_ERROR(TakeArrivedIfBusy<wire::PushItem>(
        core_.catalog, core_.moves, admitted, request.push.items,
        Push(core_.rows, core_.order, steps_, admitted, request.push, reply.push)));
    if (request.pull.caller.job == request.push.caller.job) {
      RETURN_IF_ERROR(PullInStep(admitted, request.pull, reply.pull));
    } else {
      ASSIGN_OR_RETURN(const Admitted puller, core_.admission.Admit(request.pull.caller));
      RETURN_IF_ERROR(PullInStep(puller, request.pull, reply.pull));
    }
    return core_.flusher.AwaitPromised();
  });
  reply.pull.state = reply.push.state;
}

void Service::describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) {
  Run("describe", request, &reply.state, [&](const Admitted& admitted) {
    return Describe(core_.statistics, core_.budget, admitted, request, reply);
  });
}

void Service::scan(wire::ScanReply& reply, const wire::ScanRequest& request) {
  Run("scan", request, &reply.state, [&](const Admitted& admitted) {
    return TakeArrivedIfBusy<wire::ScanRequest>(
        core_.catalog, core_.moves, admitted, {&request, 1},
        Scan(core_.rows, core_.waits, admitted, request, reply));
  });
}

void Service::flush(wire::ServerState& state, const wire::Caller& caller) {
  Run("flush", caller, &state,
      [&](const Admitted&) { return core_.flusher.Flush(Flusher::Reach::kSynced); });
}

void Service::why(wire::WhyReply& reply, const wire::Caller& caller) {
  Run("why", caller, nullptr, [&](const Admitted&) {
    core_.admission.FillState(nullptr, nullptr, reply.state);
    FillWhy(core_.registry, core_.waits, caller, reply);
    return absl::OkStatus();
  });
}

void Service::drop_job(wire::ServerState& state, const wire::Caller& caller) {
  Run("drop_job", caller, nullptr, [&](const Admitted&) {
    RETURN_IF_ERROR(DropJob(core_.catalog, core_.admission, caller));
    core_.admission.FillState(nullptr, nullptr, state);
    return absl::OkStatus();
  });
}

void Service::checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest& request) {
  Run("checkpoint", request, &reply.state,
      [&](const Admitted&) { return checkpoints_.Make(request, reply); });
}

void Service::drop_checkpoint(wire::ServerState& state, const wire::CheckpointRequest& request) {
  Run("drop_checkpoint", request, &state,
      [&](const Admitted&) { return checkpoints_.Drop(request, core_.members.Departed()); });
}

void Service::restore(wire::RestoreReply& reply, const wire::RestoreRequest& request) {
  Run("restore", request, &reply.state, [&](const Admitted&) {
    return checkpoints_.Restore(core_.catalog, core_.rows, request, reply);
  });
}

void Service::move(wire::MoveReply& reply, const wire::MoveRequest& request) {
  Run("move", request, &reply.state, [&](const Admitted& admitted) {
    return MoveRows(core_.catalog, core_.moves, core_.admission, core_.rows, admitted, request,
                    reply);
  });
}

void Service::members(wire::Members& reply, const wire::Caller& caller) {
  wire::ServerState state;
  Run("members", caller, &state,
      [&](const Admitted&) { return TellMembers(core_.members, caller, reply); });
}

void Service::change_members(wire::ChangeMembersReply& reply,
                             const wire::ChangeMembersRequest& request) {
  Run("change_members", request, &reply.state, [&](const Admitted&) {
    return ChangeMembers(core_.catalog, core_.moves, core_.members, request, reply);
  });
}

absl::Status Service::Drain(const wire::Caller& caller) {
  RETURN_IF_ERROR(CheckRequest(caller));
  if (!core_.info.options.drained) {
    return Unimplemented(core_.info.name,
                         " runs in the process of a worker: end that process instead");
  }
  // This call must not enter the gate: Shut waits for all calls inside it.
  draining_.store(true);
  LOG(INFO) << core_.info.name << " drains at the request of " << caller.job
            << ": it rejects further calls, writes everything and exits";
  Shut();
  const absl::Status flushed = core_.flusher.Flush(Flusher::Reach::kSynced);
  core_.info.options.drained();
  return flushed;
}

void Service::drain(wire::ServerState& state, const wire::Caller& caller) {
  RpcMeter::Call metered(core_.rpcs, "drain");
  ++unanswered_drains_;
  ReplyHolds::KeepUntilSent(
      std::shared_ptr<const void>(nullptr, [this](const void*) { --unanswered_drains_; }));
  const absl::Status status = Drain(caller);
  metered.Ended(status.code());
  if (!status.ok()) Throw(caller, status);
  core_.admission.FillState(nullptr, nullptr, state);
}

}  // namespace cairn
