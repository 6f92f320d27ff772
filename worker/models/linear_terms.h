// The linear part of models over keys and dense columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "worker/models/key_tables.h"

namespace cairn {

// A linear term per key and per dense column: score += sum of the keys' numbers + dense . kernel.
// Thread safety: immutable once made; calls on distinct steps may run at once.
class LinearTerms {
 public:
  // Tables of dim 1 `tables`; `dense_name` [dense_columns, 1] where there are dense columns.
  LinearTerms(PartList* list, absl::Span<const std::string> tables, const std::string& dense_name,
              int64_t dense_columns);

  const KeyTables& tables() const { return tables_; }
  // scores [rows] += the terms.
  void AddTo(StepView& step, float* scores) const;
  void Backward(StepView& step, const float* d_scores) const;

 private:
  KeyTables tables_;
  int64_t dense_columns_;
  size_t dense_ = 0;
};

}  // namespace cairn
