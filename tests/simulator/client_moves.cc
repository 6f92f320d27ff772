// A table whose rows move between servers, as PsClientImpl pushes to it and pulls from it
// (worker/client/impl/client_data.cc).
#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/simulator/client.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn::simulator {

absl::Status Client::CheckOpen(absl::string_view what, Deadline deadline) const {
  if (!process_->alive) return absl::CancelledError("this process has ended");
  if (flags_.fenced.load()) return Annotate(FencedElsewhere(identity_.task), what);
  if (deadline.Expired()) return absl::DeadlineExceededError(what);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServerSession>> Client::Reach(int32_t server, const std::string&) {
  return std::make_unique<ServerSession>(
      server, absl::StrCat("ps:", server),
      SimulatedLink(&network_, process_, static_cast<size_t>(server), sessions_.size(), server),
      &identity_);
}

absl::StatusOr<wire::Members> Client::AskMembers(Deadline deadline) {
  wire::Members members;
  RETURN_IF_ERROR(Call(0, "members", deadline,
                       [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                         service.members(members, caller);
                       }));
  return members;
}

absl::StatusOr<JobHoldings> Client::DescribeOn(absl::Span<const int32_t> servers,
                                               Deadline deadline) {
  std::vector<wire::DescribeReply> replies(sessions_.size());
  RETURN_IF_ERROR(ForEachServer(servers, [&](size_t slot) {
    return Call(slot, "describe", deadline,
                [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                  wire::DescribeRequest request;
                  request.caller = caller;
                  service.describe(replies[slot], request);
                });
  }));
  std::vector<DescribedServer> described;
  for (const int32_t server : servers) {
    const auto s = static_cast<size_t>(server);
    if (!sessions_[s].left()) described.push_back({server, sessions_[s].name(), &replies[s]});
  }
  return CombineHoldings(identity_.job, described, kMaxServers);
}

void Client::Compute() {
  keys_.clear();
  values_.clear();
  const uint32_t stripes = work_.Stripes(process_->worker, next(), 0);
  for (uint32_t stripe = 0; stripes >> stripe != 0; ++stripe) {
    if ((stripes >> stripe & 1) == 0) continue;
    keys_.push_back(work_.Key(process_->worker, stripe));
    values_.push_back(-1);  // SGD subtracts
    values_.push_back(static_cast<float>(-Workload::Mark(process_->worker, next())));
  }
  pulled_.assign(values_.size(), 0);
}

absl::Status Client::AddPull() {
  return plan_.AddPull(variables_.Find(kTable),
                       {.variable = kTable,
                        .part = Part::kKeys,
                        .ids = keys_,
                        .out = absl::MakeSpan(reinterpret_cast<std::byte*>(pulled_.data()),
                                              pulled_.size() * sizeof(float))});
}

absl::Status Client::AddPush() {
  Compute();
  plan_.Reset();
  return plan_.AddPush(
      variables_.Find(kTable),
      {.variable = kTable,
       .part = Part::kKeys,
       .ids = keys_,
       .values = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values_.data()),
                                     values_.size() * sizeof(float))});
}

absl::Status Client::PushThenPull(Deadline deadline) {
  RETURN_IF_ERROR(AddPush());
  RETURN_IF_ERROR(AddPull());
  const int64_t step = clock_.Next();
  plan_.BeginStep(step, identity_.consistency.mode == ConsistencyMode::kSsp);
  CHECK_EQ(plan_.WaveCount(), 1u) << "a few rows take one call a server";
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  bool moved = false;
  RETURN_IF_ERROR(SendPlan("", deadline, &moved));
  if (moved) RETURN_IF_ERROR(PullAll(step, deadline));
  CheckPulled();
  return absl::OkStatus();
}

absl::Status Client::SendPlan(absl::string_view position, Deadline deadline, bool* moved) {
  absl::Status status = order_.Number(plan_.Wave(0), &position);
  if (status.ok()) {
    const auto run = [&](absl::Span<Exchange* const> exchanges) {
      return RunExchanges(exchanges, deadline);
    };
    status = moved_updates_.SendNumbered(plan_.Wave(0), run, deadline, moved);
    order_.Settle(plan_.Wave(0), status);
  }
  order_.EndTurn();
  if (status.ok()) ++item_;
  return status;
}

absl::Status Client::RunExchanges(absl::Span<Exchange* const> exchanges, Deadline deadline) {
  const bool finish_all = std::any_of(exchanges.begin(), exchanges.end(),
                                      [](const Exchange* e) { return DataPlan::Updates(*e); });
  return fan_out_.Run(
      exchanges, finish_all, deadline,
      [&](Exchange& exchange) -> absl::Status {
        if (!DataPlan::Updates(exchange)) {
          exchange.session->Learn(exchange.call.reply.pull.state);
        } else if (!order_.Answered(exchange)) {
          return absl::AbortedError("the server was restarted while it answered");
        }
        return plan_.Land(exchange, [](int64_t) {});
      },
      &retries_);
}

absl::Status Client::PullAll(int64_t step, Deadline deadline) {
  while (true) {
    plan_.Reset();
    RETURN_IF_ERROR(AddPull());
    plan_.BeginStep(step, identity_.consistency.mode == ConsistencyMode::kSsp);
    CHECK_EQ(plan_.WaveCount(), 1u) << "a few rows take one call a server";
    const absl::Status status = RunExchanges(plan_.Wave(0), deadline);
    if (status.ok()) return status;
    const bool again = moved_updates_.LearnMaps(plan_.Wave(0), deadline) ||
                       (absl::IsUnavailable(status) && membership_.Changed(deadline));
    if (!again) return status;
    RETURN_IF_ERROR(CheckOpen("pull, while rows move", deadline));
  }
}

void Client::CheckPulled() {
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto stripe = BucketOfKey(keys_[i], static_cast<uint32_t>(work_.stripes()));
    network_.observer().CheckRow(process_->worker, 0, stripe, item_,
                                 {.pushes = pulled_[2 * i], .marks = pulled_[2 * i + 1]});
  }
}

}  // namespace cairn::simulator
