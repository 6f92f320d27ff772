#include "worker/models/model_base.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/models/device_step.h"

namespace cairn {
namespace {

absl::Status CheckLabels(LossKind loss, int64_t classes, absl::Span<const float> labels) {
  const auto allowed = [&](float y) {
    switch (loss) {
      case LossKind::kSigmoid: return y == -1.0f || (y >= 0.0f && y <= 1.0f);
      case LossKind::kSoftmax:
        return y >= 0.0f && y < static_cast<float>(classes) && y == std::floor(y);
      case LossKind::kSquaredError: return std::isfinite(y);
    }
    return false;
  };
  const auto bad = std::ranges::find_if_not(labels, allowed);
  if (bad == labels.end()) return absl::OkStatus();
  const std::string what =
      loss == LossKind::kSigmoid ? "0, 1 or -1 (sigmoid_cross_entropy)"
      : loss == LossKind::kSoftmax
          ? absl::StrCat("a whole number in [0, ", classes,
                         ") once data.label_base is taken off (softmax_cross_entropy)")
          : "a finite number (mean_squared_error)";
  return InvalidArgument("row ", bad - labels.begin(), " of the batch: label ", *bad, ", expected ",
                         what);
}

}  // namespace

ModelBase::ModelBase(const ModelArguments& arguments, int64_t outputs)
    : schema_(arguments.schema),
      loss_(arguments.loss),
      outputs_(outputs),
      scores_(list_.AddBuffer()),
      d_scores_(list_.AddBuffer()),
      losses_(list_.AddBuffer()) {}

absl::Status ModelBase::CheckBatch(const Batch& batch) const {
  const auto wrong = [&](absl::string_view what, size_t found, int64_t expected) {
    return InvalidArgument("batch of ", batch.rows, " rows has ", found, " ", what, ", expected ",
                           expected, ": the reader's schema is another one");
  };
  const auto differs = [](size_t found, int64_t expected) {
    return found != static_cast<size_t>(expected);
  };
  if (differs(batch.labels.size(), batch.rows)) {
    return wrong("labels", batch.labels.size(), batch.rows);
  }
  if (schema_.sparse_columns > 0) {
    if (differs(batch.row_offsets.size(), batch.rows + 1)) {
      return wrong("row offsets", batch.row_offsets.size(), batch.rows + 1);
    }
    const int64_t entries = batch.row_offsets.back();
    if (differs(batch.columns.size(), entries)) {
      return wrong("sparse columns", batch.columns.size(), entries);
    }
    if (differs(batch.values.size(), entries)) {
      return wrong("sparse values", batch.values.size(), entries);
    }
  }
  if (differs(batch.dense.size(), batch.rows * schema_.dense_columns)) {
    return wrong("dense values", batch.dense.size(), batch.rows * schema_.dense_columns);
  }
  if (differs(batch.keys.size(), batch.rows * schema_.key_columns)) {
    return wrong("keys", batch.keys.size(), batch.rows * schema_.key_columns);
  }
  return CheckLabels(loss_, outputs_, batch.labels);
}

absl::Status ModelBase::Plan(const Batch& batch, StepState* state) const {
  RETURN_IF_ERROR(CheckBatch(batch));
  state->uses.resize(list_.variables.size());
  state->scratch.resize(list_.buffer_count);
  for (size_t v = 0; v < list_.variables.size(); ++v) {
    const VariableSpec& spec = list_.variables[v];
    state->uses[v].part = spec.kind == VariableKind::kDense ? Part::kWhole : Part::kKeys;
    state->uses[v].ids.clear();
  }
  RETURN_IF_ERROR(PlanParts(batch, state));
  for (size_t v = 0; v < list_.variables.size(); ++v) {
    const VariableSpec& spec = list_.variables[v];
    VariableUse& use = state->uses[v];
    if (state->resident != nullptr) {
      use.values.clear();
      use.gradient.clear();
      continue;
    }
    const int64_t rows =
        use.part == Part::kWhole ? RowCount(spec.shape) : static_cast<int64_t>(use.ids.size());
    const int64_t width =
        spec.kind == VariableKind::kDense ? RowWidth(spec.shape) : spec.shape.front();
    use.values.resize(static_cast<size_t>(rows * width));
  }
  return absl::OkStatus();
}

absl::Status ModelBase::CheckPlanned(const StepState& state) const {
  if (state.uses.size() == list_.variables.size()) return absl::OkStatus();
  return FailedPrecondition("step state holds ", state.uses.size(), " variables, the model has ",
                            list_.variables.size(), ": call Plan for the batch first");
}

absl::StatusOr<std::unique_ptr<StepView>> ModelBase::Begin(const Batch& batch,
                                                           StepState* state) const {
  RETURN_IF_ERROR(CheckPlanned(*state));
  if (state->device != nullptr) return state->device->Begin(batch, state);
  return std::make_unique<HostStep>(batch, state);
}

const float* ModelBase::Loss(StepView& step, const float* scores, float* d_scores) const {
  const auto rows = static_cast<size_t>(step.rows()), outputs = static_cast<size_t>(outputs_);
  float* const losses = step.Buffer(losses_, rows);
  const float* const labels = step.input().labels;
  Ops& ops = step.ops();
  const auto scale = static_cast<float>(1 / static_cast<double>(rows));
  switch (loss_) {
    case LossKind::kSigmoid:
      ops.SigmoidCrossEntropy(scores, labels, rows, scale, losses, d_scores);
      break;
    case LossKind::kSoftmax:
      ops.SoftmaxCrossEntropy(scores, labels, rows, outputs, scale, losses, d_scores);
      break;
    case LossKind::kSquaredError:
      ops.SquaredError(scores, labels, rows, 1, scale, losses, d_scores);
      break;
  }
  return step.Fetch(losses, rows);
}

absl::StatusOr<double> ModelBase::Train(const Batch& batch, StepState* state) const {
  for (VariableUse& use : state->uses) use.gradient.resize(use.values.size());
  if (batch.rows == 0) {
    RETURN_IF_ERROR(CheckPlanned(*state));
    if (state->resident != nullptr) {
      return absl::InvalidArgumentError(
          "a step without rows: the variables on the GPU get no gradient");
    }
    for (VariableUse& use : state->uses) std::ranges::fill(use.gradient, 0.0f);
    return 0.0;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<StepView> step, Begin(batch, state));
  const auto size = static_cast<size_t>(batch.rows * outputs_);
  float* const scores = step->Buffer(scores_, size);
  float* const d_scores = step->Buffer(d_scores_, size);
  Forward(*step, scores);
  const float* const losses = Loss(*step, scores, d_scores);
  Backward(*step, d_scores);
  RETURN_IF_ERROR(step->End());
  return std::accumulate(losses, losses + batch.rows, 0.0) / static_cast<double>(batch.rows);
}

absl::Status ModelBase::Predict(const Batch& batch, StepState* state,
                                std::vector<float>* scores) const {
  const auto size = static_cast<size_t>(batch.rows * outputs_);
  scores->resize(size);
  if (batch.rows == 0) return CheckPlanned(*state);
  ASSIGN_OR_RETURN(const std::unique_ptr<StepView> step, Begin(batch, state));
  float* const computed = step->Buffer(scores_, size);
  Forward(*step, computed);
  const float* const fetched = step->Fetch(computed, size);
  RETURN_IF_ERROR(step->End());
  std::copy_n(fetched, size, scores->begin());
  return absl::OkStatus();
}

TableSharing SharingOf(const ModelArguments& arguments, int64_t hash_buckets) {
  if (arguments.config.tables == "shared_vocabulary") return TableSharing::kVocabulary;
  const bool ids_differ = hash_buckets > 0 || arguments.schema.keys_name_columns;
  return arguments.config.tables == "shared" && ids_differ ? TableSharing::kTable
                                                           : TableSharing::kNothing;
}

InitializerConfig InitializerOr(const ModelConfig& config, const InitializerConfig& fallback) {
  return config.init_given ? config.init : fallback;
}

}  // namespace cairn
