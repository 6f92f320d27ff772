// Divides a dataset among workers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

struct AutoSharded {
  Dataset dataset;
  // kFile, kData, kHint: it was divided that way; kOff: every worker reads all of it. With kAuto
  // this is what was chosen, also where there is one worker and nothing to divide.
  AutoShardPolicy applied;
};

// The share of worker `index` of `workers`, by `policy`:
//   kOff   all of it.
//   kFile  walks from the end to its readers of files and gives each worker every `workers`-th
//   name;
//          a Shuffle of the names moves behind that, so that no two workers read the same file. Zip
//          and Concatenate divide all that they join. kNotFound: a source that is none of files.
//   kData  every `workers`-th element.
//   kAuto  kFile; where that gives kNotFound, kData, with a warning in the log.
//   kHint  replaces Shard(kShardHint, …), and leaves a dataset without one as it is.
// With one worker nothing changes. kInvalidArgument: `workers` < 1, or `index` outside
// [0, workers). Else dataset.status().
// Fewer files (elements) than workers are told by the iterator: kInvalidArgument for workers that
// would have one, an end without elements for the others; no element for anybody is a plain end.
absl::StatusOr<AutoSharded> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                      int64_t workers, int64_t index);

// "AUTO", …
absl::string_view PolicyName(AutoShardPolicy policy);

}  // namespace cairn
