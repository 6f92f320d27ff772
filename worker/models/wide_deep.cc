// Wide & deep (Cheng et al., "Wide & deep learning for recommender systems", DLRS 2016): a linear
// term per key and dense column, plus an MLP over embeddings of the keys beside the dense columns.
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/models/embedded_input.h"
#include "worker/models/layer_stack.h"
#include "worker/models/linear_terms.h"
#include "worker/models/model_base.h"

namespace cairn {
namespace {

class WideDeep : public ModelBase {
 public:
  explicit WideDeep(const ModelArguments& arguments)
      : ModelBase(arguments, /*outputs=*/1),
        wide_(&list_, arguments.schema,
              SharingOf(arguments, arguments.config.embedding.hash_buckets), "wide/", "wide/dense"),
        embedding_(&list_, arguments),
        layers_(&list_, "dense_", embedding_.width(), WithLast(arguments.config.hidden, 1),
                /*relu_last=*/false, InitializerOr(arguments.config, {.type = "glorot_uniform"})) {}

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    embedding_.Plan(batch, state);
    wide_.tables().TakeIds(embedding_.tables(), state);
    return absl::OkStatus();
  }

  void Forward(StepView& step, float* scores) const override {
    layers_.Forward(step, embedding_.Fill(step), scores);
    wide_.AddTo(step, scores);
  }

  // The wide part goes first, since the deep part overwrites d_scores.
  void Backward(StepView& step, float* d_scores) const override {
    wide_.Backward(step, d_scores);
    embedding_.Backward(step, layers_, d_scores);
  }

 private:
  const LinearTerms wide_;
  const EmbeddedInput embedding_;
  const LayerStack layers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeWideDeep(const ModelArguments& arguments) {
  if (arguments.schema.key_columns == 0) {
    return absl::InvalidArgumentError(
        "model wide_deep needs key columns (criteo_tsv, criteo_csv); for numbers only, use mlp "
        "or linear");
  }
  return std::make_unique<WideDeep>(arguments);
}

}  // namespace cairn
