#include "worker/client/impl/training_steps.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "worker/client/delivery/retained_call.h"

namespace cairn {
namespace {

// A server holds the memory of a push while the call waits for other workers, who need some too. A
// larger one goes in a call of its own: the round trip is little beside its transfer.
constexpr size_t kLargestPushThatWaitsBytes = size_t{1} << 20;

}  // namespace

absl::Status TrainingSteps::Step(absl::Span<const PushSource> sources, absl::string_view position,
                                 absl::Span<const PullTarget> targets, Deadline deadline,
                                 int64_t rows) {
  if (identity_.synchronous()) return Contribute(sources, position, rows, targets, deadline);
  size_t bytes = 0;
  for (const PushSource& source : sources) bytes += source.values.size();
  if (identity_.consistency.mode == ConsistencyMode::kSsp && bytes > kLargestPushThatWaitsBytes) {
    RETURN_IF_ERROR(data_.Push(sources, position, {}, /*begins_step=*/false, deadline));
    sources = {};
  }
  return data_.Push(sources, position, targets, /*begins_step=*/true, deadline);
}

absl::Status TrainingSteps::EndStep(absl::Span<const PushSource> sources,
                                    absl::string_view position, int64_t rows, Deadline deadline) {
  if (identity_.synchronous()) return Contribute(sources, position, rows, {}, deadline);
  return data_.Push(sources, position, {}, /*begins_step=*/false, deadline);
}

void TrainingSteps::Resume(const ResumePoint& point, absl::Span<const wire::HelloReply> replies) {
  int64_t durable_step = replies[0].state.durable_step;
  // What ps:0 says is applied or named. What another server has beside that is void: a step closed
  // there without it. It keeps its number, so that whatever start computes a push, it is the same
  // under that number: one may have to compute again what the one before it did.
  recompute_through_ = 0;
  for (size_t s = 0; s < replies.size(); ++s) {
    if (sessions_[s].left()) continue;
    recompute_through_ = std::max(recompute_through_, replies[s].state.applied);
    durable_step = std::min(durable_step, replies[s].state.durable_step);
  }
  identity_.steps->Begin(replies[0].step, durable_step);
  recomputes_ = point.sequence < recompute_through_;
}

absl::StatusOr<bool> TrainingSteps::Recomputes(Deadline deadline) {
  if (!recomputes_) return false;
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  if (order_.next() > recompute_through_) recomputes_ = false;
  order_.EndTurn();
  return recomputes_.load();
}

absl::Status TrainingSteps::Contribute(absl::Span<const PushSource> sources,
                                       absl::string_view position, int64_t rows,
                                       absl::Span<const PullTarget> targets, Deadline deadline) {
  RETURN_IF_ERROR(gate_.Check("step", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  if (rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("step: the gradient is that of ", rows, " rows; 1 or more are needed"));
  }
  identity_.clock->Next();  // steps are taken (again)
  ASSIGN_OR_RETURN(const bool again, Recomputes(deadline));
  // What is computed again counts for the steps that name it, or for none, as one that is late.
  const int64_t step =
      again ? std::max<int64_t>(identity_.steps->open() - 1, 1) : identity_.steps->open();
  if (sources.empty())
    return again ? data_.Pull(targets, deadline) : PullStep(step, targets, deadline);
  RETURN_IF_ERROR(PushContribution(sources, position, rows, step, again, deadline));
  // Servers cannot close the steps before until they have all of it: nobody waits for them yet.
  ASSIGN_OR_RETURN(const bool more, Recomputes(deadline));
  if (more) return data_.Pull(targets, deadline);
  return PullStep(again ? identity_.steps->open() : step + 1, targets, deadline);
}

absl::Status TrainingSteps::PushContribution(absl::Span<const PushSource> sources,
                                             absl::string_view position, int64_t rows, int64_t step,
                                             bool again, Deadline deadline) {
  PlanPool::Lease plan(&plans_);
  bool skip = false;
  RETURN_IF_ERROR(planner_.Push(sources, &*plan, &skip));
  if (skip) return absl::OkStatus();
  (*plan).ContributeToAll(step, rows);
  bool moved = false;  // what has moved is where it belongs by then
  RETURN_IF_ERROR(data_.Deliver(*plan, /*updates=*/true, &position, deadline, &moved));
  if (again) return absl::OkStatus();
  const absl::Span<Exchange* const> pushed = (*plan).Wave(0);
  const bool late = std::any_of(pushed.begin(), pushed.end(), [](const Exchange* exchange) {
    return exchange->call.reply.push.dropped;
  });
  if (late) {
    pushes_late_.fetch_add(1, std::memory_order_relaxed);
  } else {
    identity_.steps->Contributed(step, identity_.worker, SequenceOf(pushed[0]->call).sequence);
  }
  return absl::OkStatus();
}

absl::Status TrainingSteps::PullStep(int64_t step, absl::Span<const PullTarget> targets,
                                     Deadline deadline) {
  for (bool moved = true; moved;) {
    RETURN_IF_ERROR(PullStepOnce(step, targets, deadline, &moved));
    if (moved) RETURN_IF_ERROR(gate_.Check("step, while rows move", deadline));
  }
  return absl::OkStatus();
}

absl::Status TrainingSteps::PullStepOnce(int64_t step, absl::Span<const PullTarget> targets,
                                         Deadline deadline, bool* moved) {
  PlanPool::Lease lease(&plans_);
  DataPlan& plan = *lease;
  plan.PullFromAll(step);
  RETURN_IF_ERROR(planner_.Pull(targets, &plan));
  const size_t waves = plan.WaveCount();
  std::vector<Exchange*> first, others;
  for (Exchange* exchange : plan.Wave(0)) {
    exchange->repeatable = true;
    identity_.steps->NeedAfter(exchange->session->closed_step());
    (exchange->session->index() == 0 ? first : others).push_back(exchange);
  }
  CAIRN_CRASH_POINT("step: before ps:0 is told");
  RETURN_IF_ERROR(RunStepPulls(plan, first, deadline, moved));
  if (*moved) return absl::OkStatus();
  CAIRN_CRASH_POINT("step: told by ps:0");
  for (Exchange* exchange : others) exchange->call.step = identity_.steps->open();
  RETURN_IF_ERROR(RunStepPulls(plan, others, deadline, moved));
  for (size_t wave = 1; wave < waves && !*moved; ++wave) {
    RETURN_IF_ERROR(deliverer_.Pull(plan, wave, deadline, moved));
  }
  if (!*moved) data_.Count(plan);
  return absl::OkStatus();
}

absl::Status TrainingSteps::RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                         Deadline deadline, bool* moved) {
  *moved = false;
  if (exchanges.empty()) return absl::OkStatus();
  const int64_t members_version = membership_.version();  // or a newer one
  int64_t all_durable = std::numeric_limits<int64_t>::max();
  sessions_.ForEachLive([&](const ServerSession& session) {
    all_durable = std::min(all_durable, session.durable_step());
  });
  identity_.steps->Forget(all_durable);
  for (Exchange* exchange : exchanges) {
    exchange->call.request.pull.all_durable_step = all_durable;
    exchange->call.request.pull.members_version = members_version;
  }
  const absl::Status status =
      fan_out_.Run(exchanges, /*finish_all=*/false, deadline,
                   [&](Exchange& exchange) { return StepPulled(plan, exchange); });
  *moved = !status.ok() && maps_.Learn(exchanges, deadline);
  return *moved ? absl::OkStatus() : status;
}

absl::Status TrainingSteps::StepPulled(DataPlan& plan, Exchange& exchange) {
  const wire::PullReply& reply = exchange.call.reply.pull;
  exchange.session->Learn(reply.state);
  const bool first = exchange.session->index() == 0;
  if (first) {
    const int64_t late = identity_.steps->Learn(reply.decisions, reply.step);
    pushes_late_.fetch_add(late, std::memory_order_relaxed);
  }
  // There was more to be told, either way, than one call holds.
  const bool told =
      first ? identity_.steps->last_decided() >= reply.step - 1 : reply.step >= exchange.call.step;
  if (!told) return absl::AbortedError("the server is further behind than one call can tell");
  if (first) identity_.steps->SetOpen(reply.step);
  return plan.Land(exchange, [this](int64_t value) { staleness_.Add(value); });
}

absl::Status TrainingSteps::EndSteps(Deadline deadline) {
  RETURN_IF_ERROR(gate_.Check("end of steps", deadline));
  identity_.clock->End();
  if (!identity_.sequenced()) return absl::OkStatus();
  return calls_.All(sessions_.Live(), "pull", calls_.rpc_timeout(), deadline,
                    [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                      wire::PullRequest request;
                      request.caller = caller;
                      request.step = -1;
                      wire::PullReply reply;
                      service.pull(reply, request);
                    });
}

absl::StatusOr<int64_t> TrainingSteps::LargestGap(Deadline deadline) {
  RETURN_IF_ERROR(gate_.Check("why", deadline));
  const std::vector<int32_t> servers = sessions_.Live();
  std::vector<int64_t> gaps(sessions_.size());
  RETURN_IF_ERROR(
      calls_.All(servers, "why", calls_.rpc_timeout(), deadline,
                 [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
                   wire::WhyReply reply;
                   service.why(reply, caller);
                   for (const wire::WorkerStanding& standing : reply.workers) {
                     if (standing.worker == identity_.worker)
                       gaps[server] = standing.largest_step_gap;
                   }
                 }));
  return *std::max_element(gaps.begin(), gaps.end());
}

}  // namespace cairn
