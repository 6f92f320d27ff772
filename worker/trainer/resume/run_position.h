// A worker's position in its job: stored with every push, read at the next start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// A run is the training that one invocation of the job requests; it may take several starts. Thread
// safety: a value.
struct RunPosition {
  int64_t run = 1;           // 1, 2, …
  bool finished = false;     // the run's last push
  int64_t first_epoch = 0;   // the epoch from which data.epochs counts: 0, or where --continue
                             // began
  int64_t epoch = 0;         // of the last batch pushed
  int64_t row = 0;           // number of this worker's rows in that epoch that are pushed
  int64_t run_steps = 0;     // the steps that data.max_steps counts: all, or those since --continue
  int64_t total_steps = 0;   // over all runs
  uint64_t data_digest = 0;  // digest of the settings that decide which row is the n-th; if it
                             // changes, row numbers lose their meaning
  // For workers that train as one: the last common start, larger than any before (a microsecond
  // since 1970). Of two workers' states, the one with the larger start, then the larger
  // total_steps, is newer. 0: there was none.
  int64_t start = 0;
  // For a finished run: data.max_steps ended it, so its last epoch may have more rows.
  bool at_max_steps = false;

  bool operator==(const RunPosition&) const = default;

  // Some 100 bytes, at most 256. Overwrites `out` and keeps its buffer.
  void EncodeTo(std::string* out) const;
  // kDataLoss: not the text of a position; quotes it.
  static absl::StatusOr<RunPosition> Decode(absl::string_view text);
};

}  // namespace cairn
