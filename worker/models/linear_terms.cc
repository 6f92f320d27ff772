#include "worker/models/linear_terms.h"

namespace cairn {

LinearTerms::LinearTerms(PartList* list, absl::Span<const std::string> tables,
                         const std::string& dense_name, int64_t dense_columns)
    : tables_(list, tables, /*dim=*/1, {}), dense_columns_(dense_columns) {
  if (dense_columns > 0) dense_ = list->AddDense(dense_name, {dense_columns, 1}, {});
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
