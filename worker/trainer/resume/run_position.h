// Where a worker stands in its job: stored with every push, read at the next start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// A run is what one start of the job is asked to train, in all the starts that it takes. Thread
// safety: a value.
struct RunPosition {
  int64_t run = 1;           // 1, 2, …
  bool finished = false;     // the run's last push
  int64_t first_epoch = 0;   // that data.epochs counts from: 0, or where --continue began
  int64_t epoch = 0;         // of the last batch pushed
  int64_t row = 0;           // rows of this worker in that epoch that are pushed
  int64_t run_steps = 0;     // that data.max_steps counts: all, or those since --continue
  int64_t total_steps = 0;   // of all runs
  uint64_t data_digest = 0;  // of what decides which row is the n-th; another one: n means nothing
  // Workers that train as one: the last start of them all together, larger than any before (some
  // microsecond since 1970). Of two workers' states the one with the larger start, then the larger
  // total_steps is the newer. 0: there was none.
  int64_t start = 0;
  // Of a finished run: data.max_steps ended it, so that its last epoch may have more rows.
  bool at_max_steps = false;

  bool operator==(const RunPosition&) const = default;

  // Some 100 bytes, at most 256. Replaces what `out` holds and keeps its buffer.
  void EncodeTo(std::string* out) const;
  // kDataLoss: not the text of a position; shows it.
  static absl::StatusOr<RunPosition> Decode(absl::string_view text);
};

}  // namespace cairn
