// Embedding tables for the key columns of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/models/part_list.h"
#include "worker/models/step_view.h"

namespace cairn {

// Numbers the keys of a batch's columns: state->positions becomes [key_columns, rows], and
// uses[first + c].ids the distinct keys of column c. `hash_buckets` 0: keys are ids; otherwise a
// fixed hash maps a key to its bucket. `first + key_columns` uses must exist.
void PlanKeys(const Batch& batch, int64_t key_columns, int64_t hash_buckets, size_t first,
              StepState* state);

// One embedding table for each key column. Thread safety: immutable after construction; calls on
// distinct steps may run in parallel.
class KeyTables {
 public:
  KeyTables() = default;
  KeyTables(PartList* list, absl::Span<const std::string> names, int64_t dim,
            const InitializerConfig& initializer);

  int64_t columns() const { return columns_; }
  size_t first_variable() const { return first_; }
  // Copies the ids of `planned`, which PlanKeys filled.
  void TakeIds(const KeyTables& planned, StepState* state) const;
  // out[r, c * dim …] = the row of column c's key; rows of `out` are `stride` floats apart.
  void Gather(StepView& step, float* out, int64_t stride) const;
  // Computes the tables' gradients from d_out, which has the layout of `out`.
  void Scatter(StepView& step, const float* d_out, int64_t stride) const;
  // For tables of dim 1. AddSums: sums [rows] += the values of all columns. ScatterSums: computes
  // the tables' gradients from `d_sums`.
  void AddSums(StepView& step, float* sums) const;
  void ScatterSums(StepView& step, const float* d_sums) const;

 private:
  std::vector<const float*> Values(StepView& step) const;
  // Scatter of tables whose columns of `d_out` are `column_stride` apart.
  void ScatterColumns(StepView& step, const float* d_out, int64_t stride,
                      size_t column_stride) const;

  size_t first_ = 0;
  int64_t columns_ = 0;
  int64_t dim_ = 0;
  size_t parts_ = 0;  // a buffer: parts of sums
};

// Returns PREFIX + "C1" … PREFIX + "Cn".
std::vector<std::string> ColumnNames(const std::string& prefix, int64_t columns);

}  // namespace cairn
