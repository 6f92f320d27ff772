// Draws the next row from a window of rows, as tf.data's shuffle does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/input/batch.h"
#include "worker/input/random.h"
#include "worker/input/row_source.h"

namespace cairn {

// Thread safety: none.
class ShuffleBuffer {
 public:
  // Holds `rows` rows (> 0) once full.
  explicit ShuffleBuffer(int64_t rows);

  // Empties the buffer. The order from then on depends only on `seed` and the source.
  void Restart(uint64_t seed);
  // Appends one of the held rows to `batch` and replaces it with the source's next row. False at
  // the end and on the source's error.
  bool Append(RowSource* source, Batch* batch);

 private:
  // Buffers keep their capacity from row to row.
  struct Row {
    float label = 0;
    std::vector<int32_t> columns;
    std::vector<float> values;
    std::vector<float> dense;
    std::vector<int64_t> keys;
  };
  // Reads the source's next row into `row`.
  bool Take(RowSource* source, Row* row);

  const size_t capacity_;
  std::vector<Row> rows_;
  size_t size_ = 0;  // rows_[0 … size_) are held
  bool source_ended_ = false;
  Batch scratch_;  // one row, as the source makes it
  Random random_{0};
};

}  // namespace cairn
