#include "worker/client/impl/lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"

namespace cairn {

absl::Status Lifecycle::Start(Deadline deadline) {
  absl::Duration lease;
  RETURN_IF_ERROR(SayHello(deadline, /*dropped=*/false, &lease));
  if (identity_.sequenced() && lease > absl::ZeroDuration()) heartbeats_.Start(lease);
  return absl::OkStatus();
}

absl::Status Lifecycle::CheckHoldings(Deadline deadline, std::vector<wire::HelloReply>& replies) {
  // The last look waits for as long as any call.
  for (absl::Duration look = absl::Seconds(2);; look *= 2) {
    const bool last = look >= identity_.ps_wait;
    const Deadline until = last ? deadline : Deadline::Earlier(deadline, Deadline::In(look));
    const absl::StatusOr<JobHoldings> holdings = calls_.Describe(sessions_.Live(), until);
    if (holdings.ok()) return CheckAgreement(*holdings);
    const bool silent =
        absl::IsUnavailable(holdings.status()) || absl::IsDeadlineExceeded(holdings.status());
    if (!silent || last || deadline.Expired()) return holdings.status();
    for (const int32_t server : sessions_.Live()) {
      const auto s = static_cast<size_t>(server);
      membership_.HasLeftUnheard(sessions_[s], deadline, &replies[s]);
    }
  }
}

absl::Status Lifecycle::SayHello(Deadline deadline, bool dropped, absl::Duration* lease) {
  wire::HelloReply first;
  RETURN_IF_ERROR(membership_.GreetFirst(deadline, &first));
  std::vector<wire::HelloReply> replies(sessions_.size());
  // Before the others take over the timeline of ps:0: one that has lost the job would look whole.
  if (identity_.sequenced() && !dropped) RETURN_IF_ERROR(CheckHoldings(deadline, replies));
  if (identity_.synchronous()) identity_.steps->Begin(first.step, first.step - 1);
  CAIRN_CRASH_POINT("worker: hello to ps:0 alone");
  const std::vector<int32_t> servers = sessions_.Live();
  replies[0] = std::move(first);
  RETURN_IF_ERROR(calls_.ForEach(absl::MakeConstSpan(servers).subspan(1), [&](int32_t server) {
    const auto s = static_cast<size_t>(server);
    return membership_.Greet(sessions_[s], deadline, &replies[s]);
  }));
  double lease_seconds = replies[0].lease_seconds;
  for (size_t s = 0; s < replies.size(); ++s) {
    const wire::HelloReply& reply = replies[s];
    if (reply.max_message_bytes > 0) {
      plan_limits_.max_message_bytes =
          std::min(plan_limits_.max_message_bytes, reply.max_message_bytes);
    }
    if (!sessions_[s].left()) lease_seconds = std::min(lease_seconds, reply.lease_seconds);
  }
  *lease = absl::Seconds(lease_seconds);
  Resume(replies);
  return absl::OkStatus();
}

void Lifecycle::Resume(std::vector<wire::HelloReply>& replies) {
  const ResumePoint point = ChooseResumePoint(membership_.Answers(replies));
  for (size_t s = 0; s < replies.size(); ++s) {
    if (sessions_[s].left()) continue;
    sessions_[s].Begin(replies[s], membership_.incarnation(), point.last_part[s], point.sequence);
  }
  position_ = point.position;
  order_.Reset(point.sequence, point.position);
  deliverer_.Begin(point);
  if (identity_.synchronous()) steps_.Resume(point, replies);
}

absl::Status Lifecycle::Flush(Deadline deadline) {
  RETURN_IF_ERROR(gate_.Check("flush", deadline));
  return calls_.ForEach(sessions_.Live(), [&](int32_t server) {
    return calls_.Flush(server, deadline.Remaining(), deadline);
  });
}

absl::Status Lifecycle::Leave(Deadline deadline) {
  if (!identity_.sequenced()) {
    RETURN_IF_ERROR(Flush(deadline));
    gate_.Close();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(gate_.Check("leave", deadline));
  RETURN_IF_ERROR(order_.TakeTurn(deadline));  // after the push that is under way
  retention_gate_.Stop();  // an epoch after `leave` would look like a worker that is back
  CAIRN_CRASH_POINT("worker: before it leaves");
  absl::Status status = calls_.ForEach(sessions_.Live(), [&](int32_t server) {
    wire::ServerState state;
    RETURN_IF_ERROR(calls_.One(server, "leave", deadline.Remaining(), deadline,
                               [&](wire::ParameterServerIf& service, const wire::Caller& caller,
                                   int32_t) { service.leave(state, caller); }));
    sessions_[static_cast<size_t>(server)].Learn(state);
    CAIRN_CRASH_POINT("worker: has left one server");
    return absl::OkStatus();
  });
  if (status.ok()) gate_.Close();
  order_.EndTurn();
  if (status.ok()) heartbeats_.Stop();
  return status;
}

absl::Status Lifecycle::DropJob(Deadline deadline) {
  RETURN_IF_ERROR(gate_.Check("drop_job", deadline));
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  absl::Status status;
  {
    // A heartbeat between forgetting and hello would be one of an unknown worker.
    absl::MutexLock lock(&heartbeats_.mutex());
    const std::vector<int32_t> servers = sessions_.Live();
    sessions_.ForEachLive([](ServerSession& session) { session.ForgetPushes(); });
    status = calls_.All(servers, "drop_job", deadline.Remaining(), deadline,
                        [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                          wire::ServerState state;
                          service.drop_job(state, caller);
                        });
    CAIRN_CRASH_POINT("worker: job dropped");
    if (status.ok()) {
      variables_.Clear();
      absl::Duration lease;  // as before
      status = SayHello(deadline, /*dropped=*/true, &lease);
    }
  }
  if (status.ok()) catalog_.Clear();
  order_.EndTurn();
  return status;
}

}  // namespace cairn
