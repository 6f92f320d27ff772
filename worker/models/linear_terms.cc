#include "worker/models/linear_terms.h"

namespace cairn {

LinearTerms::LinearTerms(PartList* list, const Schema& schema, TableSharing sharing,
                         const std::string& prefix, const std::string& dense_name)
    : tables_(list, prefix, schema.key_columns, sharing, /*dim=*/1, {}),
      dense_columns_(schema.dense_columns) {
  if (dense_columns_ > 0) dense_ = list->AddDense(dense_name, {dense_columns_, 1}, {});
}

void LinearTerms::AddTo(StepView& step, float* scores) const {
  tables_.AddSums(step, scores);
  if (dense_columns_ == 0) return;
  step.ops().AddMatrixTimesVector(step.input().dense, step.rows(), dense_columns_,
                                  step.values(dense_), scores);
}

void LinearTerms::Backward(StepView& step, const float* d_scores) const {
  tables_.ScatterSums(step, d_scores);
  if (dense_columns_ == 0) return;
  step.ops().TransposedMatrixTimesVector(step.input().dense, step.rows(), dense_columns_, d_scores,
                                         step.gradient(dense_));
  step.GradientDone(dense_);
}

}  // namespace cairn
