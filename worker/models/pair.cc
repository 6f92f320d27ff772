// Two tables and the dot product of their rows. matrix_factorization: rating = user . item + the
// biases of both + a bias. skip_gram with negative samples (Mikolov et al., "Distributed
// representations of words and phrases", NIPS 2013): the logit of the probability that a word
// occurs near a center.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/models/key_tables.h"
#include "worker/models/model_base.h"

namespace cairn {
namespace {

class Pair : public ModelBase {
 public:
  struct Table {
    std::string name;
    InitializerConfig initializer;
  };

  // `biases`: adds the tables of biases and the common bias.
  Pair(const ModelArguments& arguments, const Table& left, const Table& right, bool biases)
      : ModelBase(arguments, /*outputs=*/1),
        width_(static_cast<size_t>(arguments.config.factors)),
        left_(list_.AddTable(left.name, arguments.config.factors, left.initializer)),
        right_(list_.AddTable(right.name, arguments.config.factors, right.initializer)) {
    if (!biases) return;
    biases_ = KeyTables(&list_, {left.name + "_bias", right.name + "_bias"}, 1, {});
    bias_ = list_.AddDense("bias", {1}, {});
  }

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    PlanKeys(batch, {.columns = 2}, left_, state);
    if (biases_.columns() > 0) {
      state->uses[biases_.first_variable()].ids = state->uses[left_].ids;
      state->uses[biases_.first_variable() + 1].ids = state->uses[right_].ids;
    }
    return absl::OkStatus();
  }

  void Forward(StepView& step, float* scores) const override {
    const size_t rows = static_cast<size_t>(step.rows());
    step.ops().DotsByPosition(step.values(left_), LeftPositions(step), step.values(right_),
                              RightPositions(step), width_, rows, scores);
    if (biases_.columns() == 0) return;
    biases_.AddSums(step, scores);
    step.ops().AddToRows(step.values(bias_), rows, 1, /*relu=*/false, scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    const size_t rows = static_cast<size_t>(step.rows());
    const int32_t* left = LeftPositions(step);
    const int32_t* right = RightPositions(step);
    step.ops().SumScaledRowsByPosition(step.values(right_), right, d_scores, left, width_, rows,
                                       step.id_count(left_), step.gradient(left_));
    step.GradientDone(left_);
    step.ops().SumScaledRowsByPosition(step.values(left_), left, d_scores, right, width_, rows,
                                       step.id_count(right_), step.gradient(right_));
    step.GradientDone(right_);
    if (biases_.columns() == 0) return;
    biases_.ScatterSums(step, d_scores);
    step.ops().SumRows(d_scores, rows, 1, step.gradient(bias_));
    step.GradientDone(bias_);
  }

 private:
  static const int32_t* LeftPositions(StepView& step) { return step.input().positions; }
  static const int32_t* RightPositions(StepView& step) {
    return step.input().positions + step.rows();
  }

  const size_t width_, left_, right_;  // right_ is left_ + 1, so that PlanKeys numbers them
                                       // together
  KeyTables biases_;
  size_t bias_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakePair(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  const bool skip_gram = config.type == "skip_gram";
  const Schema& schema = arguments.schema;
  if (schema.key_columns != 2 || schema.sparse_columns > 0 || schema.dense_columns > 0) {
    return InvalidArgument("model ", config.type, " needs two key columns a row (",
                           skip_gram ? "text" : "movielens", "), found ", schema.key_columns,
                           " key, ", schema.dense_columns, " dense and ", schema.sparse_columns,
                           " sparse columns");
  }
  if (config.init_given) {
    RETURN_IF_ERROR(Annotate(ValidateInitializer(config.init, /*is_embedding=*/true),
                             absl::StrCat("model.init, which ", config.type, " gives to tables")));
  }
  if (skip_gram) {
    // word2vec's initial values: centers uniform within 0.5 / factors of zero, outputs zero.
    const double limit = 0.5 / static_cast<double>(config.factors);
    const InitializerConfig centers{.type = "uniform",
                                    .arguments = {{"minval", -limit}, {"maxval", limit}}};
    return std::make_unique<Pair>(arguments, Pair::Table{"input", InitializerOr(config, centers)},
                                  Pair::Table{"output", {}}, /*biases=*/false);
  }
  // The initial products of two rows have a standard deviation of 0.1 for any number of factors.
  const double stddev = std::sqrt(0.1 / std::sqrt(static_cast<double>(config.factors)));
  const InitializerConfig rows{.type = "normal", .arguments = {{"stddev", stddev}}};
  return std::make_unique<Pair>(arguments, Pair::Table{"user", InitializerOr(config, rows)},
                                Pair::Table{"item", InitializerOr(config, rows)}, /*biases=*/true);
}

}  // namespace cairn
