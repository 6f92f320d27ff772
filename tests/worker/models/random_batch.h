// Batches and values drawn at random, for tests of models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "worker/models/model.h"

namespace cairn::test {

// Labels 0 and 1, or class numbers below `classes` if that is above 1. Sparse rows have up to six
// ascending columns, some rows none; keys repeat, and are spread over all 64 bits.
inline Batch RandomBatch(const Schema& schema, int64_t rows, int64_t classes, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Batch batch;
  batch.rows = rows;
  const uint64_t labels = classes > 1 ? static_cast<uint64_t>(classes) : 2;
  for (int64_t r = 0; r < rows; ++r) batch.labels.push_back(static_cast<float>(random() % labels));
  if (schema.sparse_columns > 0) batch.row_offsets.push_back(0);
  for (int64_t r = 0; r < rows && schema.sparse_columns > 0; ++r) {
    const uint64_t spread = static_cast<uint64_t>(schema.sparse_columns) / 6 + 1;
    int64_t column = static_cast<int64_t>(random() % spread);
    for (; column < schema.sparse_columns && r % 5 != 4;
         column += 1 + static_cast<int64_t>(random() % (2 * spread))) {
      batch.columns.push_back(static_cast<int32_t>(column));
      batch.values.push_back(normal(random));
    }
    batch.row_offsets.push_back(static_cast<int64_t>(batch.columns.size()));
  }
  for (int64_t i = 0; i < rows * schema.dense_columns; ++i) batch.dense.push_back(normal(random));
  for (int64_t i = 0; i < rows * schema.key_columns; ++i) {
    const int64_t column = schema.keys_name_columns ? i % schema.key_columns : 0;
    batch.keys.push_back(static_cast<int64_t>(random() % 5 * 0x9e3779b97f4a7c15ULL) + column);
  }
  return batch;
}

// Every value of the step normal with `stddev`, the same for the same seed.
inline void RandomValues(StepState* state, float stddev, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, stddev);
  for (VariableUse& use : state->uses) {
    for (float& value : use.values) value = normal(random);
  }
}

// Rows with few entries get many, which need memory that no earlier step has allocated: `batch` of
// sparse rows gets one entry in all, the result 20 in each row.
inline Batch GrowSparseRows(Batch* batch) {
  std::fill(batch->row_offsets.begin() + 1, batch->row_offsets.end(), 1);
  batch->columns.resize(1);
  batch->values.resize(1);
  Batch many = *batch;
  many.columns.clear();
  for (size_t r = 1; r < many.row_offsets.size(); ++r) {
    for (int32_t column = 0; column < 20; ++column) many.columns.push_back(column);
    many.row_offsets[r] = static_cast<int64_t>(many.columns.size());
  }
  many.values.assign(many.columns.size(), 0.25f);
  return many;
}

}  // namespace cairn::test
