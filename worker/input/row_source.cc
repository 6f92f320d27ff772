#include "worker/input/row_source.h"

namespace cairn {

void ClearBatch(Batch* batch) {
  batch->rows = 0;
  batch->labels.clear();
  batch->row_offsets.assign(1, 0);
  batch->columns.clear();
  batch->values.clear();
  batch->dense.clear();
  batch->keys.clear();
}

void AppendRows(const Batch& from, Batch* batch) {
  const auto append = [](const auto& values, auto* to) {
    to->insert(to->end(), values.begin(), values.end());
  };
  const auto entries = static_cast<int64_t>(batch->columns.size());
  for (size_t row = 1; row < from.row_offsets.size(); ++row) {
    batch->row_offsets.push_back(entries + from.row_offsets[row]);
  }
  append(from.labels, &batch->labels);
  append(from.columns, &batch->columns);
  append(from.values, &batch->values);
  append(from.dense, &batch->dense);
  append(from.keys, &batch->keys);
  batch->rows += from.rows;
}

}  // namespace cairn
