// Training steps: what the client tells the servers of them, and asks.
#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "worker/client/client_impl.h"
#include "worker/client/retained_call.h"

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

ResumePoint PsClientImpl::ChooseResume(absl::Span<const wire::HelloReply> replies) const {
  std::vector<ResumeAnswer> answers;
  for (const wire::HelloReply& reply : replies) {
    // Under sync ps:0 alone knows: what it has named counts everywhere, and nothing else does.
    const bool asked = answers.empty() || !identity_.synchronous();
    // Everything applied there is durable by now, but what it has no part of is not in the number.
    answers.push_back(asked ? ResumeAnswer{reply.state.durable, reply.position}
                            : ResumeAnswer{std::numeric_limits<int64_t>::max(), ""});
  }
  return ChooseResumePoint(answers);
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
  const int64_t step = steps_.open();
  if (sources.empty()) return PullStep(step, targets, deadline);
  {
    PlanPool::Lease plan(&plans_);
    bool skip = false;
    RETURN_IF_ERROR(PlanPush(sources, &*plan, &skip));
    if (!skip) {
      (*plan).ContributeToAll(step, rows);
      RETURN_IF_ERROR(RunPlan(*plan, /*updates=*/true, &position, deadline));
      const absl::Span<Exchange* const> pushed = (*plan).Wave(0);
      if (std::any_of(pushed.begin(), pushed.end(),
                      [](const Exchange* exchange) { return exchange->call.reply.push.dropped; })) {
        pushes_late_.fetch_add(1, std::memory_order_relaxed);
      } else {
        steps_.Contributed(step, identity_.worker, SequenceOf(pushed[0]->call).sequence);
      }
    }
  }
  return PullStep(step + 1, targets, deadline);
}

absl::Status PsClientImpl::PullStep(int64_t step, absl::Span<const PullTarget> targets,
                                    Deadline deadline) {
  PlanPool::Lease lease(&plans_);
  DataPlan& plan = *lease;
  plan.PullFromAll(step);
  RETURN_IF_ERROR(PlanPulls(targets, &plan));
  const size_t waves = plan.WaveCount();
  std::vector<Exchange*> first, others;
  for (Exchange* exchange : plan.Wave(0)) {
    exchange->repeatable = true;
    (exchange->session->index() == 0 ? first : others).push_back(exchange);
  }
  RETURN_IF_ERROR(RunStepPulls(plan, first, deadline));
  for (Exchange* exchange : others) exchange->call.step = steps_.open();
  RETURN_IF_ERROR(RunStepPulls(plan, others, deadline));
  for (size_t wave = 1; wave < waves; ++wave) {
    RETURN_IF_ERROR(RunWave(plan, wave, /*numbered=*/false, deadline));
  }
  bytes_pulled_.fetch_add(plan.bytes_in(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status PsClientImpl::RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                        Deadline deadline) {
  if (exchanges.empty()) return absl::OkStatus();
  int64_t all_durable = std::numeric_limits<int64_t>::max();
  for (const auto& session : sessions_) {
    all_durable = std::min(all_durable, session->durable_step());
  }
  steps_.Forget(all_durable);
  for (Exchange* exchange : exchanges) {
    exchange->call.request.pull.all_durable_step = all_durable;
  }
  int64_t retries = 0;
  const absl::Status status = fan_out_.Run(
      exchanges, /*finish_all=*/false, deadline,
      [&](Exchange& exchange) { return StepPulled(plan, exchange); }, &retries);
  if (retries > 0) retries_.fetch_add(retries, std::memory_order_relaxed);
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
  return CallAll("pull", options_.rpc_timeout, deadline,
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
  std::vector<int64_t> gaps(sessions_.size());
  RETURN_IF_ERROR(
      CallAll("why", options_.rpc_timeout, deadline,
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
