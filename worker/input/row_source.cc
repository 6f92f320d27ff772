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

}  // namespace cairn
