// Callers, variables, workers, and the server's restarts.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/variables/spec_difference.h"
#include "ps_server/calls/check_request.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/cairn_constants.h"
#include "thrift/convert.h"
#include "thrift/limits.h"
#include "thrift/number_limits.h"

namespace cairn::fuzz {
namespace {

// The servers that a spec may name.
constexpr int32_t kServers = kMaxServers;
// For a worker that may be granted another incarnation.
constexpr int64_t kFewIncarnations = kMaxIncarnation - (int64_t{1} << 40);

// Gives one field of a hello an unusual value. `before`: the worker's incarnation.
void MakeOdd(Choices& odd, int64_t before, bool async, wire::HelloRequest* request) {
  switch (odd.Weighted({4, 2, 2, 1, 1, 1})) {
    case 0: break;
    case 1: request->incarnation = before; break;
    case 2: request->start = odd.Of<int64_t>({1, 2, kMost64, -1}); break;
    case 3: request->incarnation = AnyInt64(odd); break;
    case 4: request->task_type = request->origin = AnyBytes(odd, kMaxTaskTypeBytes); break;
    default:
      request->step = async ? AnyInt64(odd) : 0;
      request->protocol_version = odd.Of({1, 1, 0, 2});
      request->host_id = AnyBytes(odd, kMaxOriginBytes);
      break;
  }
}

}  // namespace

wire::Caller Player::Tool() const {
  wire::Caller caller;
  caller.job = job_;
  return caller;
}

wire::Caller Player::CallerOf(int32_t worker) const {
  wire::Caller caller = Tool();
  caller.worker = worker;
  const auto found = model_.workers.find(worker);
  if (found != model_.workers.end()) caller.incarnation = found->second.incarnation;
  caller.boot_id = boot_id_;
  return caller;
}

Worker* Player::WorkerOf(const wire::Caller& caller) {
  const auto found = model_.workers.find(caller.worker);
  return caller.worker < 0 || found == model_.workers.end() ? nullptr : &found->second;
}

wire::Caller Player::AnyCaller(Choices& choices, bool may_be_odd) {
  if (model_.workers.empty() || choices.Weighted({3, 1}) == 1) {
    wire::Caller caller = Tool();
    if (choices.OneIn(8)) caller.boot_id = boot_id_;
    return caller;
  }
  auto at = model_.workers.begin();
  std::advance(at, choices.Below(model_.workers.size()));
  wire::Caller caller = CallerOf(at->first);
  const int64_t known = std::max(at->second.applied, at->second.through);
  switch (choices.Weighted({12, 2, 1, 1})) {
    case 0: break;
    case 1: caller.through = known; break;
    case 2:
      if (mode_ != Mode::kSync && known < kMost64 - 200) {
        caller.through = known + choices.Of<int64_t>({1, 2, 50});
      }
      break;
    default: caller.boot_id = 0; break;
  }
  // A client written from the IDL that does not use boot ids.
  if (caller.through > 0 && choices.OneIn(6)) caller.boot_id = 0;
  if (choices.OneIn(30)) caller.__set_vitals(AnyVitals(choices));
  if (!may_be_odd || !choices.OneIn(30)) return caller;
  switch (choices.Below(5)) {
    case 0:
      caller.worker = AnyInt32(choices);
      // It may be the number of another worker, which does not know these pushes.
      if (mode_ == Mode::kSync) caller.through = 0;
      break;
    case 1: caller.incarnation = AnyInt64(choices); break;
    case 2: caller.boot_id = AnyInt64(choices); break;
    case 3: caller.job = AnyBytes(choices, kMaxJobNameBytes); break;
    default:
      if (mode_ != Mode::kSync) caller.through = AnyInt64(choices);
      break;
  }
  return caller;
}

bool Player::Admits(const wire::Caller& caller) {
  if (caller.job != job_) return false;  // nothing is known about other jobs
  if (!CheckRequest(caller).ok()) return false;
  if (caller.boot_id != 0 && caller.boot_id != boot_id_) return false;
  if (caller.worker < 0) return true;
  const auto found = model_.workers.find(caller.worker);
  return found != model_.workers.end() && found->second.incarnation == caller.incarnation;
}

// For an admitted caller. A caller that names no boot reports nothing about this server.
void Player::NoteCall(const wire::Caller& caller) {
  Worker* const worker = WorkerOf(caller);
  if (worker == nullptr || caller.boot_id == 0) return;
  if (mode_ != Mode::kSync) worker->through = std::max(worker->through, caller.through);
}

// A worker that has left rejoins with its next step; its clock never decreases.
void Player::Announce(int32_t worker, int64_t step) {
  clocks_[worker] = std::max(clocks_[worker], step);
  left_.erase(worker);
}

Finding Player::CheckState(const wire::Caller& caller, const wire::ServerState& state) {
  if (state.boot_id != boot_id_) return Fail("a reply has another boot id than hello");
  Worker* const worker = WorkerOf(caller);
  if (worker == nullptr || mode_ == Mode::kSync) return {};
  if (state.durable > state.applied) return Fail("durable is above applied");
  return {};
}

Finding Player::CreateOne(const wire::Caller& caller,
                          const std::vector<wire::VariableSpec>& specs) {
  bool valid = Admits(caller);
  std::map<std::string, VariableSpec> made;
  std::map<std::string, OptimizerConfig> changed;
  for (const wire::VariableSpec& spec : specs) {
    const absl::StatusOr<VariableSpec> parsed = FromWire(spec, 0, kServers);
    valid &= parsed.ok();
    if (!parsed.ok()) continue;
    const auto known = model_.variables.find(parsed->name);
    const auto earlier = made.find(parsed->name);
    const VariableSpec* const have = known != model_.variables.end() ? &known->second.spec
                                     : earlier != made.end()         ? &earlier->second
                                                                     : nullptr;
    if (have == nullptr) {
      made.emplace(parsed->name, *parsed);
    } else if (*have != *parsed && have->map_version == parsed->map_version) {
      // A worker may change the arguments of an optimizer.
      VariableSpec like = *parsed;
      like.optimizer = have->optimizer;
      const bool follows = caller.worker >= 0 && known != model_.variables.end() && *have == like &&
                           MayFollow(have->optimizer, parsed->optimizer);
      valid &= follows;
      if (follows) changed[parsed->name] = parsed->optimizer;
    }
  }
  if (trace_ != nullptr) {
    std::string text = absl::StrCat("create_variables ", TextOf(caller));
    for (const wire::VariableSpec& spec : specs) absl::StrAppend(&text, "\n      ", TextOf(spec));
    trace_(text);
  }
  if (Admits(caller) && CheckRequest(specs).ok()) NoteCall(caller);
  wire::ServerState state;
  const auto create = [&] {
    return target_.Call([&](Service& service) { service.create_variables(state, caller, specs); });
  };
  const Outcome outcome = around_ == nullptr ? create() : around_("create_variables", create);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    if (valid && !outcome.Is(wire::ErrorCode::RESOURCE_EXHAUSTED) &&
        !outcome.Is(wire::ErrorReason::SPEC_CONFLICT) &&
        !(outcome.Is(wire::ErrorReason::BUSY) && !changed.empty())) {
      return Fail("valid variables were refused", outcome.error.message);
    }
    return {};
  }
  if (!valid) return Fail("invalid variables were accepted");
  for (const auto& [name, optimizer] : changed) {
    ChangeOptimizer(optimizer, model_.variables.at(name));
  }
  for (const auto& [name, spec] : made) {
    model_.variables.emplace(name, MakeVariable(spec));
    FUZZ_RETURN_IF(Verify(name));
  }
  return {};
}

Finding Player::Create(Choices& choices) {
  const wire::Caller caller = AnyCaller(choices, true);
  std::vector<wire::VariableSpec> specs;
  const size_t count = choices.Of<size_t>({1, 2, 0, 3});
  for (size_t i = 0; i < count; ++i) {
    const std::string name = AnyVariableName(choices);
    const auto known = model_.variables.find(name);
    const bool again = known != model_.variables.end() && choices.OneIn(2);
    specs.push_back(again ? ToWire(known->second.spec) : AnySpec(choices, name));
  }
  return CreateOne(caller, specs);
}

Finding Player::HelloOf(int32_t worker, Choices* odd) {
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = job_;
  request.task_type = "worker";
  request.worker = worker;
  request.origin = absl::StrCat("host/", worker);
  request.expected_workers = mode_ == Mode::kSync ? worker_count_ : 0;
  if (mode_ != Mode::kAsync) request.__set_consistency(consistency_);
  const auto known = model_.workers.find(worker);
  const int64_t before = known == model_.workers.end() ? 0 : known->second.incarnation;
  if (odd == nullptr) {
    request.incarnation = before;  // the same start again, or a first one
    if (clocks_.contains(worker) && !left_.contains(worker)) {
      request.step = std::max<int64_t>(0, clocks_[worker]);
    }
  } else {
    MakeOdd(*odd, before, mode_ == Mode::kAsync, &request);
  }
  Trace("hello", request);
  wire::HelloReply reply;
  const Outcome outcome = Send("hello", reply, request, &Service::hello);
  FUZZ_RETURN_IF(Insane(outcome));
  const bool valid = request.protocol_version == 1 && CheckRequest(request).ok();
  const bool replaced = known != model_.workers.end() && request.incarnation == 0 &&
                        known->second.WasReplaced(request.start);
  const bool fenced = replaced || (request.incarnation > 0 && request.incarnation < before);
  if (!outcome.ok) {
    const bool plain = request.incarnation <= before && request.task_type == "worker";
    if (valid && !fenced && plain && before < kFewIncarnations && request.host_id.empty()) {
      return Fail("a valid hello was refused", outcome.error.message);
    }
    if (fenced && valid && !outcome.Is(wire::ErrorReason::FENCED) &&
        request.task_type == "worker") {
      return Fail("an older incarnation was not answered FENCED", outcome.error.message);
    }
    return {};
  }
  if (fenced) return Fail("an older incarnation was let in");
  if (!valid) return Fail("an invalid hello was answered");
  if (reply.incarnation <= 0) {
    return Fail("hello granted no incarnation", absl::StrCat(reply.incarnation));
  }
  if (reply.incarnation < before) return Fail("an incarnation went down");
  if (request.incarnation == 0 && request.start == 0 && reply.incarnation == before) {
    return Fail("two starts have one incarnation");
  }
  boot_id_ = reply.state.boot_id;
  Worker& state = model_.workers[worker];
  if (reply.incarnation > before) state.through = 0;
  state.NoteStart(request.start, reply.incarnation > before);
  state.known = true;
  state.incarnation = reply.incarnation;
  left_.erase(worker);
  if (mode_ == Mode::kSsp) clocks_[worker] = reply.step;
  if (mode_ == Mode::kSync) {
    clocks_[worker] = std::max(clocks_[worker], request.step);
    if (reply.incarnation > before) pending_.erase(worker);
    open_step_ = std::max(open_step_, reply.step);
    return {};
  }
  const int64_t applied = std::max(state.applied, state.through);
  if (reply.state.applied != applied && !state.murky) {
    return Fail("hello names another sequence than the one applied",
                absl::StrCat(reply.state.applied, ", not ", applied));
  }
  return {};
}

Finding Player::Hello(Choices& choices) {
  const auto worker = static_cast<int32_t>(choices.Below(static_cast<size_t>(worker_count_)));
  // A new start in the middle of a synchronous job would change the decisions.
  if (mode_ != Mode::kAsync) return HelloOf(worker, nullptr);
  return HelloOf(worker, &choices);
}

Finding Player::SimpleCall(Op op, Choices& choices) {
  const wire::Caller caller = AnyCaller(choices, true);
  const bool valid = Admits(caller);
  if (valid && op != kWhy) NoteCall(caller);
  wire::ServerState state;
  wire::WhyReply why;
  Outcome outcome;
  switch (op) {
    case kFlush:
      Trace("flush", caller);
      outcome = Send("flush", state, caller, &Service::flush);
      break;
    case kLeave:
      Trace("leave", caller);
      outcome = Send("leave", state, caller, &Service::leave);
      if (outcome.ok) left_.insert(caller.worker);
      break;
    case kWhy:
      Trace("why", caller);
      outcome = Send("why", why, caller, &Service::why);
      return Insane(outcome);
    default:
      Trace("heartbeat", caller);
      outcome = Send("heartbeat", state, caller, &Service::heartbeat);
      break;
  }
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    if (valid) return Fail("a valid call was refused", outcome.error.message);
    return {};
  }
  if (!valid) {
    return caller.job == job_ ? Fail("a caller that is none was answered", TextOf(caller))
                              : Finding{};
  }
  FUZZ_RETURN_IF(CheckState(caller, state));
  const Worker* const worker = WorkerOf(caller);
  if (op != kFlush || worker == nullptr || worker->murky || mode_ == Mode::kSync) return {};
  if (state.durable == worker->applied) return {};
  return Fail("a flush leaves a sequence that is not durable",
              absl::StrCat(state.durable, ", not ", worker->applied));
}

// Ends the engine and reopens its store; or, with `crash`, opens a copy of the disk's state after a
// flush.
Finding Player::Restart(bool crash) {
  if (mode_ == Mode::kSync && !pending_.empty()) return {};
  // Without durability, a store with an out-of-turn write is refused after a crash.
  crash &= target_.options().durability != Durability::kOff;
  if (trace_ != nullptr) trace_(crash ? "flush, then a crash of the server" : "restart");
  if (crash) {
    wire::ServerState state;
    const Outcome outcome = Send("flush", state, Tool(), &Service::flush);
    FUZZ_RETURN_IF(Insane(outcome));
    if (!outcome.ok) return Fail("a valid call was refused", outcome.error.message);
  }
  const std::string failed = crash ? target_.Crash() : target_.Restart();
  if (!failed.empty()) return Fail("the server does not start again", failed);
  held_.clear();
  wire::ServerState state;
  const Outcome outcome = Send("heartbeat", state, Tool(), &Service::heartbeat);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) return Fail("a valid call was refused", outcome.error.message);
  if (state.boot_id == boot_id_) return Fail("a restart has the same boot id");
  boot_id_ = state.boot_id;
  if (mode_ == Mode::kSync) clocks_.clear();  // announced again
  // A worker that had left can rejoin only after the others have announced their steps.
  const std::set<int32_t> joins_anew = left_;
  for (const bool last : {false, true}) {
    for (auto& [number, worker] : model_.workers) {
      if (joins_anew.contains(number) != last) continue;
      worker.through = 0;
      worker.start = 0;
      worker.replaced.clear();
      FUZZ_RETURN_IF(HelloOf(number, nullptr));
    }
  }
  return VerifyAll();
}

Finding Player::Drop() {
  wire::ServerState state;
  if (trace_ != nullptr) trace_("drop_job");
  const Outcome outcome = Send("drop_job", state, Tool(), &Service::drop_job);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) return Fail("drop_job failed", outcome.error.message);
  model_.variables.clear();
  model_.workers.clear();
  held_.clear();
  clocks_.clear();
  left_.clear();
  pending_.clear();
  open_step_ = 1;
  wire::DescribeRequest request;
  request.caller = Tool();
  wire::DescribeReply reply;
  const Outcome described = Send("describe", reply, request, &Service::describe);
  FUZZ_RETURN_IF(Insane(described));
  if (!described.ok || !reply.variables.empty()) return Fail("a dropped job has variables");
  return {};
}

}  // namespace cairn::fuzz
