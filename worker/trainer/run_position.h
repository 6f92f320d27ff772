// Where a worker stands in its job: stored with every push, read at the next start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// A run is one pass of `epochs` epochs; a job that has finished one and is started again begins the
// next. Thread safety: a value.
struct RunPosition {
  int64_t run = 1;           // 1, 2, …
  bool finished = false;     // the run's last push
  int64_t first_epoch = 0;   // the run's first epoch; epochs are counted through all runs
  int64_t epoch = 0;         // of the last batch pushed
  int64_t row = 0;           // rows of this worker in that epoch that are pushed
  int64_t run_steps = 0;     // of this run, in all its starts
  int64_t total_steps = 0;   // of all runs
  uint64_t data_digest = 0;  // of what decides which row is the n-th; another one: n means nothing
  // Workers that train as one: the last start of them all together, larger than any before (some
  // microsecond since 1970). Of two workers' states the one with the larger start, then the larger
  // total_steps is the newer. 0: there was none.
  int64_t start = 0;

  bool operator==(const RunPosition&) const = default;

  // Some 100 bytes, at most 256. Replaces what `out` holds and keeps its buffer.
  void EncodeTo(std::string* out) const;
  // kDataLoss: not the text of a position; shows it.
  static absl::StatusOr<RunPosition> Decode(absl::string_view text);
};

}  // namespace cairn
