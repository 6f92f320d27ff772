#include "worker/trainer/steps/roster.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/status.h"

namespace cairn {
namespace {

constexpr absl::string_view kRosterName = "cairn/workers";
constexpr size_t kColumns = 2;

}  // namespace

VariableSpec RosterSpec() {
  VariableSpec spec;
  spec.name = std::string(kRosterName);
  spec.kind = VariableKind::kEmbedding;
  spec.shape = {kColumns};
  spec.optimizer.type = "sgd";
  spec.optimizer.learning_rate = ConstantRate(1.0);
  spec.touched_rows = TouchedRows::kPushed;
  spec.bucket_ps = {0};
  return spec;
}

bool HasRoster(absl::Span<const VariableSpec> specs) {
  return std::ranges::any_of(specs,
                             [](const VariableSpec& spec) { return spec.name == kRosterName; });
}

absl::StatusOr<std::vector<RosterRow>> ReadRoster(PsClient& client, int32_t workers,
                                                  Deadline deadline) {
  std::vector<int64_t> keys(static_cast<size_t>(workers));
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> values(keys.size() * kColumns);
  const PullTarget target{.variable = kRosterName,
                          .part = Part::kKeys,
                          .ids = keys,
                          .out = AsWritableBytes(absl::MakeSpan(values))};
  RETURN_IF_ERROR(client.Pull({target}, deadline));
  std::vector<RosterRow> rows(keys.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].runs_finished = std::llround(values[i * kColumns]);
    rows[i].beats = std::llround(values[i * kColumns + 1]);
  }
  return rows;
}

PushSource RosterEntry::Source(absl::Duration now, int64_t finished_runs,
                               RosterGradient* gradient) {
  next_beat_ = now + kBeatInterval;
  // SGD with rate 1 subtracts the gradient. The count of heartbeats wraps, since a float32 that
  // only grows stops at 2^24; it never wraps to 0, which means that the worker was never seen.
  constexpr int64_t kPeriod = 1024;
  const float step = ++beats_ % kPeriod == 0 ? 2.0f - kPeriod : 1.0f;
  *gradient = {-static_cast<float>(finished_runs), -step};
  return {.variable = kRosterName,
          .part = Part::kKeys,
          .ids = absl::MakeConstSpan(&key_, 1),
          .values = AsBytes(absl::MakeConstSpan(*gradient))};
}

}  // namespace cairn
