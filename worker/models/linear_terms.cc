#include "worker/models/linear_terms.h"

#include "worker/ops/dense.h"

namespace cairn {

LinearTerms::LinearTerms(PartList* list, absl::Span<const std::string> tables,
                         const std::string& dense_name, int64_t dense_columns)
    : tables_(list, tables, /*dim=*/1, {}), dense_columns_(dense_columns) {
  if (dense_columns > 0) dense_ = list->AddDense(dense_name, {dense_columns, 1}, {});
}

void LinearTerms::AddTo(const Batch& batch, const StepState& state, float* scores) const {
  tables_.AddSums(state, batch.rows, scores);
  if (dense_columns_ == 0) return;
  AddMatrixTimesVector(batch.dense.data(), batch.rows, dense_columns_,
                       state.uses[dense_].values.data(), scores);
}

void LinearTerms::Backward(const Batch& batch, const float* d_scores, StepState* state) const {
  tables_.ScatterSums(state, batch.rows, d_scores);
  if (dense_columns_ == 0) return;
  TransposedMatrixTimesVector(batch.dense.data(), batch.rows, dense_columns_, d_scores,
                              state->uses[dense_].gradient.data());
}

}  // namespace cairn
