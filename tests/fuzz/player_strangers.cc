// Calls about jobs and workers that the server does not know, has dropped, or knows only from such
// calls. The model has nothing of them: the server may refuse them, but not fail, and the
// sequence's own job keeps its values.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/timeline.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/limits.h"
#include "thrift/number_limits.h"

namespace cairn::fuzz {
namespace {

constexpr double kNoWait = 1e-9;

std::vector<wire::StepDecision> AnyDecisions(Choices& choices) {
  std::vector<wire::StepDecision> decisions;
  for (size_t d = choices.Below(3); d > 0; --d) {
    wire::StepDecision& decision = decisions.emplace_back();
    decision.step = choices.OneIn(4) ? AnyInt64(choices) : static_cast<int64_t>(decisions.size());
    for (size_t c = choices.Below(3); c > 0; --c) {
      wire::Contribution& named = decision.contributions.emplace_back();
      named.worker = choices.Of({0, 1, 2, kMost32});
      named.incarnation = choices.Of<int64_t>({1, 2, kMost64});
      named.sequence = choices.Of<int64_t>({1, 2, kMaxStep, kMost64});
      named.rows = choices.Of<int64_t>({1, 0, kMost64});
    }
  }
  return decisions;
}

wire::HelloRequest AnyHello(Choices& choices, const wire::Caller& caller) {
  wire::HelloRequest request;
  request.protocol_version = 1;
  request.job = caller.job;
  request.task_type = "worker";
  request.worker = caller.worker;
  request.expected_workers = choices.Of({0, 1, 2});
  wire::Consistency consistency;
  consistency.mode = choices.Of(
      {wire::ConsistencyMode::SYNC, wire::ConsistencyMode::SSP, wire::ConsistencyMode::ASYNC});
  if (!choices.OneIn(6)) request.__set_consistency(consistency);
  request.step = choices.Of<int64_t>({0, 1, -1, kMaxStep, kMost64});
  request.incarnation = choices.OneIn(4) ? AnyInt64(choices) : 0;
  request.begins_after_step = choices.Of<int64_t>({0, 1, kMaxStep, kMost64});
  request.timeline = choices.Of<int64_t>({0, 1, kMost64});
  request.keeps_step = choices.OneIn(4);
  return request;
}

wire::MoveRequest AnyMove(Choices& choices, const wire::Caller& caller) {
  wire::MoveRequest request;
  request.caller = caller;
  request.action = static_cast<wire::MoveAction::type>(
      choices.Below(static_cast<size_t>(wire::MoveAction::DECIDED) + 1));
  request.variable = "a";
  request.map_version = choices.Of<int64_t>({2, 1, kMost64});
  request.bucket_ps.assign(choices.Below(3), choices.Of({0, 1}));
  request.source = choices.Of({0, 1});
  request.target = 1 - request.source;
  request.start = choices.Of<int64_t>({0, 1, kMost64});
  return request;
}

}  // namespace

wire::Caller Player::AnyStranger(Choices& choices, const std::string& job) {
  wire::Caller caller;
  caller.job = job;
  // Of the sequence's own job, only workers that it does not have.
  caller.worker = job == job_ ? choices.Of({77, kTimelineWorker, kStepWorker})
                              : choices.Of({0, -1, 1, 77, kTimelineWorker, kStepWorker});
  caller.incarnation = choices.Of<int64_t>({1, 0, 2, kMost64});
  if (choices.OneIn(2)) caller.boot_id = boot_id_;
  if (choices.OneIn(4)) caller.through = choices.Of<int64_t>({1, kMost64});
  return caller;
}

Outcome Player::StrangeUpdate(Choices& choices, const wire::Caller& caller) {
  wire::PushRequest push;
  push.caller = caller;
  push.sequence.sequence = choices.Of<int64_t>({1, 2, 3, kMaxStep, kMost64});
  push.sequence.after = choices.Of<int64_t>({0, 1});
  push.step = choices.Of<int64_t>({1, 0, 2, kMaxStep, kMost64});
  push.rows = choices.Of<int64_t>({1, 0, kMost64});
  push.decisions = AnyDecisions(choices);
  push.late = choices.OneIn(8);
  push.replaces = choices.OneIn(8);
  if (choices.OneIn(2)) push.items.push_back(AnyPushItem(choices));
  if (push.step == 0 && contributed_) push.step = 1;  // would wait for the contribution
  wire::PullRequest pull;
  pull.caller = AnyStranger(choices, choices.OneIn(4) ? job_ : caller.job);
  pull.wait_seconds = kNoWait;
  pull.step = choices.Of<int64_t>({0, 1, 2, -1, kMaxStep, kMost64});
  pull.decisions = AnyDecisions(choices);
  pull.decisions_after = choices.Of<int64_t>({-1, 0, kMaxStep, kMost64});
  pull.all_durable_step = choices.Of<int64_t>({0, 1, kMaxStep, kMost64});
  if (choices.OneIn(2)) pull.items.push_back(AnyPullItem(choices, /*may_be_odd=*/true));
  wire::PushReply pushed;
  wire::PullReply pulled;
  switch (choices.Below(4)) {
    case 0: Trace("pull", pull); return SendStrange("pull", pulled, pull, &Service::pull);
    case 1: {
      Trace("push", push);
      const Outcome outcome = SendStrange("push", pushed, push, &Service::push);
      contributed_ |= outcome.ok && push.step > 0 && caller.job != job_;
      return outcome;
    }
    case 2: {
      wire::StepRequest request;
      request.push = push;
      request.pull = pull;
      Trace("step", request);
      wire::StepReply reply;
      contributed_ |= push.step > 0 && caller.job != job_;
      return SendStrange("step", reply, request, &Service::step);
    }
    default: {
      wire::AssignRequest request;
      request.caller = caller;
      if (contributed_) request.caller.worker = -1;  // as above
      request.sequence = push.sequence;
      if (choices.OneIn(2)) request.items.push_back(AnyAssignItem(choices));
      Trace("assign", request);
      return SendStrange("assign", pushed, request, &Service::assign);
    }
  }
}

Outcome Player::StrangeCall(Choices& choices, const std::string& job) {
  const wire::Caller caller = AnyStranger(choices, job);
  wire::ServerState state;
  switch (choices.Weighted({8, 3, 2, 1, 1, 1, 1, 1, 1, 1})) {
    case 0: return StrangeUpdate(choices, caller);
    case 1: {
      const wire::MoveRequest request = AnyMove(choices, caller);
      Trace("move", request);
      wire::MoveReply reply;
      return SendStrange("move", reply, request, &Service::move);
    }
    case 2: {
      // A hello would add the worker to the sequence's own job.
      const wire::HelloRequest request =
          AnyHello(choices, job == job_ ? AnyStranger(choices, job + "-strange") : caller);
      Trace("hello", request);
      wire::HelloReply reply;
      return SendStrange("hello", reply, request, &Service::hello);
    }
    case 3: {
      wire::DescribeRequest request;
      request.caller = caller;
      request.with_server = request.with_uses = choices.OneIn(2);
      if (choices.OneIn(2)) request.variables.emplace_back("a");
      Trace("describe", request);
      wire::DescribeReply reply;
      return SendStrange("describe", reply, request, &Service::describe);
    }
    case 4: {
      wire::ScanRequest request;
      request.caller = caller;
      request.variable = "a";
      request.max_rows = 10;
      Trace("scan", request);
      wire::ScanReply reply;
      return SendStrange("scan", reply, request, &Service::scan);
    }
    case 5: {
      wire::CheckpointRequest request;
      request.caller = caller;
      request.directory = absl::StrCat(target_.folder(), "/checkpoints");
      request.name = absl::StrCat("strange-", target_.NextNumber());
      Trace("checkpoint", request);
      wire::CheckpointReply reply;
      if (choices.OneIn(2)) {
        return SendStrange("drop_checkpoint", state, request, &Service::drop_checkpoint);
      }
      return SendStrange("checkpoint", reply, request, &Service::checkpoint);
    }
    case 6: {
      const std::vector<wire::VariableSpec> specs = {AnySpec(choices, "a")};
      Trace("create_variables", caller);
      return target_.Call(
          [&](Service& service) { service.create_variables(state, caller, specs); });
    }
    case 7: Trace("leave", caller); return SendStrange("leave", state, caller, &Service::leave);
    case 8: Trace("flush", caller); return SendStrange("flush", state, caller, &Service::flush);
    default: {
      wire::WhyReply why;
      wire::Members members;
      Trace("heartbeat, why, members", caller);
      const Outcome outcome = SendStrange("heartbeat", state, caller, &Service::heartbeat);
      if (!outcome.finding.empty()) return outcome;
      const Outcome asked = SendStrange("why", why, caller, &Service::why);
      if (!asked.finding.empty()) return asked;
      return SendStrange("members", members, caller, &Service::members);
    }
  }
}

Finding Player::Strangers(Choices& choices) {
  const bool own = choices.OneIn(3);
  const std::string job = own ? job_ : absl::StrCat(job_, "-strange");
  const auto drop = [&] {
    wire::Caller caller;
    caller.job = job + (own ? "-strange" : "");
    wire::ServerState state;
    Trace("drop_job", caller);
    contributed_ = false;
    return Insane(SendStrange("drop_job", state, caller, &Service::drop_job));
  };
  for (size_t calls = 1 + choices.Below(8); calls > 0; --calls) {
    FUZZ_RETURN_IF(Insane(StrangeCall(choices, job)));
    if (choices.OneIn(8)) FUZZ_RETURN_IF(drop());
  }
  FUZZ_RETURN_IF(drop());
  return Verify(PickVariable(choices));
}

}  // namespace cairn::fuzz
