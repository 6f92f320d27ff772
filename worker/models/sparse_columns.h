// Variables over the sparse columns of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/models/part_list.h"
#include "worker/models/step_view.h"
#include "worker/ops/sparse.h"

namespace cairn {

// Sparse columns whose variables ([features, width] each) are used whole, or by the rows that the
// batch touches if that moves far fewer bytes. Losses and gradients are the same either way. Thread
// safety: immutable after construction; calls on distinct steps may run in parallel.
class SparseColumns {
 public:
  SparseColumns() = default;
  // `floats_per_column`: sum of the widths of `variables`.
  SparseColumns(int64_t features, int64_t floats_per_column, std::vector<size_t> variables);

  // kInvalidArgument: a column outside [0, features).
  absl::Status Plan(const Batch& batch, StepState* state) const;
  // The batch, with columns as indices into the variables' values.
  CsrView View(StepView& step) const;
  // The number of rows in the variables' values.
  size_t ValueRows(const StepView& step) const;

 private:
  int64_t features_ = 0;
  int64_t floats_per_column_ = 0;
  std::vector<size_t> variables_;
};

}  // namespace cairn
