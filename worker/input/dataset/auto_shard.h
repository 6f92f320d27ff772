// Divides a dataset among workers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

struct AutoSharded {
  Dataset dataset;
  // The policy that was applied. kFile, kData, kHint: the dataset was divided that way; kOff: every
  // worker reads all of it. With kAuto it is the chosen policy, even if one worker leaves nothing
  // to divide.
  AutoShardPolicy applied;
};

// The share of worker `index` of `workers`, by `policy`:
//   kOff   the whole dataset.
//   kFile  walks from the end to the readers of files and gives each worker every `workers`-th
//          name. A Shuffle of the names moves behind that, so that no two workers read the same
//          file. All inputs of Zip and Concatenate are divided. kNotFound: a source that reads
//          no files.
//   kData  every `workers`-th element.
//   kAuto  kFile; if that gives kNotFound, kData, with a warning in the log.
//   kHint  replaces Shard(kShardHint, …); a dataset without one does not change.
// With one worker nothing changes. kInvalidArgument: `workers` < 1, or `index` outside [0,
// workers). Other errors: dataset.status(). If there are fewer files (elements) than workers, the
// iterator reports it: kInvalidArgument for workers that would have one, an end without elements
// for the others. A dataset without any element just ends.
absl::StatusOr<AutoSharded> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                      int64_t workers, int64_t index);

// "AUTO", …
absl::string_view PolicyName(AutoShardPolicy policy);

}  // namespace cairn
