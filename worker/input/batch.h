// One batch of training rows: readers produce it, models consume it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/host_memory.h"

namespace cairn {

// The columns of a reader's rows; the same for all its batches.
struct Schema {
  int64_t sparse_columns = 0;  // libsvm: number of columns; 0: no sparse part
  int64_t dense_columns = 0;   // criteo: 13, csv, idx: pixels; 0: none
  int64_t key_columns = 0;     // criteo: 26, movielens and skip-gram pairs: 2; 0: none
  // A key identifies its column too: keys of distinct columns differ.
  bool keys_name_columns = false;
};

// Buffers keep their capacity from batch to batch.
struct Batch {
  int64_t rows = 0;
  std::vector<float> labels;  // [rows]: class number, 0/1, or the regression target

  // Sparse part in CSR: row r has entries row_offsets[r] … row_offsets[r+1] - 1.
  std::vector<int64_t> row_offsets;  // [rows + 1]
  HostVector<int32_t> columns;       // [entries], 0-based, ascending within a row
  HostVector<float> values;          // [entries]

  HostVector<float> dense;    // [rows, dense_columns]
  std::vector<int64_t> keys;  // [rows, key_columns]

  // Where the reader continues after this batch; stored in the resume position.
  int64_t epoch = 0;
  int64_t next_row = 0;    // number of this worker's rows read in that epoch
  double epoch_share = 0;  // approximate share of the epoch's input read so far, for progress
};

}  // namespace cairn
