// Embedding tables for the key columns of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/models/part_list.h"
#include "worker/models/step_view.h"

namespace cairn {

// Last parts of the names of tables that columns share: their table, and their vocabulary too.
inline constexpr absl::string_view kSharedTable = "all";
inline constexpr absl::string_view kSharedVocabulary = "vocabulary";
// The same of the first column's table, if columns share nothing.
inline constexpr absl::string_view kFirstColumnsTable = "C1";

// What the key columns of a batch share.
enum class TableSharing {
  kNothing,     // each column has a table
  kTable,       // one table; ids of distinct columns differ
  kVocabulary,  // one table; an id has the same row in every column
};

// How PlanKeys gets ids from keys.
struct KeyPlan {
  int64_t columns = 0;
  int64_t hash_buckets = 0;  // 0: keys are ids; otherwise a fixed hash maps a key to its bucket
  TableSharing sharing = TableSharing::kNothing;
};

// Numbers the keys of a batch: state->positions becomes [columns, rows], and state->distinct counts
// the ids of each column, or those of all (kVocabulary). The uses must exist.
//   kNothing     uses[first + c].ids receives the distinct ids of column c.
//   kTable       uses[first].ids receives the distinct ids of column 0, then those of column 1, ….
//                Positions count from the column's first id. The buckets of column c begin at c x
//                hash_buckets.
//   kVocabulary  uses[first].ids receives the distinct ids of all columns.
void PlanKeys(const Batch& batch, const KeyPlan& plan, size_t first, StepState* state);

// The rows of a batch's key columns. Thread safety: immutable after construction; calls on distinct
// steps may run in parallel.
class KeyTables {
 public:
  KeyTables() = default;
  // One table for each of `names`.
  KeyTables(PartList* list, absl::Span<const std::string> names, int64_t dim,
            const InitializerConfig& initializer);
  // PREFIX + "all" or PREFIX + "vocabulary", or PREFIX + "C1" … PREFIX + "Cn" for n columns that
  // share nothing.
  KeyTables(PartList* list, const std::string& prefix, int64_t columns, TableSharing sharing,
            int64_t dim, const InitializerConfig& initializer);

  int64_t columns() const { return columns_; }
  size_t first_variable() const { return first_; }
  // PlanKeys for these tables.
  void Plan(const Batch& batch, int64_t hash_buckets, StepState* state) const;
  // Copies the ids of `planned`, whose Plan was called and whose columns share the same.
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
  size_t table_count() const {
    return sharing_ == TableSharing::kNothing ? static_cast<size_t>(columns_) : 1;
  }
  std::vector<const float*> Values(StepView& step) const;
  // Scatter of tables whose columns of `d_out` are `column_stride` apart.
  void ScatterColumns(StepView& step, const float* d_out, int64_t stride,
                      size_t column_stride) const;

  size_t first_ = 0;
  int64_t columns_ = 0;
  TableSharing sharing_ = TableSharing::kNothing;
  int64_t dim_ = 0;
  size_t parts_ = 0;  // a buffer: parts of sums
};

}  // namespace cairn
