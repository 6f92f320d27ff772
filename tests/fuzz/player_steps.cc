// Synchronous steps: contributions, and the mean that closes a step.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/player-inl.h"
#include "tests/fuzz/values.h"
#include "thrift/number_limits.h"

namespace cairn::fuzz {
namespace {

// Larger gradients are not contributed, because a mean that overflows is not applied.
constexpr float kLargeGradient = 1e30F;
constexpr float kLargeHalf = 1000;

// Weights from here on may be refused, because the sum over a step must not overflow.
constexpr int64_t kLargeWeight = int64_t{1} << 31;

double NumberAt(DType dtype, const std::string& bytes, size_t i) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
  return value;
}

bool HasLargeNumber(DType dtype, const std::string& bytes) {
  if (!IsFloating(dtype)) return false;
  std::vector<float> numbers(bytes.size() / DTypeBytes(dtype));
  ToFloat32(dtype, bytes.data(), numbers.size(), numbers.data());
  const float most = dtype == DType::kFloat16 ? kLargeHalf : kLargeGradient;
  return std::any_of(numbers.begin(), numbers.end(),
                     [most](float number) { return std::abs(number) > most; });
}

bool IsComputed(const VariableModel& variable) {
  return variable.exact && !variable.embedding() &&
         (variable.spec.dtype == DType::kFloat32 || variable.spec.dtype == DType::kFloat64);
}

}  // namespace

Finding Player::Contribute(Choices& choices) {
  if (model_.workers.empty() || model_.variables.empty()) return {};
  auto at = model_.workers.begin();
  std::advance(at, choices.Below(model_.workers.size()));
  Worker& worker = at->second;
  const auto sent = pending_.find(at->first);
  wire::PushRequest request;
  if (sent != pending_.end()) {
    request = sent->second.request;  // sent again
  } else {
    if (clocks_[at->first] > open_step_) return {};
    request.caller = CallerOf(at->first);
    request.sequence.after = worker.applied;
    request.sequence.sequence = worker.applied + 1;
    request.step = open_step_;
    request.rows = choices.Of<int64_t>(
        {1, 2, 3, 1000, kLargeWeight, int64_t{1} << 53, int64_t{1} << 62, kMost64});
    wire::PushItem item = AnyPushItem(choices);
    std::string gradient;
    const Resolved resolved = model_.ResolvePush(item, &gradient);
    if (resolved.verdict != Verdict::kAccepted ||
        !IsFinite(resolved.variable->spec.dtype, gradient) ||
        HasLargeNumber(resolved.variable->spec.dtype, gradient)) {
      return {};
    }
    request.items = {item};
    Contribution& contribution = pending_[at->first];
    contribution = {
        .step = open_step_, .rows = request.rows, .variable = item.variable, .shard = item.shard};
    contribution.request = request;
    if (IsComputed(*resolved.variable)) {
      const DenseModel& shard = resolved.variable->shards.at(item.shard);
      const auto width = static_cast<size_t>(resolved.variable->width);
      contribution.gradient.assign(static_cast<size_t>(shard.rows) * width, 0);
      for (size_t i = 0; i < static_cast<size_t>(resolved.rows) * width; ++i) {
        const size_t row = resolved.ids.empty()
                               ? i / width
                               : static_cast<size_t>(resolved.ids[i / width] - shard.first_row);
        contribution.gradient[row * width + i % width] +=
            NumberAt(resolved.variable->spec.dtype, gradient, i);
      }
    }
  }
  Trace("push", request);
  wire::PushReply reply;
  const Outcome outcome = Send("push", reply, request, &Service::push);
  FUZZ_RETURN_IF(Insane(outcome));
  if (!outcome.ok) {
    if (request.rows < kLargeWeight) {
      return Fail("a valid contribution was refused", outcome.error.message);
    }
    pending_.erase(at->first);
    return {};
  }
  if (reply.dropped) return Fail("a contribution to the open step was dropped");
  if (outcome.tries == 1 && reply.repeated != (sent != pending_.end())) {
    return Fail("a contribution is `repeated`, or is not");
  }
  worker.applied = std::max(worker.applied, request.sequence.sequence);
  return {};
}

// A worker enters the next step, or repeats the call for the open step.
Finding Player::BeginStep(Choices& choices) {
  if (model_.workers.empty()) return {};
  auto at = model_.workers.begin();
  std::advance(at, choices.Below(model_.workers.size()));
  const bool contributed = pending_.contains(at->first);
  wire::PullRequest request;
  request.caller = CallerOf(at->first);
  request.wait_seconds = 1e-9;
  request.step = contributed || choices.OneIn(10) ? open_step_ + 1 : open_step_;
  request.step = std::max(request.step, clocks_[at->first]);
  if (choices.OneIn(4)) request.decisions_after = choices.Of<int64_t>({0, 1, kMaxStep});
  Trace("pull", request);
  wire::PullReply reply;
  const Outcome outcome = Send("pull", reply, request, &Service::pull);
  FUZZ_RETURN_IF(Insane(outcome));
  clocks_[at->first] = request.step;
  const bool all = std::ssize(model_.workers) == worker_count_ &&
                   std::all_of(model_.workers.begin(), model_.workers.end(),
                               [&](const auto& w) { return clocks_[w.first] > open_step_; });
  if (!outcome.ok) {
    if (all)
      return Fail("a step that everybody has finished does not close", outcome.error.message);
    if (request.step > open_step_ && outcome.Is(wire::ErrorReason::WAIT_EXPIRED)) return {};
    return Fail("a valid pull was refused", outcome.error.message);
  }
  if (request.step > open_step_ && !all) return Fail("a step closed without a worker");
  for (; open_step_ < reply.step; ++open_step_) FUZZ_RETURN_IF(CloseStep(open_step_));
  if (reply.step != open_step_) return Fail("a pull names another open step");
  return {};
}

Finding Player::CloseStep(int64_t step) {
  std::map<std::pair<std::string, int32_t>, Closing> shards;
  double weight = 0;
  for (const auto& [worker, contribution] : pending_) {
    if (contribution.step != step) continue;
    weight += static_cast<double>(contribution.rows);
    const auto found = model_.variables.find(contribution.variable);
    if (found == model_.variables.end()) continue;
    const auto [at, is_new] =
        shards.try_emplace({contribution.variable, contribution.shard}, Closing{});
    if (is_new) at->second = BeginClosing(found->second, contribution.shard);
    Closing& closing = at->second;
    closing.gradient.resize(contribution.gradient.size());
    closing.size.resize(contribution.gradient.size());
    for (size_t i = 0; i < contribution.gradient.size(); ++i) {
      closing.gradient[i] += contribution.gradient[i] * static_cast<double>(contribution.rows);
      closing.size[i] += std::abs(contribution.gradient[i]);
    }
  }
  for (const auto& [shard, closing] : shards) FUZZ_RETURN_IF(Verify(shard.first));
  for (const auto& [shard, closing] : shards) {
    FUZZ_RETURN_IF(CheckMean(model_.variables.at(shard.first), shard.second, closing, weight));
  }
  for (auto at = pending_.begin(); at != pending_.end();) {
    at = at->second.step == step ? pending_.erase(at) : std::next(at);
  }
  return {};
}

// Counts the update of a step; the resulting rows are compared later.
Player::Closing Player::BeginClosing(VariableModel& variable, int32_t index) {
  ++variable.version_of(index);
  Closing closing;
  if (variable.embedding()) {
    variable.keys_known = variable.waiting_known = false;
    for (auto& [key, row] : variable.rows) {
      row.stale = true;
      row.pushed_by = model_.now;
      row.noted_at = 0;
      row.order = 0;
    }
    return closing;
  }
  const DenseModel& shard = variable.shards.at(index);
  closing.before = shard.parts[0];
  closing.stale = shard.stale;
  model_.MarkStale(variable, index, {}, /*all=*/true);
  return closing;
}

Finding Player::CheckMean(const VariableModel& variable, int32_t index, const Closing& closing,
                          double weight) const {
  if (!IsComputed(variable) || consistency_.sync_mean != wire::SyncMean::ROWS) return {};
  const DType dtype = variable.spec.dtype;
  const std::string& after = variable.shards.at(index).parts[0];
  for (size_t i = 0; i < closing.gradient.size(); ++i) {
    if (closing.stale[i / static_cast<size_t>(variable.width)]) continue;
    const double was = NumberAt(dtype, closing.before, i);
    const double now = NumberAt(dtype, after, i);
    const double expected = was - variable.rate * (closing.gradient[i] / weight);
    const double room = 1e-4 * (std::abs(was) + (1 + variable.rate) * closing.size[i]) + 1e-30;
    if (closing.size[i] > 1e30 || std::abs(was) > 1e30) continue;
    if (std::abs(now - expected) <= room) continue;
    return Fail("the mean of a step is another",
                absl::StrCat("found ", now, ", expected ", expected, " after ", was));
  }
  return {};
}

}  // namespace cairn::fuzz
