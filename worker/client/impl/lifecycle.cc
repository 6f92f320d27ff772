#include "worker/client/impl/lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/types/span.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"

namespace cairn {

absl::Status Lifecycle::Start(Deadline deadline) {
  absl::Duration lease;
  RETURN_IF_ERROR(SayHello(deadline, /*dropped=*/false, &lease));
  if (!deps_.identity.sequenced() || lease <= absl::ZeroDuration()) return absl::OkStatus();
  return deps_.heartbeats.Start(lease);
}

absl::Status Lifecycle::CheckHoldings(Deadline deadline, std::vector<wire::HelloReply>& replies) {
  // Looks are short at first, so that a server that has left is noticed; the last one waits as long
  // as any call.
  for (absl::Duration look = absl::Seconds(2);; look *= 2) {
    const bool last = look >= deps_.identity.ps_wait;
    const Deadline until = last ? deadline : Deadline::Earlier(deadline, Deadline::In(look));
    const absl::StatusOr<JobHoldings> holdings = deps_.calls.Describe(deps_.sessions.Live(), until);
    if (holdings.ok()) return CheckAgreement(*holdings);
    const bool silent =
        absl::IsUnavailable(holdings.status()) || absl::IsDeadlineExceeded(holdings.status());
    if (!silent || last || deadline.Expired()) return holdings.status();
    for (const int32_t server : deps_.sessions.Live()) {
      const auto s = static_cast<size_t>(server);
      deps_.membership.AskWhetherLeft(deps_.sessions[s], deadline, &replies[s]);
    }
  }
}

absl::Status Lifecycle::SayHello(Deadline deadline, bool dropped, absl::Duration* lease) {
  wire::HelloReply first;
  RETURN_IF_ERROR(deps_.membership.SayHelloToFirst(deadline, &first));
  std::vector<wire::HelloReply> replies(deps_.sessions.size());
  // Check before the other servers adopt the timeline of ps:0. Afterwards a server that lost the
  // job could not be told from a new one.
  if (deps_.identity.sequenced() && !dropped) RETURN_IF_ERROR(CheckHoldings(deadline, replies));
  if (deps_.identity.synchronous()) deps_.identity.steps->Begin(first.step, first.step - 1);
  CAIRN_CRASH_POINT("worker: hello to ps:0 alone");
  const std::vector<int32_t> servers = deps_.sessions.Live();
  replies[0] = std::move(first);
  RETURN_IF_ERROR(deps_.calls.ForEach(absl::MakeConstSpan(servers).subspan(1), [&](int32_t server) {
    const auto s = static_cast<size_t>(server);
    return deps_.membership.SayHello(deps_.sessions[s], deadline, &replies[s]);
  }));
  double lease_seconds = replies[0].lease_seconds;
  for (size_t s = 0; s < replies.size(); ++s) {
    const wire::HelloReply& reply = replies[s];
    deps_.plan_limits.LowerMessageBytes(reply.max_message_bytes);
    if (!deps_.sessions[s].departed()) lease_seconds = std::min(lease_seconds, reply.lease_seconds);
  }
  *lease = absl::Seconds(lease_seconds);
  Resume(replies);
  return absl::OkStatus();
}

void Lifecycle::Resume(std::vector<wire::HelloReply>& replies) {
  const ResumePoint point = ChooseResumePoint(deps_.membership.Answers(replies));
  for (size_t s = 0; s < replies.size(); ++s) {
    if (deps_.sessions[s].departed()) continue;
    deps_.sessions[s].Begin(replies[s], deps_.membership.incarnation(), point.last_part[s],
                            point.sequence);
  }
  position_ = point.position;
  deps_.order.Reset(point.sequence, point.position);
  deps_.deliverer.Begin(point);
  if (deps_.identity.synchronous()) deps_.steps.Resume(point, replies);
}

absl::Status Lifecycle::Flush(Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("flush", deadline));
  return deps_.calls.ForEach(deps_.sessions.Live(), [&](int32_t server) {
    return deps_.calls.Flush(server, deadline.Remaining(), deadline);
  });
}

absl::Status Lifecycle::Leave(Deadline deadline) {
  if (!deps_.identity.sequenced()) {
    RETURN_IF_ERROR(Flush(deadline));
    deps_.gate.Close();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(deps_.gate.Check("leave", deadline));
  RETURN_IF_ERROR(LeaveServers(deadline));
  deps_.heartbeats.Stop();
  return absl::OkStatus();
}

absl::Status Lifecycle::LeaveServers(Deadline deadline) {
  RETURN_IF_ERROR(deps_.order.Acquire(deadline));  // after a push that is being delivered
  const absl::Cleanup release = [this] { deps_.order.Release(); };
  // A flush after `leave` would look like a worker that came back. Half of the time is left for the
  // calls of `leave`.
  deps_.retention_gate.Stop(Deadline::In(deadline.Remaining() / 2));
  CAIRN_CRASH_POINT("worker: before it leaves");
  absl::Status status = deps_.calls.ForEach(deps_.sessions.Live(), [&](int32_t server) {
    wire::ServerState state;
    RETURN_IF_ERROR(
        deps_.calls.One(server, "leave", deadline.Remaining(), deadline,
                        [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                          service.leave(state, caller);
                        }));
    deps_.sessions[static_cast<size_t>(server)].Learn(state);
    CAIRN_CRASH_POINT("worker: has left one server");
    return absl::OkStatus();
  });
  if (status.ok()) deps_.gate.Close();
  return status;
}

absl::Status Lifecycle::DropJob(Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("drop_job", deadline));
  RETURN_IF_ERROR(deps_.order.Acquire(deadline));
  const absl::Cleanup release = [this] { deps_.order.Release(); };
  absl::Status status;
  {
    RETURN_IF_ERROR(deps_.heartbeats.HoldBack(deadline));
    const absl::Cleanup resume = [this] { deps_.heartbeats.Resume(); };
    const std::vector<int32_t> servers = deps_.sessions.Live();
    deps_.sessions.ForEachLive([](ServerSession& session) { session.ForgetPushes(); });
    status =
        deps_.calls.All(servers, "drop_job", deadline.Remaining(), deadline,
                        [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                          wire::ServerState state;
                          service.drop_job(state, caller);
                        });
    CAIRN_CRASH_POINT("worker: job dropped");
    if (status.ok()) {
      deps_.variables.Clear();
      absl::Duration lease;  // unchanged
      status = SayHello(deadline, /*dropped=*/true, &lease);
    }
  }
  if (status.ok()) deps_.catalog.Clear();
  return status;
}

}  // namespace cairn
