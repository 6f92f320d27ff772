// The readers of the job file as a source of datasets.
#pragma once

#include <cstdint>

#include "worker/input/dataset/dataset.h"
#include "worker/input/reader.h"

namespace cairn {

// Batches of options.data.batch_size rows, as Reader gives them; those that the format has of
//   labels   float32 [rows]
//   dense    float32 [rows, dense columns]
//   keys     int64 [rows, key columns]
//   columns  int32 [rows, sparse_entries], and
//   values   float32 [rows, sparse_entries]: the entries of a row, then column -1 with value 0.
// in this order. `sparse_entries` is needed for libsvm alone: entries of the widest row;
// kInvalidArgument where a row has more. The first file is opened here, for its schema.
//
// AutoShardPolicy::kFile gives every worker its share by the reader's own rule
// (ReaderOptions::worker), which needs options.workers == 1. Iterators read independently; every
// one begins at the start position of `options`.
Dataset FromReader(const ReaderOptions& options, int64_t sparse_entries = 0);

}  // namespace cairn
