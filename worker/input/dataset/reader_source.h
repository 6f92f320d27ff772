// Makes the job file's readers a source of datasets.
#pragma once

#include <cstdint>

#include "worker/input/dataset/dataset.h"
#include "worker/input/reader.h"

namespace cairn {

// Yields batches of options.data.batch_size rows, as Reader returns them. An element has these
// components, as far as the format has them, in this order:
//   labels   float32 [rows]
//   dense    float32 [rows, dense columns]
//   keys     int64 [rows, key columns]
//   columns  int32 [rows, sparse_entries], and
//   values   float32 [rows, sparse_entries]: the entries of a row, then column -1 with value 0.
// Only libsvm needs `sparse_entries`, the number of entries of the widest row; kInvalidArgument if
// a row has more. FromReader opens the first file for its schema.
//
// AutoShardPolicy::kFile gives every worker its share by the reader's own rule
// (ReaderOptions::worker), which requires options.workers == 1. Iterators read independently; each
// begins at the start position of `options`.
Dataset FromReader(const ReaderOptions& options, int64_t sparse_entries = 0);

}  // namespace cairn
