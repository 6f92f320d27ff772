#include "tests/fuzz/player.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"

namespace cairn::fuzz {
namespace {

constexpr size_t kNumbersShown = 24;

template <typename T>
std::string Joined(const Payload& bytes) {
  const std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<T> numbers(std::min(kNumbersShown, copy.size() / sizeof(T)));
  if (!numbers.empty()) std::memcpy(numbers.data(), copy.data(), numbers.size() * sizeof(T));
  return absl::StrCat("[", absl::StrJoin(numbers, " "),
                      copy.size() > kNumbersShown * sizeof(T) ? " …" : "", "]");
}

template <typename Item>
std::string ItemText(const Item& item) {
  std::string text = absl::StrCat("\n      ", item.variable.substr(0, 20));
  if (item.shard != 0) absl::StrAppend(&text, " shard ", item.shard);
  absl::StrAppend(&text, " selection ", static_cast<int>(item.selection));
  if (!item.ids.empty()) absl::StrAppend(&text, " ids ", NumbersText(item.ids, 6));
  if (item.map_version != 0) absl::StrAppend(&text, " map_version ", item.map_version);
  return text;
}

std::string OrderText(const wire::Caller& caller, const wire::Sequence& sequence, bool late) {
  return absl::StrCat(TextOf(caller), "\n      sequence ", sequence.sequence, " after ",
                      sequence.after, ", position of ", sequence.position.size(), " bytes",
                      late ? ", late" : "");
}

}  // namespace

std::string NumbersText(const Payload& bytes, int32_t dtype) {
  switch (dtype) {
    case wire::DType::FLOAT32: return Joined<float>(bytes);
    case wire::DType::FLOAT64: return Joined<double>(bytes);
    case wire::DType::INT32: return Joined<int32_t>(bytes);
    case wire::DType::INT64: return Joined<int64_t>(bytes);
    default: return absl::StrCat(bytes.size(), " bytes");
  }
}

std::string TextOf(const wire::PushRequest& request) {
  std::string text = OrderText(request.caller, request.sequence, request.late);
  if (request.step != 0) absl::StrAppend(&text, " step ", request.step, " rows ", request.rows);
  for (const wire::PushItem& item : request.items) {
    absl::StrAppend(&text, ItemText(item), " format ", static_cast<int>(item.format), " values ",
                    NumbersText(item.values, item.format == 0 ? item.dtype : 0), " pulled_version ",
                    item.pulled_version);
  }
  return text;
}

std::string TextOf(const wire::AssignRequest& request) {
  std::string text = OrderText(request.caller, request.sequence, request.late);
  for (const wire::AssignItem& item : request.items) {
    absl::StrAppend(&text, ItemText(item), " slot '", item.slot, "' values ",
                    NumbersText(item.values, item.dtype));
  }
  return text;
}

std::string TextOf(const wire::PullRequest& request) {
  std::string text = TextOf(request.caller);
  if (request.step != 0) absl::StrAppend(&text, " step ", request.step);
  for (const wire::PullItem& item : request.items) {
    absl::StrAppend(&text, ItemText(item), " slot '", item.slot, "' format ",
                    static_cast<int>(item.format));
    if (item.__isset.held) absl::StrAppend(&text, " held mark ", item.held.mark);
  }
  return text;
}

Player::Player(Target& target, std::string job, std::function<void(const std::string&)> trace,
               AroundCall around)
    : target_(target), job_(std::move(job)), trace_(std::move(trace)), around_(std::move(around)) {}

Finding Player::Fail(std::string what, std::string details) const {
  return {.what = std::move(what), .details = std::move(details)};
}

Finding Player::Insane(const Outcome& outcome) const {
  if (outcome.finding.empty()) return {};
  if (outcome.finding == kServerStopped) return Fail(outcome.finding);
  return Fail("an error that no server may answer", outcome.finding);
}

Finding Player::Begin(Choices& choices) {
  worker_count_ = 1 + static_cast<int32_t>(choices.Below(3));
  mode_ = static_cast<Mode>(choices.Weighted({8, 1, 2}));
  consistency_ = {};
  if (mode_ == Mode::kSsp) {
    consistency_.mode = wire::ConsistencyMode::SSP;
    consistency_.staleness_bound_steps = choices.Of<int64_t>({1, 0, 3, kMost64});
  }
  if (mode_ == Mode::kSync) {
    consistency_.mode = wire::ConsistencyMode::SYNC;
    consistency_.sync_mean = choices.OneIn(4) ? wire::SyncMean::CONTRIBUTORS : wire::SyncMean::ROWS;
  }
  weights_.assign(kOps, 0);
  const std::vector<uint32_t> usual = {30, 18, 12, 8, 6, 4, 6, 4, 2, 2, 1, 1, 3, 1, 1, 1, 2};
  std::copy(usual.begin(), usual.end(), weights_.begin());
  // Omits some kinds of calls, so that the remaining ones interact more often.
  for (size_t op = kAssign; op < usual.size(); ++op) {
    if (choices.OneIn(4) && op != kCreate) weights_[op] = 0;
  }
  if (choices.OneIn(40)) {
    weights_[kRestart] = 6;
    weights_[kCrash] = 6;
    weights_[kFlush] += 4;
    weights_[kDrop] = 1;
  }
  if (choices.OneIn(80)) weights_[kCheckpoint] = 6;
  if (mode_ == Mode::kSync) {
    weights_[kContribute] = 40;
    weights_[kBegin] = 40;
    weights_[kStep] = weights_[kAssign] = weights_[kCrash] = weights_[kLeave] = 0;
    weights_[kPush] = 4;
  }
  wire::ServerState state;
  const Outcome outcome = Send("heartbeat", state, Tool(), &Service::heartbeat);
  if (!outcome.ok) return Fail("a valid call was refused", outcome.error.message);
  boot_id_ = state.boot_id;
  FUZZ_RETURN_IF(CreateOne(Tool(), {AnySpec(choices, "a")}));
  for (int32_t worker = 0; worker < worker_count_; ++worker) {
    if (mode_ == Mode::kAsync && choices.OneIn(4)) continue;
    FUZZ_RETURN_IF(HelloOf(worker, nullptr));
  }
  return {};
}

Finding Player::Step(Choices& choices) {
  model_.now = target_.clock();
  return Run(static_cast<Op>(choices.Weighted(weights_)), choices);
}

Finding Player::Run(Op op, Choices& choices) {
  switch (op) {
    case kPush: return Push(choices);
    case kPull: return Pull(choices);
    case kAssign: return Assign(choices);
    case kStep: return StepCall(choices);
    case kHeld: return PullHeld(choices);
    case kScan: return Scan(choices);
    case kCreate: return Create(choices);
    case kHello: return Hello(choices);
    case kDescribe: return Describe(choices);
    case kRules: return Rules(choices);
    case kTools: return Tools(choices);
    case kMoves: return Moves(choices);
    case kStrangers: return Strangers(choices);
    case kRestart: return Restart(/*crash=*/false);
    case kCrash: return Restart(/*crash=*/true);
    case kCheckpoint: return Checkpoint(choices);
    case kDrop: return Drop();
    case kContribute: return Contribute(choices);
    case kBegin: return BeginStep(choices);
    default: return SimpleCall(op, choices);
  }
}

Finding Player::End() {
  FUZZ_RETURN_IF(VerifyAll());
  return Drop();
}

}  // namespace cairn::fuzz
