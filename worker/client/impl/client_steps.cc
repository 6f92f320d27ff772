// Training steps: what the client tells the servers of them, and asks.
#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "worker/client/delivery/retained_call.h"
#include "worker/client/impl/client_impl.h"

namespace cairn {
namespace {

// A server holds the memory of a push while the call waits for other workers, who need some too. A
// larger one goes in a call of its own: the round trip is little beside its transfer.
constexpr size_t kLargestPushThatWaitsBytes = size_t{1} << 20;

}  // namespace

absl::Status PsClientImpl::Step(absl::Span<const PushSource> sources, absl::string_view position,
                                absl::Span<const PullTarget> targets, Deadline deadline,
                                int64_t rows) {
  if (identity_.synchronous()) return Contribute(sources, position, rows, targets, deadline);
  size_t bytes = 0;
  for (const PushSource& source : sources) bytes += source.values.size();
  if (options_.consistency.mode == ConsistencyMode::kSsp && bytes > kLargestPushThatWaitsBytes) {
    RETURN_IF_ERROR(Push(sources, position, deadline));
    sources = {};
  }
  return PushThenPull(sources, position, targets, /*begins_step=*/true, deadline);
}

absl::Status PsClientImpl::EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                                   int64_t rows, Deadline deadline) {
  if (identity_.synchronous()) return Contribute(sources, position, rows, {}, deadline);
  return Push(sources, position, deadline);
}

void PsClientImpl::ResumeSteps(const ResumePoint& point,
                               absl::Span<const wire::HelloReply> replies) {
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
  steps_.Begin(replies[0].step, durable_step);
  recomputes_ = point.sequence < recompute_through_;
}

absl::StatusOr<bool> PsClientImpl::Recomputes(Deadline deadline) {
  if (!recomputes_) return false;
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  if (order_.next() > recompute_through_) recomputes_ = false;
  order_.EndTurn();
  return recomputes_.load();
}

absl::Status PsClientImpl::Contribute(absl::Span<const PushSource> sources,
                                      absl::string_view position, int64_t rows,
                                      absl::Span<const PullTarget> targets, Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("step", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  if (rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("step: the gradient is that of ", rows, " rows; 1 or more are needed"));
  }
  clock_.Next();  // steps are taken (again)
  ASSIGN_OR_RETURN(const bool again, Recomputes(deadline));
  // What is computed again counts for the steps that name it, or for none, as one that is late.
  const int64_t step = again ? std::max<int64_t>(steps_.open() - 1, 1) : steps_.open();
  if (sources.empty()) return again ? Pull(targets, deadline) : PullStep(step, targets, deadline);
  {
    PlanPool::Lease plan(&plans_);
    bool skip = false;
    RETURN_IF_ERROR(PlanPush(sources, &*plan, &skip));
    if (!skip) {
      (*plan).ContributeToAll(step, rows);
      bool moved = false;  // what has moved is where it belongs by then
      RETURN_IF_ERROR(RunPlan(*plan, /*updates=*/true, &position, deadline, &moved));
      const absl::Span<Exchange* const> pushed = (*plan).Wave(0);
      const bool late = std::any_of(pushed.begin(), pushed.end(), [](const Exchange* exchange) {
        return exchange->call.reply.push.dropped;
      });
      if (!again && late) pushes_late_.fetch_add(1, std::memory_order_relaxed);
      if (!again && !late) {
        steps_.Contributed(step, identity_.worker, SequenceOf(pushed[0]->call).sequence);
      }
    }
  }
  // Servers cannot close the steps before until they have all of it: nobody waits for them yet.
  ASSIGN_OR_RETURN(const bool more, Recomputes(deadline));
  if (more) return Pull(targets, deadline);
  return PullStep(again ? steps_.open() : step + 1, targets, deadline);
}

absl::Status PsClientImpl::PullStep(int64_t step, absl::Span<const PullTarget> targets,
                                    Deadline deadline) {
  for (bool moved = true; moved;) {
    RETURN_IF_ERROR(PullStepOnce(step, targets, deadline, &moved));
    if (moved) RETURN_IF_ERROR(CheckOpen("step, while rows move", deadline));
  }
  return absl::OkStatus();
}

absl::Status PsClientImpl::PullStepOnce(int64_t step, absl::Span<const PullTarget> targets,
                                        Deadline deadline, bool* moved) {
  PlanPool::Lease lease(&plans_);
  DataPlan& plan = *lease;
  plan.PullFromAll(step);
  RETURN_IF_ERROR(PlanPulls(targets, &plan));
  const size_t waves = plan.WaveCount();
  *moved = false;
  const auto met_moved = [&](absl::Span<Exchange* const> exchanges, const absl::Status& status) {
    *moved = !status.ok() && moved_updates_.LearnMaps(exchanges, deadline);
    return *moved;
  };
  std::vector<Exchange*> first, others;
  for (Exchange* exchange : plan.Wave(0)) {
    exchange->repeatable = true;
    steps_.NeedAfter(exchange->session->closed_step());
    (exchange->session->index() == 0 ? first : others).push_back(exchange);
  }
  CAIRN_CRASH_POINT("step: before ps:0 is told");
  absl::Status status = RunStepPulls(plan, first, deadline);
  if (met_moved(first, status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  CAIRN_CRASH_POINT("step: told by ps:0");
  for (Exchange* exchange : others) exchange->call.step = steps_.open();
  status = RunStepPulls(plan, others, deadline);
  if (met_moved(others, status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  for (size_t wave = 1; wave < waves; ++wave) {
    status = RunWave(plan, wave, /*numbered=*/false, deadline);
    if (met_moved(plan.Wave(wave), status)) return absl::OkStatus();
    RETURN_IF_ERROR(status);
  }
  bytes_pulled_.fetch_add(plan.bytes_in(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status PsClientImpl::RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                        Deadline deadline) {
  if (exchanges.empty()) return absl::OkStatus();
  const int64_t members_version = membership_.version();  // or a newer one
  int64_t all_durable = std::numeric_limits<int64_t>::max();
  sessions_.ForEachLive([&](const ServerSession& session) {
    all_durable = std::min(all_durable, session.durable_step());
  });
  steps_.Forget(all_durable);
  for (Exchange* exchange : exchanges) {
    exchange->call.request.pull.all_durable_step = all_durable;
    exchange->call.request.pull.members_version = members_version;
  }
  int64_t retries = 0;
  absl::Status status = fan_out_.Run(
      exchanges, /*finish_all=*/false, deadline,
      [&](Exchange& exchange) { return StepPulled(plan, exchange); }, &retries);
  CountRetries(retries);
  return status;
}

absl::Status PsClientImpl::StepPulled(DataPlan& plan, Exchange& exchange) {
  const wire::PullReply& reply = exchange.call.reply.pull;
  exchange.session->Learn(reply.state);
  const bool first = exchange.session->index() == 0;
  if (first) {
    const int64_t late = steps_.Learn(reply.decisions, reply.step);
    pushes_late_.fetch_add(late, std::memory_order_relaxed);
  }
  // There was more to be told, either way, than one call holds.
  const bool told =
      first ? steps_.last_decided() >= reply.step - 1 : reply.step >= exchange.call.step;
  if (!told) return absl::AbortedError("the server is further behind than one call can tell");
  if (first) steps_.SetOpen(reply.step);
  return plan.Land(exchange, [this](int64_t value) { staleness_.Add(value); });
}

absl::Status PsClientImpl::EndSteps(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("end of steps", deadline));
  clock_.End();
  if (!identity_.sequenced()) return absl::OkStatus();
  return CallAll(sessions_.Live(), "pull", options_.rpc_timeout, deadline,
                 [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                   wire::PullRequest request;
                   request.caller = caller;
                   request.step = -1;
                   wire::PullReply reply;
                   service.pull(reply, request);
                 });
}

absl::StatusOr<int64_t> PsClientImpl::LargestStepGap(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("why", deadline));
  const std::vector<int32_t> servers = sessions_.Live();
  std::vector<int64_t> gaps(sessions_.size());
  RETURN_IF_ERROR(
      CallAll(servers, "why", options_.rpc_timeout, deadline,
              [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
                wire::WhyReply reply;
                service.why(reply, caller);
                for (const wire::WorkerStanding& standing : reply.workers) {
                  if (standing.worker == identity_.worker) gaps[server] = standing.largest_step_gap;
                }
              }));
  return *std::max_element(gaps.begin(), gaps.end());
}

}  // namespace cairn
