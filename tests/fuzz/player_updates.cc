// Pushes, assigns and steps.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/value_format.h"
#include "ps_server/calls/check_request.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/limits.h"

namespace cairn::fuzz {
namespace {

Payload PayloadOf(const std::string& bytes) { return Payload::Copy(bytes.data(), bytes.size()); }
Payload PayloadOf(const std::vector<int64_t>& ids) {
  return Payload::Copy(ids.data(), ids.size() * sizeof(int64_t));
}

// Number of rows of an item, according to its names.
int64_t RowsOf(const VariableModel& variable, int32_t shard, const Payload& ids, bool whole) {
  if (!whole) return static_cast<int64_t>(ids.size() / sizeof(int64_t));
  const auto found = variable.shards.find(shard);
  return found == variable.shards.end() ? 0 : found->second.rows;
}

DType PartType(const VariableModel& variable, size_t part) {
  const DType dtype = variable.spec.dtype;
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return part > 0 && half ? DType::kFloat32 : dtype;
}

// Encodes float32 values `plain` in `format`.
std::string Encoded(ValueFormat format, const std::string& plain, int64_t rows, int64_t width) {
  std::vector<float> values(plain.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), plain.data(), plain.size());
  std::string bytes;
  if (format == ValueFormat::kTopK) {
    const int64_t kept = values.empty() ? 0 : std::max<int64_t>(1, std::ssize(values) / 2);
    bytes.resize(TopKBytes(kept));
    EncodeTopK(values, kept, reinterpret_cast<std::byte*>(bytes.data()));
  } else {
    bytes.resize(EncodedBytes(format, rows, width));
    EncodeValues(format, values.data(), rows, width, reinterpret_cast<std::byte*>(bytes.data()));
  }
  return bytes;
}

}  // namespace

std::string Player::PickVariable(Choices& choices) {
  if (model_.variables.empty() || choices.OneIn(40)) return AnyVariableName(choices);
  auto at = model_.variables.begin();
  std::advance(at, choices.Below(model_.variables.size()));
  return at->first;
}

template <typename Item>
void Player::FillTarget(Choices& choices, bool repeats, Item& item) {
  item.variable = PickVariable(choices);
  const auto found = model_.variables.find(item.variable);
  if (found == model_.variables.end()) return;
  const VariableModel& variable = found->second;
  if (variable.embedding()) {
    item.selection = wire::Selection::KEYS;
    item.ids = PayloadOf(Keys(choices, repeats));
  } else if (!variable.shards.empty()) {
    auto shard = variable.shards.begin();
    std::advance(shard, choices.Below(variable.shards.size()));
    item.shard = shard->first;
    if (choices.OneIn(2)) {
      item.selection = wire::Selection::ROWS;
      item.ids = PayloadOf(RowIds(choices, shard->second.first_row, shard->second.rows, repeats));
    }
  }
  if (choices.OneIn(12)) item.map_version = choices.OneIn(4) ? AnyInt64(choices) : 1;
  if (!choices.OneIn(25)) return;
  switch (choices.Below(5)) {  // just outside the allowed range
    case 0: item.shard = AnyInt32(choices); break;
    case 1:
      item.selection = static_cast<wire::Selection::type>(choices.Of({1, 2, 3, 0, 4, -1}));
      break;
    case 2: item.ids = PayloadOf(AnyBytes(choices, 24)); break;
    default: {
      const auto shard = variable.shards.find(item.shard);
      const int64_t past =
          shard == variable.shards.end() ? 0 : shard->second.first_row + shard->second.rows;
      const std::vector<int64_t> odd = {past, past - 1, -1, kMost64, kLeast64};
      item.selection = variable.embedding() ? wire::Selection::KEYS : wire::Selection::ROWS;
      item.ids = PayloadOf(std::vector<int64_t>{choices.Of(odd)});
    }
  }
}

template void Player::FillTarget(Choices& choices, bool repeats, wire::PullItem& item);

wire::PushItem Player::AnyPushItem(Choices& choices) {
  wire::PushItem item;
  FillTarget(choices, /*repeats=*/true, item);
  const auto found = model_.variables.find(item.variable);
  if (found == model_.variables.end()) return item;
  const VariableModel& variable = found->second;
  const bool whole = item.selection == wire::Selection::WHOLE;
  const int64_t rows = RowsOf(variable, item.shard, item.ids, whole);
  item.dtype = static_cast<wire::DType::type>(variable.spec.dtype);
  const size_t count = rows > 0 ? static_cast<size_t>(rows * variable.width) : 0;
  const auto style = static_cast<NumberStyle>(choices.Weighted({12, 4, 1}));
  std::string values = Numbers(choices, variable.spec.dtype, count, style);
  if (variable.spec.dtype == DType::kFloat32 && choices.OneIn(6)) {
    const auto format = static_cast<ValueFormat>(1 + choices.Below(whole ? 4 : 3));
    if (format != ValueFormat::kTopK || style != NumberStyle::kNotFinite) {
      values = Encoded(format, values, rows, variable.width);
      item.format = static_cast<wire::ValueFormat::type>(format);
    }
  }
  if (choices.OneIn(40)) values += "x";
  if (choices.OneIn(60))
    item.format = static_cast<wire::ValueFormat::type>(choices.Of({4, 5, -1, 3}));
  if (choices.OneIn(80)) item.dtype = static_cast<wire::DType::type>(choices.Of({2, 1, 5, 6}));
  item.values = PayloadOf(values);
  if (choices.OneIn(4)) item.pulled_version = choices.Of<int64_t>({0, 1, 2, kMost64, kLeast64, -2});
  return item;
}

wire::AssignItem Player::AnyAssignItem(Choices& choices) {
  wire::AssignItem item;
  FillTarget(choices, /*repeats=*/choices.OneIn(20), item);
  const auto found = model_.variables.find(item.variable);
  if (found == model_.variables.end()) return item;
  const VariableModel& variable = found->second;
  size_t part = 0;
  if (!variable.slots.empty() && choices.OneIn(3)) {
    part = 1 + choices.Below(variable.slots.size());
    item.slot = variable.slots[part - 1];
  }
  if (choices.OneIn(60)) item.slot = choices.Of({"momentum", "none", "\xff"});
  const DType dtype = PartType(variable, part);
  const int64_t rows =
      RowsOf(variable, item.shard, item.ids, item.selection == wire::Selection::WHOLE);
  const size_t count = rows > 0 ? static_cast<size_t>(rows * variable.width) : 0;
  std::string values = Numbers(choices, dtype, count, NumberStyle::kAny);
  if (choices.OneIn(40)) values += "x";
  item.values = PayloadOf(values);
  item.dtype = static_cast<wire::DType::type>(dtype);
  if (choices.OneIn(60)) item.dtype = static_cast<wire::DType::type>(AnyInt32(choices));
  return item;
}

wire::Sequence Player::AnySequence(Choices& choices, const wire::Caller& caller) {
  wire::Sequence sequence;
  const auto known = model_.workers.find(caller.worker);
  const int64_t last =
      known == model_.workers.end() ? 0 : std::max(known->second.applied, known->second.through);
  sequence.after = last;
  sequence.sequence = last < kMost64 ? last + 1 : last;
  switch (choices.Weighted({20, 3, 2, 1, 1})) {
    case 0: break;
    case 1:  // sent again
      sequence.sequence = std::max<int64_t>(1, last);
      sequence.after = sequence.sequence - 1;
      break;
    case 2: {  // some numbers had no part on this server
      const int64_t gap = choices.Of<int64_t>({1, 2, 100});
      if (last < kMost64 - 200) sequence.sequence += gap;
      break;
    }
    case 3:  // a sequence that comes too early
      if (last < kMost64 - 200) sequence.sequence += 5, sequence.after += 3;
      break;
    default:
      if (choices.OneIn(3)) {
        sequence.sequence = AnyInt64(choices);
        sequence.after = AnyInt64(choices);
      }
      break;
  }
  if (choices.OneIn(4)) sequence.position = AnyBytes(choices, kMaxPositionBytes);
  return sequence;
}

template <typename Request>
void Player::PlanOrder(const Request& request, Plan& plan) {
  const wire::Sequence& sequence = request.sequence;
  plan.sequence = sequence.sequence;
  plan.admitted = Admits(request.caller);
  // A request that is refused before it reaches the engine has no effect there.
  plan.ordered = CheckRequest(request).ok();
  if (!plan.admitted || !plan.ordered) return;
  NoteCall(request.caller);
  plan.worker = WorkerOf(request.caller);
  if (plan.worker == nullptr) {
    plan.ordered = !request.late;
    return;
  }
  if (sequence.sequence < 1 || sequence.after >= sequence.sequence) {
    plan.ordered = false;
    return;
  }
  const Worker& worker = *plan.worker;
  const int64_t applied = std::max(worker.applied, worker.through);
  plan.repeated = sequence.sequence <= applied;
  if (request.late) return;
  plan.replay = sequence.after > applied;
  plan.hides_loss = plan.replay && request.caller.boot_id == 0 && request.caller.through > 0;
}

void Player::PlanItems(const wire::PushRequest& request, Plan& plan) {
  std::set<std::pair<std::string, int32_t>> named;
  bool twice = false;
  for (const wire::PushItem& item : request.items) {
    std::string gradient;
    Resolved resolved = model_.ResolvePush(item, &gradient);
    if (resolved.verdict == Verdict::kRefused) {
      plan.items = Verdict::kRefused;
      plan.why = resolved.why;
      return;
    }
    if (resolved.verdict == Verdict::kUnsure) plan.items = Verdict::kUnsure;
    plan.finite &= IsFinite(resolved.variable->spec.dtype, gradient);
    twice |= !named.emplace(item.variable, item.shard).second;
    plan.resolved.push_back(std::move(resolved));
    plan.shards.push_back(item.shard);
    plan.gradients.push_back(std::move(gradient));
  }
  if (!twice) return;
  plan.items = plan.finite ? Verdict::kRefused : Verdict::kUnsure;
  plan.why = "a shard named twice";
}

void Player::PlanItems(const wire::AssignRequest& request, Plan& plan) {
  for (const wire::AssignItem& item : request.items) {
    Resolved resolved = model_.ResolveAssign(item);
    if (resolved.verdict == Verdict::kRefused) {
      plan.items = Verdict::kRefused;
      plan.why = resolved.why;
      return;
    }
    if (resolved.verdict == Verdict::kUnsure) plan.items = Verdict::kUnsure;
    plan.resolved.push_back(std::move(resolved));
    plan.shards.push_back(item.shard);
  }
}

// Counts the sequence number as applied, with or without an update.
void Player::Consume(const Plan& plan, const wire::Sequence& sequence) {
  if (plan.worker == nullptr || sequence.sequence <= plan.worker->applied) return;
  plan.worker->applied = sequence.sequence;
  plan.worker->position = sequence.position;
}

// Compares the outcome of a push or assign with its plan. `applied`: whether the update is made.
template <typename Request>
Finding Player::Judge(const Request& request, const Plan& plan, const Outcome& outcome,
                      const wire::PushReply& reply, bool* applied) {
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    if (plan.accepted()) return Fail("a valid update was refused", outcome.error.message);
    const bool passes = outcome.error.code == wire::ErrorCode::RESOURCE_EXHAUSTED ||
                        outcome.Is(wire::ErrorReason::BUSY) || outcome.Is(wire::ErrorReason::MOVED);
    if (plan.admitted && plan.ordered && !plan.replay && !request.late && !passes) {
      Consume(plan, request.sequence);
    }
    if (!plan.admitted || !plan.ordered || !plan.replay || plan.hides_loss) return {};
    if (!outcome.Is(wire::ErrorReason::REPLAY)) {
      return Fail("a push that comes too early was not answered REPLAY", outcome.error.message);
    }
    const int64_t known = std::max(plan.worker->applied, plan.worker->through);
    if (outcome.error.replay_after == known) return {};
    return Fail("REPLAY names another sequence than the one applied",
                absl::StrCat(outcome.error.replay_after, ", not ", known));
  }
  if (plan.hides_loss) {
    return Fail(
        "`through` of a caller that names no boot hides what is lost",
        absl::StrCat("sequence ", request.sequence.sequence, " after ", request.sequence.after,
                     " was taken; applied here is ", plan.worker->applied));
  }
  if (!plan.admitted || !plan.ordered || plan.replay || plan.items == Verdict::kRefused) {
    return Fail("an invalid update was accepted", !plan.admitted
                                                      ? "the caller is none that is known"
                                                  : !plan.ordered ? "its sequence is none"
                                                  : plan.replay   ? "it comes too early"
                                                                  : plan.why);
  }
  if (!plan.finite) return Fail("a gradient that is not finite was accepted");
  FUZZ_RETURN_IF(CheckState(request.caller, reply.state));
  if (!request.late) Consume(plan, request.sequence);
  if (request.late && plan.worker != nullptr && !plan.repeated) plan.worker->murky = true;
  *applied = !plan.repeated;
  return {};
}

void Player::Apply(const wire::PushRequest& request, const Plan& plan) {
  for (size_t i = 0; i < plan.resolved.size(); ++i) {
    model_.ApplyPush(plan.resolved[i], request.items[i].shard, plan.gradients[i]);
  }
}

// Marks the shard's content as unknown.
void Player::Forget(VariableModel& variable, int32_t shard) {
  if (!variable.embedding()) return model_.MarkStale(variable, shard, {}, /*all=*/true);
  variable.keys_known = variable.waiting_known = false;
  for (auto& [key, row] : variable.rows) {
    row.stale = true;
    row.pushed_by = model_.now;
    row.noted_at = 0;
    row.order = 0;
  }
}

wire::PushRequest Player::AnyPush(Choices& choices) {
  wire::PushRequest request;
  request.caller = AnyCaller(choices, /*may_be_odd=*/true);
  if (mode_ == Mode::kSync && !choices.OneIn(30)) request.caller = Tool();
  if (request.caller.worker >= 0 || choices.OneIn(10)) {
    request.sequence = AnySequence(choices, request.caller);
  }
  const size_t count = choices.Of<size_t>({1, 1, 2, 3, 0});
  for (size_t i = 0; i < count; ++i) request.items.push_back(AnyPushItem(choices));
  if (mode_ == Mode::kAsync && choices.OneIn(40)) request.late = true;
  return request;
}

Finding Player::Push(Choices& choices) {
  if (model_.variables.empty()) return Create(choices);
  const wire::PushRequest request = AnyPush(choices);
  // The worker's open contributions would block it.
  if (mode_ == Mode::kSync && request.caller.worker >= 0) return Describe(choices);
  Plan plan;
  PlanOrder(request, plan);
  PlanItems(request, plan);
  Trace("push", request);
  wire::PushReply reply;
  const Outcome outcome = Send("push", reply, request, &Service::push);
  bool applied = false;
  FUZZ_RETURN_IF(Judge(request, plan, outcome, reply, &applied));
  // A try with a failed allocation may have counted the push for some keys.
  if (outcome.tries > 1) {
    for (Resolved& resolved : plan.resolved) resolved.variable->waiting_known = false;
  }
  if (outcome.ok) {
    const bool murky = plan.worker != nullptr && plan.worker->murky;
    const bool repeated = plan.repeated && !request.items.empty();
    if (murky) {
      applied = !reply.repeated && !request.items.empty();
    } else if (reply.repeated != repeated && outcome.tries == 1) {
      return Fail(repeated ? "a push that was sent again is not `repeated`"
                           : "a new push is `repeated`");
    }
    if (applied) Apply(request, plan);
    if (reply.items.size() != request.items.size()) return Fail("a push has not its items");
    // Tries of a call without a sequence number may also have been applied.
    const bool unnumbered = outcome.tries > 1 && plan.worker == nullptr;
    for (size_t i = 0; i < reply.items.size() && !murky && !unnumbered; ++i) {
      const int64_t version = plan.resolved[i].variable->version_of(request.items[i].shard);
      if (reply.items[i].version != version) {
        return Fail("a push counts other updates than there were",
                    absl::StrCat(reply.items[i].version, ", not ", version));
      }
      if (reply.items[i].staleness < -1) return Fail("a staleness below -1");
    }
    if (murky || unnumbered) {
      for (size_t i = 0; i < reply.items.size(); ++i) {
        plan.resolved[i].variable->version_of(request.items[i].shard) = reply.items[i].version;
        Forget(*plan.resolved[i].variable, request.items[i].shard);
      }
    }
  }
  if (choices.OneIn(3)) return {};
  for (const wire::PushItem& item : request.items) FUZZ_RETURN_IF(Verify(item.variable));
  return {};
}

Finding Player::StepCall(Choices& choices) {
  if (model_.variables.empty() || mode_ != Mode::kAsync) return Pull(choices);
  wire::StepRequest request;
  request.push = AnyPush(choices);
  request.push.late = false;
  request.pull.caller = request.push.caller;
  request.pull.wait_seconds = 1e-6;
  if (choices.OneIn(2)) request.pull.items.push_back(AnyPullItem(choices, /*may_be_odd=*/false));
  for (const wire::PushItem& item : request.push.items) {
    wire::PullItem pull;
    pull.variable = item.variable;
    pull.shard = item.shard;
    pull.selection = item.selection;
    pull.ids = item.ids;
    request.pull.items.push_back(pull);
  }
  Plan plan;
  PlanItems(request.push, plan);
  const Worker* const worker = WorkerOf(request.push.caller);
  bool computed = plan.items != Verdict::kUnsure && (worker == nullptr || !worker->murky);
  for (const wire::PullItem& item : request.pull.items) {
    computed &= model_.ResolvePull(item).verdict == Verdict::kAccepted;
  }
  // A try of a call without a sequence number may also have been applied.
  computed &= around_ == nullptr || worker != nullptr;
  if (!computed || !CheckRequest(request.pull).ok()) return {};
  PlanOrder(request.push, plan);
  if (trace_ != nullptr) {
    trace_(absl::StrCat("step ", TextOf(request.push), "\n    pull ", TextOf(request.pull)));
  }
  wire::StepReply reply;
  const Outcome outcome = Send("step", reply, request, &Service::step);
  bool applied = false;
  FUZZ_RETURN_IF(Judge(request.push, plan, outcome, reply.push, &applied));
  if (outcome.tries > 1) {
    for (Resolved& resolved : plan.resolved) resolved.variable->waiting_known = false;
  }
  if (!outcome.ok) return Verify(request.push.items.empty() ? "" : request.push.items[0].variable);
  if (applied) Apply(request.push, plan);
  if (reply.pull.items.size() != request.pull.items.size()) return Fail("a pull has not its items");
  for (size_t i = 0; i < request.pull.items.size(); ++i) {
    const Resolved resolved = model_.ResolvePull(request.pull.items[i]);
    FUZZ_RETURN_IF(CheckPulled(request.pull.items[i], resolved, reply.pull.items[i]));
  }
  return {};
}

Finding Player::Assign(Choices& choices) {
  if (model_.variables.empty()) return Create(choices);
  wire::AssignRequest request;
  request.caller = AnyCaller(choices, /*may_be_odd=*/true);
  if (request.caller.worker >= 0) request.sequence = AnySequence(choices, request.caller);
  const size_t count = choices.Of<size_t>({1, 1, 2, 0});
  for (size_t i = 0; i < count; ++i) request.items.push_back(AnyAssignItem(choices));
  const auto is_whole = [](const wire::AssignItem& item) {
    return item.selection == wire::Selection::WHOLE;
  };
  if (request.caller.worker >= 0 && choices.OneIn(4) &&
      std::all_of(request.items.begin(), request.items.end(), is_whole)) {
    request.__set_together(true);
  }
  Plan plan;
  PlanOrder(request, plan);
  PlanItems(request, plan);
  Trace("assign", request);
  wire::PushReply reply;
  const Outcome outcome = Send("assign", reply, request, &Service::assign);
  bool applied = false;
  FUZZ_RETURN_IF(Judge(request, plan, outcome, reply, &applied));
  if (outcome.ok) {
    bool any_rows = false;
    for (const Resolved& resolved : plan.resolved) any_rows |= resolved.rows > 0;
    const bool murky = plan.worker != nullptr && plan.worker->murky;
    // An item without rows has nothing to repeat.
    if (any_rows && !murky && outcome.tries == 1 && reply.repeated != plan.repeated) {
      return Fail(plan.repeated ? "an assign that was sent again is not `repeated`"
                                : "a new assign is `repeated`");
    }
    for (size_t i = 0; i < plan.resolved.size(); ++i) {
      if (murky) {
        Forget(*plan.resolved[i].variable, request.items[i].shard);
      } else if (applied) {
        model_.ApplyAssign(plan.resolved[i], request.items[i].shard, request.items[i].values);
      }
    }
  }
  if (choices.OneIn(3)) return {};
  for (const wire::AssignItem& item : request.items) FUZZ_RETURN_IF(Verify(item.variable));
  return {};
}

}  // namespace cairn::fuzz
