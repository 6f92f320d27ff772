// The sparse counterpart of an all-reduce: every rank gets the rows of all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

namespace cairn {

// Rows `ids[i]` of a table (IndexedSlices): row-major [ids.size(), width] values.
struct GatheredSlices {
  std::vector<int64_t> ids = {};
  std::vector<char> rows = {};  // ids.size() * width elements of the input's dtype
};

// Concatenates every rank's ids and rows in rank order; equal ids are not merged. The number of
// rows may differ between ranks and may be 0. kMean divides the rows by group.size().
//   ids   int64, any number
//   rows  floating dtype, ids.count * width elements
// kInvalidArgument: as CollectiveGroup, or rows.count is not ids.count * width. Makes two
// collectives, which are part of `op` where `purpose` names no reduction.
absl::StatusOr<GatheredSlices> GatherSlices(CollectiveGroup& group, ReduceOp op, ConstBuffer ids,
                                            ConstBuffer rows, int64_t width, Deadline deadline,
                                            CallPurpose purpose = {});

}  // namespace cairn
