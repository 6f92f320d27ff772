// The linear part of models over keys and dense columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/models/key_tables.h"

namespace cairn {

// A linear term for each key and each dense column: score += sum of the keys' values + dense .
// kernel. Thread safety: immutable after construction; calls on distinct steps may run in parallel.
class LinearTerms {
 public:
  // Adds tables of dim 1 whose names begin with `prefix`, and `dense_name` [dense_columns, 1] if
  // there are dense columns. `sharing`: as for KeyTables.
  LinearTerms(PartList* list, const Schema& schema, TableSharing sharing, const std::string& prefix,
              const std::string& dense_name);

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
