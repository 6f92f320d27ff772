// Steps of a synchronous job, as PsClientImpl takes them (worker/client/impl/client_steps.cc).
#include <glog/logging.h>

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/simulator/client.h"

namespace cairn::simulator {

void Client::ResumeSteps(const ResumePoint& point, const std::vector<wire::HelloReply>& replies) {
  int64_t durable_step = replies[0].state.durable_step;
  recompute_through_ = void_through_ = 0;
  for (size_t slot = 0; slot < replies.size(); ++slot) {
    if (sessions_[slot].left()) continue;
    void_through_ = std::max(void_through_, replies[slot].state.applied);
    durable_step = std::min(durable_step, replies[slot].state.durable_step);
  }
  const bool leaves_out = network_.options().mutation == Mutation::kLeavesOutVoid;
  recompute_through_ = leaves_out ? replies[0].state.applied : void_through_;
  steps_.Begin(replies[0].step, durable_step);
  if (!absl::SimpleAtoi(point.position, &item_)) item_ = 0;  // none is stored yet
  recomputes_ = true;
  Recomputes();
}

bool Client::Recomputes() {
  if (!recomputes_) return false;
  if (order_.next() <= recompute_through_) return true;
  recomputes_ = false;
  if (order_.next() <= void_through_) order_.Reset(void_through_, "");
  return false;
}

absl::Status Client::BeginSteps() {
  clock_.Next();
  if (Recomputes()) return absl::OkStatus();
  return PullStep(steps_.open(), Deadline::In(kCallDeadline));
}

absl::StatusOr<std::vector<Exchange*>> Client::PlanContribution(int64_t step) {
  std::vector<Exchange*> exchanges;
  if (network_.options().rows_move()) {
    RETURN_IF_ERROR(AddPush());
    plan_.ContributeToAll(step, 1);
    CHECK_EQ(plan_.WaveCount(), 1u) << "a few rows take one call a server";
    const absl::Span<Exchange* const> planned = plan_.Wave(0);
    exchanges.assign(planned.begin(), planned.end());
    for (Exchange* exchange : exchanges) exchange->repeatable = true;
    return exchanges;
  }
  for (size_t slot = 0; slot < exchanges_.size(); ++slot) {
    Exchange& exchange = exchanges_[slot];
    exchange.repeatable = true;
    exchange.call.kind = CallKind::kPush;
    wire::PushRequest& push = exchange.call.request.push;
    push.step = step;
    push.rows = 1;
    push.items.clear();
    const uint32_t stripes = work_.Stripes(process_->worker, next(), slot);
    if (stripes != 0) FillPush(&push, stripes);
    exchanges.push_back(&exchange);
  }
  return exchanges;
}

absl::Status Client::Contribute(Deadline deadline) {
  clock_.Next();
  const bool again = Recomputes();
  const int64_t step = again ? std::max<int64_t>(steps_.open() - 1, 1) : steps_.open();
  ASSIGN_OR_RETURN(const std::vector<Exchange*> exchanges, PlanContribution(step));
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  network_.observer().Contributes(process_->worker, order_.next(), next());
  const std::string position = absl::StrCat(next());
  bool moved = false;  // what has moved is where it belongs by then
  RETURN_IF_ERROR(network_.options().rows_move() ? SendPlan(position, deadline, &moved)
                                                 : Send(exchanges, position, deadline));
  const bool late = std::any_of(exchanges.begin(), exchanges.end(), [](const Exchange* exchange) {
    return exchange->call.reply.push.dropped;
  });
  if (!again && !late) {
    steps_.Contributed(step, process_->worker, exchanges[0]->call.request.push.sequence.sequence);
  }
  if (Recomputes()) return absl::OkStatus();
  return PullStep(again ? steps_.open() : step + 1, deadline);
}

absl::StatusOr<std::vector<Exchange*>> Client::PlanStepPull(int64_t step) {
  std::vector<Exchange*> exchanges;
  if (network_.options().rows_move()) {
    plan_.Reset();
    plan_.PullFromAll(step);
    if (!keys_.empty()) RETURN_IF_ERROR(AddPull());
    CHECK_EQ(plan_.WaveCount(), 1u) << "a few rows take one call a server";
    const absl::Span<Exchange* const> planned = plan_.Wave(0);
    exchanges.assign(planned.begin(), planned.end());
    return exchanges;
  }
  for (Exchange& exchange : exchanges_) {
    exchange.call.kind = CallKind::kPull;
    exchange.call.step = step;
    exchange.call.request.pull = {};
    exchanges.push_back(&exchange);
  }
  return exchanges;
}

absl::Status Client::PullStep(int64_t step, Deadline deadline) {
  for (bool moved = true; moved;) {
    RETURN_IF_ERROR(PullStepOnce(step, deadline, &moved));
    if (moved) RETURN_IF_ERROR(CheckOpen("step, while rows move", deadline));
  }
  return absl::OkStatus();
}

absl::Status Client::PullStepOnce(int64_t step, Deadline deadline, bool* moved) {
  ASSIGN_OR_RETURN(const std::vector<Exchange*> exchanges, PlanStepPull(step));
  std::vector<Exchange*> first, others;
  for (Exchange* exchange : exchanges) {
    exchange->repeatable = true;
    steps_.NeedAfter(exchange->session->closed_step());
    (exchange->session->index() == 0 ? first : others).push_back(exchange);
  }
  const auto met_moved = [&](const std::vector<Exchange*>& some, const absl::Status& status) {
    *moved = !status.ok() && moved_updates_.LearnMaps(some, deadline);
    return *moved;
  };
  absl::Status status = RunStepPulls(first, deadline);
  if (met_moved(first, status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  for (Exchange* exchange : others) exchange->call.step = steps_.open();
  status = RunStepPulls(others, deadline);
  return met_moved(others, status) ? absl::OkStatus() : status;
}

absl::Status Client::RunStepPulls(const std::vector<Exchange*>& exchanges, Deadline deadline) {
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
  return fan_out_.Run(
      exchanges, /*finish_all=*/false, deadline,
      [this](Exchange& exchange) { return StepPulled(exchange); }, &retries_);
}

absl::Status Client::StepPulled(Exchange& exchange) {
  const wire::PullReply& reply = exchange.call.reply.pull;
  exchange.session->Learn(reply.state);
  const bool first = exchange.session->index() == 0;
  if (first) steps_.Learn(reply.decisions, reply.step);
  const bool told =
      first ? steps_.last_decided() >= reply.step - 1 : reply.step >= exchange.call.step;
  if (!told) return absl::AbortedError("the server is further behind than one call can tell");
  if (first) steps_.SetOpen(reply.step);
  return network_.options().rows_move() ? plan_.Land(exchange, [](int64_t) {}) : absl::OkStatus();
}

}  // namespace cairn::simulator
