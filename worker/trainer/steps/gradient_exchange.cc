#include "worker/trainer/steps/gradient_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/deadline.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/collective/batch_all_reduce.h"
#include "worker/collective/gather_values.h"

namespace cairn {
namespace {

constexpr size_t kIdWords = sizeof(int64_t) / sizeof(float);

void Scale(float factor, HostVector<float>* values) {
  for (float& value : *values) value *= factor;
}

void Add(const float* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

size_t GradientExchange::WidthOf(size_t variable) const {
  const VariableSpec& spec = variables_[variable];
  return static_cast<size_t>(spec.kind == VariableKind::kDense ? RowWidth(spec.shape)
                                                               : spec.shape.front());
}

size_t GradientExchange::IdsOf(const JointStep& step, size_t worker, size_t variable) const {
  return static_cast<size_t>(step.worker_ids[worker * variables_.size() + variable]);
}

void GradientExchange::FindShared(const JointStep& step) {
  shared_.assign(variables_.size(), Shared::kRows);
  for (size_t i = 0; i < step.worker_ids.size(); ++i) {
    if (step.worker_ids[i] != JointStep::kWhole) continue;
    shared_[i % variables_.size()] = Shared::kWhole;
  }
}

void GradientExchange::MakeWhole(size_t variable, VariableUse* use) const {
  if (use->part == Part::kWhole) return;
  const size_t width = WidthOf(variable);
  HostVector<float> whole(static_cast<size_t>(RowCount(variables_[variable].shape)) * width);
  const float* from = use->gradient.data();
  for (const int64_t id : use->ids) {
    std::copy_n(from, width, whole.data() + static_cast<size_t>(id) * width);
    from += width;
  }
  use->gradient = std::move(whole);
  use->ids.clear();
  use->part = Part::kWhole;
}

absl::Status GradientExchange::Reduce(const JointStep& step, StepState* state,
                                      absl::Duration timeout) {
  const int64_t own_rows = step.worker_rows[static_cast<size_t>(group_.rank())];
  const float weight = static_cast<float>(own_rows) / static_cast<float>(step.rows);
  for (VariableUse& use : state->uses) {
    if (!use.of_all_workers) Scale(weight, &use.gradient);
  }
  FindShared(step);
  RETURN_IF_ERROR(ReduceWhole(state, timeout));
  return GatherRows(step, state, timeout);
}

absl::Status GradientExchange::ReduceWhole(StepState* state, absl::Duration timeout) {
  std::vector<MutableBuffer> gradients;
  for (size_t v = 0; v < variables_.size(); ++v) {
    VariableUse& use = state->uses[v];
    if (shared_[v] != Shared::kWhole || use.of_all_workers) continue;
    MakeWhole(v, &use);
    gradients.push_back(
        {DType::kFloat32, use.gradient.data(), static_cast<int64_t>(use.gradient.size())});
  }
  options_.timeout = timeout;
  return BatchAllReduce(group_, ReduceOp::kSum, gradients, options_,
                        Deadline::In(timeout * static_cast<double>(gradients.size())));
}

absl::Status GradientExchange::GatherRows(const JointStep& step, StepState* state,
                                          absl::Duration timeout) {
  if (std::ranges::count(shared_, Shared::kRows) == 0) return absl::OkStatus();
  own_.clear();
  if (step.worker_rows[static_cast<size_t>(group_.rank())] > 0) PackRows(*state);
  RETURN_IF_ERROR(GatherValues(group_, own_, &all_, Deadline::In(timeout)));
  AddUp(step, state);
  return absl::OkStatus();
}

void GradientExchange::PackRows(const StepState& state) {
  size_t words = 0;
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (shared_[v] == Shared::kRows) words += state.uses[v].ids.size() * (kIdWords + WidthOf(v));
  }
  own_.resize(words);
  float* to = own_.data();
  for (size_t v = 0; v < variables_.size(); ++v) {
    const std::vector<int64_t>& ids = state.uses[v].ids;
    if (shared_[v] == Shared::kWhole || ids.empty()) continue;
    std::memcpy(to, ids.data(), ids.size() * sizeof(int64_t));
    to += ids.size() * kIdWords;
  }
  for (size_t v = 0; v < variables_.size(); ++v) {
    const HostVector<float>& rows = state.uses[v].gradient;
    if (shared_[v] == Shared::kRows) to = std::copy(rows.begin(), rows.end(), to);
  }
}

void GradientExchange::AddUp(const JointStep& step, StepState* state) {
  const size_t workers = step.worker_rows.size();
  // The positions of each worker's ids and rows of the next variable.
  std::vector<const float*> ids_at(workers), rows_at(workers);
  const float* at = all_.data();
  for (size_t worker = 0; worker < workers; ++worker) {
    ids_at[worker] = rows_at[worker] = at;
    for (size_t v = 0; v < variables_.size(); ++v) {
      if (shared_[v] == Shared::kWhole) continue;
      const size_t ids = IdsOf(step, worker, v);
      rows_at[worker] += ids * kIdWords;
      at += ids * (kIdWords + WidthOf(v));
    }
  }
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (shared_[v] == Shared::kWhole) continue;
    const size_t width = WidthOf(v);
    VariableUse& use = state->uses[v];
    size_t most = 0;
    for (size_t worker = 0; worker < workers; ++worker) most += IdsOf(step, worker, v);
    use.part = variables_[v].kind == VariableKind::kDense ? Part::kRows : Part::kKeys;
    use.ids.resize(most);
    use.gradient.assign(most * width, 0.0f);
    index_.Reset(most);
    for (size_t worker = 0; worker < workers; ++worker) {
      const size_t count = IdsOf(step, worker, v);
      for (size_t i = 0; i < count; ++i) {
        int64_t id = 0;
        std::memcpy(&id, ids_at[worker] + i * kIdWords, sizeof(id));
        const auto row = static_cast<size_t>(index_.Insert(id));
        use.ids[row] = id;
        Add(rows_at[worker] + i * width, width, use.gradient.data() + row * width);
      }
      ids_at[worker] += count * kIdWords;
      rows_at[worker] += count * width;
    }
    use.ids.resize(static_cast<size_t>(index_.size()));
    use.gradient.resize(use.ids.size() * width);
  }
}

}  // namespace cairn
