#include "worker/client/impl/training_steps.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "worker/client/delivery/retained_call.h"

namespace cairn {
namespace {

// A server keeps the memory of a push while the call waits for other workers, and those need
// memory, too. A larger push is sent in a separate call; the extra round trip is short beside its
// transfer.
constexpr size_t kLargestPushThatWaitsBytes = size_t{1} << 20;

}  // namespace

absl::Status TrainingSteps::Step(absl::Span<const PushSource> sources, absl::string_view position,
                                 absl::Span<const PullTarget> targets, Deadline deadline,
                                 int64_t rows) {
  if (deps_.identity.synchronous()) return Contribute(sources, position, rows, targets, deadline);
  size_t bytes = 0;
  for (const PushSource& source : sources) bytes += source.values.size();
  if (deps_.identity.consistency.mode == ConsistencyMode::kSsp &&
      bytes > kLargestPushThatWaitsBytes) {
    RETURN_IF_ERROR(deps_.data.Push(sources, position, {}, /*begins_step=*/false, deadline));
    sources = {};
  }
  return deps_.data.Push(sources, position, targets, /*begins_step=*/true, deadline);
}

absl::Status TrainingSteps::EndStep(absl::Span<const PushSource> sources,
                                    absl::string_view position, int64_t rows, Deadline deadline) {
  if (deps_.identity.synchronous()) return Contribute(sources, position, rows, {}, deadline);
  return deps_.data.Push(sources, position, {}, /*begins_step=*/false, deadline);
}

void TrainingSteps::Resume(const ResumePoint& point, absl::Span<const wire::HelloReply> replies) {
  int64_t durable_step = replies[0].state.durable_step;
  // ps:0 reports the sequences that are applied or named by a decision. A sequence that only other
  // servers have is void: its step closed without it. Void pushes keep their numbers, so that a
  // push has the same number in whichever start computes it, because a start may have to recompute
  // pushes that an earlier one had recomputed.
  recompute_through_ = 0;
  for (size_t s = 0; s < replies.size(); ++s) {
    if (deps_.sessions[s].departed()) continue;
    recompute_through_ = std::max(recompute_through_, replies[s].state.applied);
    durable_step = std::min(durable_step, replies[s].state.durable_step);
  }
  deps_.identity.steps->Begin(replies[0].step, durable_step);
  recomputes_ = point.sequence < recompute_through_;
}

absl::StatusOr<bool> TrainingSteps::Recomputes(Deadline deadline) {
  if (!recomputes_) return false;
  RETURN_IF_ERROR(deps_.order.Acquire(deadline));
  if (deps_.order.next() > recompute_through_) recomputes_ = false;
  deps_.order.Release();
  return recomputes_.load();
}

absl::Status TrainingSteps::Contribute(absl::Span<const PushSource> sources,
                                       absl::string_view position, int64_t rows,
                                       absl::Span<const PullTarget> targets, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("step", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  if (rows < 1) return InvalidArgument("step: `rows` is ", rows, "; it must be at least 1");
  deps_.identity.clock->Next();  // also after EndSteps
  ASSIGN_OR_RETURN(const bool again, Recomputes(deadline));
  // A recomputed contribution counts for the step whose decision names it, or for none, like a late
  // one.
  const int64_t step =
      again ? std::max<int64_t>(deps_.identity.steps->open() - 1, 1) : deps_.identity.steps->open();
  if (sources.empty())
    return again ? deps_.data.Pull(targets, deadline) : PullStep(step, targets, deadline);
  RETURN_IF_ERROR(PushContribution(sources, position, rows, step, again, deadline));
  // Servers cannot close the earlier steps before they have every recomputed contribution, so do
  // not wait for steps yet.
  ASSIGN_OR_RETURN(const bool more, Recomputes(deadline));
  if (more) return deps_.data.Pull(targets, deadline);
  return PullStep(again ? deps_.identity.steps->open() : step + 1, targets, deadline);
}

absl::Status TrainingSteps::PushContribution(absl::Span<const PushSource> sources,
                                             absl::string_view position, int64_t rows, int64_t step,
                                             bool again, Deadline deadline) {
  PlanPool::Lease plan(&deps_.plans);
  bool skip = false;
  RETURN_IF_ERROR(deps_.planner.Push(sources, &*plan, &skip));
  if (skip) return absl::OkStatus();
  (*plan).ContributeToAll(step, rows);
  bool moved = false;  // moved items have been delivered to their new servers by then
  RETURN_IF_ERROR(deps_.data.Deliver(*plan, /*updates=*/true, &position, deadline, &moved));
  if (again) return absl::OkStatus();
  const absl::Span<Exchange* const> pushed = (*plan).Wave(0);
  const bool late = std::ranges::any_of(
      pushed, [](const Exchange* exchange) { return exchange->call.reply.push.dropped; });
  if (late) {
    pushes_late_.fetch_add(1, std::memory_order_relaxed);
  } else {
    deps_.identity.steps->Contributed(step, deps_.identity.worker,
                                      SequenceOf(pushed[0]->call).sequence);
  }
  return absl::OkStatus();
}

absl::Status TrainingSteps::PullStep(int64_t step, absl::Span<const PullTarget> targets,
                                     Deadline deadline) {
  for (bool moved = true; moved;) {
    RETURN_IF_ERROR(PullStepOnce(step, targets, deadline, &moved));
    if (moved) RETURN_IF_ERROR(deps_.gate.Check("step", deadline, ClientGate::kRowsMove));
  }
  return absl::OkStatus();
}

absl::Status TrainingSteps::PullStepOnce(int64_t step, absl::Span<const PullTarget> targets,
                                         Deadline deadline, bool* moved) {
  PlanPool::Lease lease(&deps_.plans);
  DataPlan& plan = *lease;
  plan.PullFromAll(step);
  RETURN_IF_ERROR(deps_.planner.Pull(targets, &plan));
  const size_t waves = plan.WaveCount();
  std::vector<Exchange*> first, others;
  for (Exchange* exchange : plan.Wave(0)) {
    exchange->repeatable = true;
    deps_.identity.steps->NeedAfter(exchange->session->closed_step());
    (exchange->session->index() == 0 ? first : others).push_back(exchange);
  }
  CAIRN_CRASH_POINT("step: before ps:0 is told");
  RETURN_IF_ERROR(RunStepPulls(plan, first, deadline, moved));
  if (*moved) return absl::OkStatus();
  CAIRN_CRASH_POINT("step: told by ps:0");
  for (Exchange* exchange : others) exchange->call.step = deps_.identity.steps->open();
  RETURN_IF_ERROR(RunStepPulls(plan, others, deadline, moved));
  for (size_t wave = 1; wave < waves && !*moved; ++wave) {
    RETURN_IF_ERROR(deps_.deliverer.Pull(plan, wave, deadline, moved));
  }
  if (*moved) return absl::OkStatus();
  plan.CopyRepeats();
  deps_.data.Count(plan);
  return absl::OkStatus();
}

absl::Status TrainingSteps::RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                         Deadline deadline, bool* moved) {
  *moved = false;
  if (exchanges.empty()) return absl::OkStatus();
  // read first: the sessions below include every server of this version
  const int64_t members_version = deps_.membership.version();
  int64_t all_durable = std::numeric_limits<int64_t>::max();
  deps_.sessions.ForEachLive([&](const ServerSession& session) {
    all_durable = std::min(all_durable, session.durable_step());
  });
  deps_.identity.steps->Forget(all_durable);
  for (Exchange* exchange : exchanges) {
    exchange->call.request.pull.all_durable_step = all_durable;
    exchange->call.request.pull.members_version = members_version;
  }
  const absl::Status status = deps_.fan_out.Run(
      exchanges, deadline, [&](Exchange& exchange) { return StepPulled(plan, exchange); });
  *moved = !status.ok() && deps_.maps.Learn(exchanges, deadline);
  return *moved ? absl::OkStatus() : status;
}

absl::Status TrainingSteps::StepPulled(DataPlan& plan, Exchange& exchange) {
  const wire::PullReply& reply = exchange.call.reply.pull;
  exchange.session->Learn(reply.state);
  const bool first = exchange.session->index() == 0;
  if (first) {
    const int64_t late = deps_.identity.steps->Learn(reply.decisions, reply.step);
    pushes_late_.fetch_add(late, std::memory_order_relaxed);
  }
  // Where more decisions are outstanding than one call can carry, in either direction, the call is
  // repeated.
  const bool has_all = first ? deps_.identity.steps->last_decided() >= reply.step - 1
                             : reply.step >= exchange.call.step;
  if (!has_all)
    return absl::AbortedError("more step decisions are outstanding than fit in one call");
  if (first) deps_.identity.steps->SetOpen(reply.step);
  return plan.StoreReply(exchange, [this](int64_t value) { deps_.staleness.Add(value); });
}

absl::Status TrainingSteps::EndSteps(Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("end of steps", deadline));
  deps_.identity.clock->End();
  if (!deps_.identity.sequenced()) return absl::OkStatus();
  return deps_.calls.All(deps_.sessions.Live(), "pull", deps_.calls.rpc_timeout(), deadline,
                         [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                           wire::PullRequest request;
                           request.caller = caller;
                           request.step = -1;
                           wire::PullReply reply;
                           service.pull(reply, request);
                         });
}

absl::StatusOr<int64_t> TrainingSteps::LargestGap(Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("why", deadline));
  const std::vector<int32_t> servers = deps_.sessions.Live();
  std::vector<int64_t> gaps(deps_.sessions.size());
  RETURN_IF_ERROR(deps_.calls.All(
      servers, "why", deps_.calls.rpc_timeout(), deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
        wire::WhyReply reply;
        service.why(reply, caller);
        for (const wire::WorkerStanding& standing : reply.workers) {
          if (standing.worker == deps_.identity.worker) gaps[server] = standing.largest_step_gap;
        }
      }));
  return *std::ranges::max_element(gaps);
}

}  // namespace cairn
