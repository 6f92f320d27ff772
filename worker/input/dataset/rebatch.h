// Computes how the rows of a global batch are divided among workers and replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

// Sizes of worker `worker`'s sub-batches, in the order of its replicas. The list has workers *
// replicas_per_worker entries and sums to `global_batch`: its first replicas_per_worker entries are
// this step's, the next ones the next step's. Over all workers the sizes of one step sum to
// `global_batch` too, and no two sizes differ by more than 1. kInvalidArgument: a number below 1
// (`global_batch`: below 0), or worker outside [0, workers).
absl::StatusOr<std::vector<int64_t>> BatchSizesForWorker(int64_t global_batch, int64_t workers,
                                                         int64_t replicas_per_worker,
                                                         int64_t worker);

// Rows of the batches of `dataset`, ignoring a partial last one. Taken from its spec, else from the
// Batch that produces all its elements, through steps that do not change batches. -1: unknown, or
// components differ. kInvalidArgument: a component is a scalar. Other errors: dataset.status().
absl::StatusOr<int64_t> ComputeBatchSize(const Dataset& dataset);

}  // namespace cairn
