// The hot path: pull, push, both in one round trip, assign.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "common/time_text.h"
#include "thrift/errors.h"
#include "worker/client/delivery/retained_call.h"
#include "worker/client/impl/client_impl.h"
#include "worker/client/plan/not_finite.h"

namespace cairn {
namespace {

constexpr absl::string_view kForRoom =
    "room among the pushes that are not durable yet (retained_bytes)";

}  // namespace

absl::StatusOr<ClientVariablePtr> PsClientImpl::FindVariable(absl::string_view what,
                                                             absl::string_view name) const {
  if (ClientVariablePtr variable = variables_.Find(name)) return variable;
  return absl::NotFoundError(absl::StrCat(
      what, " \"", name, "\": this client of job \"", identity_.job,
      "\" knows no such variable: create it, or call Describe if another task created it"));
}

absl::Status PsClientImpl::CheckOpen(absl::string_view what, Deadline deadline) const {
  if (left_.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": ", identity_.task, " has left job \"", identity_.job, "\""));
  }
  if (flags_.fenced.load(std::memory_order_relaxed)) {
    return Annotate(FencedElsewhere(identity_.task), what);
  }
  if (deadline.Expired()) {
    const absl::Status unknown = moved_updates_.failure();
    return absl::DeadlineExceededError(
        unknown.ok()
            ? absl::StrCat(what, ": the deadline had passed before the call; nothing was sent")
            : absl::StrCat(what, ": not before the deadline: ", unknown.message()));
  }
  return absl::OkStatus();
}

absl::Status PsClientImpl::CheckTwice(absl::Span<const PushSource> sources) const {
  // Names are few and mostly differ in length or first bytes; a sort pays only for many.
  if (sources.size() < 32) {
    for (size_t i = 1; i < sources.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (sources[i].variable == sources[j].variable) {
          return absl::InvalidArgumentError(
              absl::StrCat("push: \"", sources[i].variable,
                           "\" is named twice; one push is one "
                           "update of a variable: add the gradients, or push twice"));
        }
      }
    }
    return absl::OkStatus();
  }
  std::vector<absl::string_view> names;
  names.reserve(sources.size());
  for (const PushSource& source : sources) names.push_back(source.variable);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("push: \"", *twice,
                   "\" is named twice; one push is one update of a variable: "
                   "add the gradients, or push twice"));
}

absl::StatusOr<bool> PsClientImpl::AllFinite(const ClientVariable& variable,
                                             const PushSource& source) const {
  const std::optional<NotFiniteValue> found = FindNotFinite(variable.spec().dtype, source.values);
  if (!found) return true;
  if (options_.skip_not_finite) return false;
  return absl::InvalidArgumentError(absl::StrCat(
      "push \"", source.variable, "\": gradient[", found->index, "] is ", found->value,
      "; gradients must be finite: lower the learning rate or clip, or skip such pushes"));
}

absl::Status PsClientImpl::PlanPush(absl::Span<const PushSource> sources, DataPlan* plan,
                                    bool* skip) {
  *skip = false;
  RETURN_IF_ERROR(CheckTwice(sources));
  absl::InlinedVector<ClientVariablePtr, 64> variables;
  for (const PushSource& source : sources) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, FindVariable("push", source.variable));
    ASSIGN_OR_RETURN(const bool finite, AllFinite(*variable, source));
    if (!finite) *skip = true;
    variables.push_back(std::move(variable));
  }
  if (*skip) {
    pushes_dropped_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  // Residuals change from here on.
  for (size_t i = 0; i < sources.size(); ++i) {
    RETURN_IF_ERROR(plan->AddPush(std::move(variables[i]), sources[i]));
  }
  return absl::OkStatus();
}

absl::Status PsClientImpl::PlanPulls(absl::Span<const PullTarget> targets, DataPlan* plan) {
  for (const PullTarget& target : targets) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, FindVariable("pull", target.variable));
    RETURN_IF_ERROR(plan->AddPull(std::move(variable), target));
  }
  return absl::OkStatus();
}

absl::Status PsClientImpl::Pull(absl::Span<const PullTarget> targets, Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("pull", deadline));
  return PullAll(targets, 0, deadline);
}

absl::Status PsClientImpl::PullAll(absl::Span<const PullTarget> targets, int64_t step,
                                   Deadline deadline) {
  while (true) {
    PlanPool::Lease plan(&plans_);
    RETURN_IF_ERROR(PlanPulls(targets, &*plan));
    if (step > 0) (*plan).BeginStep(step, options_.consistency.mode == ConsistencyMode::kSsp);
    bool moved = false;
    const absl::Status status = RunPlan(*plan, /*updates=*/false, nullptr, deadline, &moved);
    const bool again = absl::IsUnavailable(status) && membership_.Changed(deadline);
    if (!again) RETURN_IF_ERROR(status);
    if (!moved && !again) return absl::OkStatus();
    RETURN_IF_ERROR(CheckOpen("pull, while rows move", deadline));
  }
}

absl::Status PsClientImpl::Push(absl::Span<const PushSource> sources, absl::string_view position,
                                Deadline deadline) {
  return PushPull(sources, position, {}, deadline);
}

absl::Status PsClientImpl::PushPull(absl::Span<const PushSource> sources,
                                    absl::string_view position,
                                    absl::Span<const PullTarget> targets, Deadline deadline) {
  return PushThenPull(sources, position, targets, /*begins_step=*/false, deadline);
}

absl::Status PsClientImpl::PushThenPull(absl::Span<const PushSource> sources,
                                        absl::string_view position,
                                        absl::Span<const PullTarget> targets, bool begins_step,
                                        Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("push", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  PlanPool::Lease plan(&plans_);
  bool skip = false;
  RETURN_IF_ERROR(PlanPush(sources, &*plan, &skip));
  RETURN_IF_ERROR(PlanPulls(targets, &*plan));
  const int64_t step = begins_step ? clock_.Next() : 0;
  if (begins_step) (*plan).BeginStep(step, options_.consistency.mode == ConsistencyMode::kSsp);
  bool moved = false;
  RETURN_IF_ERROR(RunPlan(*plan, !skip && !sources.empty(), &position, deadline, &moved));
  return moved ? PullAll(targets, step, deadline) : absl::OkStatus();
}

absl::Status PsClientImpl::Assign(absl::Span<const PushSource> sources, Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("assign", deadline));
  PlanPool::Lease plan(&plans_);
  for (const PushSource& source : sources) {
    ASSIGN_OR_RETURN(ClientVariablePtr variable, FindVariable("assign", source.variable));
    RETURN_IF_ERROR((*plan).AddAssign(std::move(variable), source));
  }
  bool moved = false;
  return RunPlan(*plan, /*updates=*/true, nullptr, deadline, &moved);
}

absl::Status PsClientImpl::RunPlan(DataPlan& plan, bool updates, const absl::string_view* position,
                                   Deadline deadline, bool* moved) {
  const size_t waves = plan.WaveCount();
  if (waves == 0) return absl::OkStatus();
  if (updates && identity_.sequenced()) {
    RETURN_IF_ERROR(RunNumbered(plan, position, deadline, moved));
  } else {
    for (Exchange* exchange : plan.Wave(0)) exchange->repeatable = !DataPlan::Updates(*exchange);
    absl::Status status = RunWave(plan, 0, /*numbered=*/false, deadline);
    if (!status.ok() && moved_updates_.LearnMaps(plan.Wave(0), deadline)) {
      *moved = true;
      // What else is wrong with a pull shows again.
      status = updates ? moved_updates_.Send(plan.Wave(0), /*numbered=*/false, deadline)
                       : absl::OkStatus();
    }
    RETURN_IF_ERROR(status);
  }
  for (size_t wave = 1; wave < waves && !*moved; ++wave) {
    const absl::Status status = RunWave(plan, wave, /*numbered=*/false, deadline);
    if (!status.ok() && moved_updates_.LearnMaps(plan.Wave(wave), deadline)) {
      *moved = true;
    } else {
      RETURN_IF_ERROR(status);
    }
  }
  bytes_pushed_.fetch_add(plan.bytes_out(), std::memory_order_relaxed);
  bytes_pulled_.fetch_add(plan.bytes_in(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status PsClientImpl::RunNumbered(DataPlan& plan, const absl::string_view* position,
                                       Deadline deadline, bool* moved) {
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  absl::Status status = MakeRoom(plan.Wave(0), deadline);
  CAIRN_CRASH_POINT("worker: before a push is numbered");
  if (status.ok()) status = order_.Number(plan.Wave(0), position);
  if (status.ok()) {
    const auto run = [&](absl::Span<Exchange* const> exchanges) {
      return RunExchanges(plan, exchanges, /*numbered=*/true, deadline);
    };
    status = moved_updates_.SendNumbered(plan.Wave(0), run, deadline, moved);
    order_.Settle(plan.Wave(0), status);
    CAIRN_CRASH_POINT("worker: a push is acknowledged by all");
  }
  order_.EndTurn();
  if (retention_.bytes() > retention_.limit_bytes() / 2) early_epochs_.Ask();
  return status;
}

absl::Status PsClientImpl::MakeRoom(absl::Span<Exchange* const> exchanges, Deadline deadline) {
  if (identity_.retention == nullptr) return absl::OkStatus();
  int64_t needed = 0;
  for (const Exchange* exchange : exchanges) {
    if (DataPlan::Updates(*exchange)) needed += RetainedBytes(exchange->call);
  }
  const absl::Duration wait =
      pace_.Wait(needed, retention_.bytes(), retention_.dropped_bytes(), MonotonicNow());
  if (wait > absl::ZeroDuration()) {
    order_.WaitsFor(kForRoom);
    StopFlag().WaitFor(std::min(wait, deadline.Remaining()));
    order_.WaitsFor("its servers");
  }
  if (retention_.HasRoomFor(needed)) return absl::OkStatus();
  const absl::Time start = absl::Now();
  order_.WaitsFor(kForRoom);
  // An epoch empties its server, so one a server is enough, and a second for those that were
  // restarted between. But a contribution is durable with its step, which a server that was
  // restarted closes when other workers have sent theirs again.
  Backoff backoff(options_.ps_wait, deadline);
  for (size_t epochs = 0; !retention_.HasRoomFor(needed); ++epochs) {
    const std::vector<int32_t> servers = sessions_.Live();
    const bool waits = epochs >= servers.size();
    const auto held_by = [this](int32_t server) {
      return sessions_[static_cast<size_t>(server)].retained_bytes();
    };
    const int32_t fullest =
        *std::max_element(servers.begin(), servers.end(),
                          [&](int32_t a, int32_t b) { return held_by(a) < held_by(b); });
    ServerSession& session =
        sessions_[static_cast<size_t>(waits ? servers[epochs % servers.size()] : fullest)];
    const absl::Time since = session.retained_since();
    const int64_t held = session.retained_bytes();
    absl::Status status = FlushServer(session.index(), deadline.Remaining(), deadline);
    if (session.left()) status = absl::OkStatus();  // nothing is kept for it any more
    if (status.ok() && waits && identity_.synchronous() && !backoff.Pause()) {
      status = absl::UnavailableError("the steps that they contribute to have not closed there");
    }
    if (status.ok() && epochs > 3 * servers.size() && !identity_.synchronous()) {
      status = absl::InternalError("its epochs do not make them durable");
    }
    if (status.ok()) continue;
    return Annotate(
        status, absl::StrCat("push: ", needed, " bytes wait since ", TimeOfDayText(start),
                             " for room in ", retention_.limit_bytes(),
                             " bytes (retained_bytes), of which ", session.name(), " has ", held,
                             " of pushes that are not durable there since ", TimeOfDayText(since)));
  }
  order_.WaitsFor("its servers");
  return absl::OkStatus();
}

absl::Status PsClientImpl::RunWave(DataPlan& plan, size_t wave, bool numbered, Deadline deadline) {
  return RunExchanges(plan, plan.Wave(wave), numbered, deadline);
}

absl::Status PsClientImpl::RunExchanges(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                        bool numbered, Deadline deadline) {
  int64_t retries = 0;
  const bool finish_all = std::any_of(exchanges.begin(), exchanges.end(),
                                      [](const Exchange* e) { return DataPlan::Updates(*e); });
  absl::Status status = fan_out_.Run(
      exchanges, finish_all, deadline,
      [&](Exchange& exchange) -> absl::Status {
        const bool updates = DataPlan::Updates(exchange);
        if (numbered && updates && !order_.Answered(exchange)) {
          return absl::AbortedError("the server was restarted while it answered");
        }
        if (!updates) exchange.session->Learn(exchange.call.reply.pull.state);
        return plan.Land(exchange, [this](int64_t value) { staleness_.Add(value); });
      },
      &retries);
  CountRetries(retries);
  return status;
}

}  // namespace cairn
