#include "common/errors.h"
#include "worker/models/model.h"

#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/nearest.h"
#include "common/status.h"
#include "worker/models/model_base.h"

namespace cairn {
namespace {

using Make = absl::StatusOr<std::unique_ptr<Model>> (*)(const ModelArguments&);

struct Kind {
  absl::string_view type;
  Make make;
  bool has_classes;  // false: one output
  absl::string_view default_loss;
};

constexpr absl::string_view kSigmoidLoss = "sigmoid_cross_entropy";
constexpr absl::string_view kSoftmaxLoss = "softmax_cross_entropy";
constexpr absl::string_view kSquaredLoss = "mean_squared_error";

constexpr std::array<Kind, 7> kKinds = {{
    {"linear", MakeLinear, true, kSigmoidLoss},
    {"mlp", MakeMlp, true, kSigmoidLoss},
    {"fm", MakeFactorizationMachine, false, kSigmoidLoss},
    {"wide_deep", MakeWideDeep, false, kSigmoidLoss},
    {"dlrm", MakeDlrm, false, kSigmoidLoss},
    {"matrix_factorization", MakePair, false, kSquaredLoss},
    {"skip_gram", MakePair, false, kSigmoidLoss},
}};

absl::StatusOr<LossKind> LossOf(const ModelConfig& config, const Kind& kind) {
  absl::string_view loss = config.loss;
  if (loss.empty()) {
    loss = kind.has_classes && config.classes > 1 ? kSoftmaxLoss : kind.default_loss;
  }
  const auto refuse = [&](absl::string_view why) {
    return InvalidArgument("model ", config.type, " with loss ", loss, ": ", why);
  };
  if (loss == kSoftmaxLoss) {
    if (!kind.has_classes) return refuse("the model has one output; take sigmoid_cross_entropy");
    if (config.classes < 2) return refuse("model.classes must be at least 2");
    return LossKind::kSoftmax;
  }
  if (kind.has_classes && config.classes != 1) {
    return refuse(absl::StrCat("model.classes is ", config.classes,
                               ", and only softmax_cross_entropy takes more than 1"));
  }
  if (loss == kSigmoidLoss) return LossKind::kSigmoid;
  if (loss == kSquaredLoss) {
    if (config.type == "skip_gram") return refuse("labels are 0 and 1; take sigmoid_cross_entropy");
    return LossKind::kSquaredError;
  }
  return refuse(
      "unknown; expected sigmoid_cross_entropy, softmax_cross_entropy or "
      "mean_squared_error");
}

absl::Status CheckSchema(const ModelConfig& config, const Schema& schema) {
  const auto refuse = [&](absl::string_view why) {
    return InvalidArgument("model ", config.type, ": ", why);
  };
  if (schema.sparse_columns == 0 && schema.dense_columns == 0 && schema.key_columns == 0) {
    return refuse("the data has no columns");
  }
  if (schema.sparse_columns > 0 && (schema.dense_columns > 0 || schema.key_columns > 0)) {
    return refuse("the data mixes sparse columns with dense or key columns; no model takes both");
  }
  if (schema.sparse_columns > std::numeric_limits<int32_t>::max()) {
    return refuse(absl::StrCat("data.features is ", schema.sparse_columns,
                               ", and columns are counted in 31 bits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> MakeChecked(const Kind& kind, const ModelConfig& config,
                                                   const Schema& schema) {
  RETURN_IF_ERROR(CheckSchema(config, schema));
  ASSIGN_OR_RETURN(const LossKind loss, LossOf(config, kind));
  return kind.make({.config = config, .schema = schema, .loss = loss});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const ModelConfig& config,
                                                     const DataConfig& data, const Schema& schema) {
  std::array<absl::string_view, kKinds.size()> types;
  for (size_t i = 0; i < kKinds.size(); ++i) types[i] = kKinds[i].type;
  for (const Kind& kind : kKinds) {
    if (kind.type != config.type) continue;
    auto model = MakeChecked(kind, config, schema);
    if (model.ok()) return model;
    return Annotate(model.status(), absl::StrCat("data.format ", data.format));
  }
  return InvalidArgument("unknown model '", config.type, "'", DidYouMean(config.type, types));
}

}  // namespace cairn
