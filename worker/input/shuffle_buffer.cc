#include "worker/input/shuffle_buffer.h"

#include <utility>

namespace cairn {

ShuffleBuffer::ShuffleBuffer(int64_t rows) : capacity_(static_cast<size_t>(rows)) {}

void ShuffleBuffer::Restart(uint64_t seed) {
  size_ = 0;
  source_ended_ = false;
  random_ = Random(seed);
}

bool ShuffleBuffer::Take(RowSource* source, Row* row) {
  ClearBatch(&scratch_);
  if (source_ended_ || !source->Append(&scratch_)) {
    source_ended_ = true;
    return false;
  }
  row->label = scratch_.labels[0];
  row->columns.assign(scratch_.columns.begin(), scratch_.columns.end());
  row->values.assign(scratch_.values.begin(), scratch_.values.end());
  row->dense.assign(scratch_.dense.begin(), scratch_.dense.end());
  row->keys.assign(scratch_.keys.begin(), scratch_.keys.end());
  return true;
}

bool ShuffleBuffer::Append(RowSource* source, Batch* batch) {
  while (size_ < capacity_ && !source_ended_) {
    if (rows_.size() == size_) rows_.emplace_back();
    if (Take(source, &rows_[size_])) ++size_;
  }
  if (size_ == 0 || !source->status().ok()) return false;
  Row& row = rows_[static_cast<size_t>(random_.Below(size_))];
  batch->labels.push_back(row.label);
  if (source->schema().sparse_columns > 0) {
    batch->columns.insert(batch->columns.end(), row.columns.begin(), row.columns.end());
    batch->values.insert(batch->values.end(), row.values.begin(), row.values.end());
    batch->row_offsets.push_back(static_cast<int64_t>(batch->columns.size()));
  }
  batch->dense.insert(batch->dense.end(), row.dense.begin(), row.dense.end());
  batch->keys.insert(batch->keys.end(), row.keys.begin(), row.keys.end());
  ++batch->rows;
  if (!Take(source, &row)) std::swap(row, rows_[--size_]);
  return true;
}

}  // namespace cairn
