// Tracks which rows of a dense shard have changed since a copy of the shard was made. Costs nothing
// for shards that no reader asks about.
//
// A shard counts the copies that have begun; a copy's mark is that count. Each change is stamped
// with the count at its time, taken while the stripe's lock is held. A copy begins with its mark
// and reads each stripe later, under the stripe's lock. A change after that read is stamped with at
// least one copy more, so its stamp is above the mark, and the reader with that mark learns of the
// change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// Rows [first, first + count), by global row number.
struct RowRun {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRun&) const = default;
};

// The copy counter of one shard. No two shards of a process share a mark, so a mark from a shard
// that moved away and back, or was dropped and created again, is never mistaken for a mark of the
// current shard.
// Thread safety: every method may be called from several threads at once.
class CopyMarks {
 public:
  CopyMarks();

  // The stamp of a change. 0: no copy has ever begun, and the change need not be recorded.
  int64_t now() const { return now_.load(std::memory_order_relaxed); }
  // Begins a copy and returns its mark, above 0. 0: no marks are left, after 2^40 copies of a shard
  // or 2^22 shards of a process.
  int64_t Begin();
  // Whether Begin has returned `mark`.
  bool Knows(int64_t mark) const;

 private:
  int64_t end() const;

  const int64_t first_;
  std::atomic<int64_t> now_{0};
};

// When the rows of a stripe last changed, by blocks of about 4 KiB of values. Uses 2 bytes for each
// KiB of values once a copy has begun.
// Thread safety: hold the stripe's lock (shared for the const methods).
class ChangedRows {
 public:
  ChangedRows(int64_t rows, size_t row_bytes);

  // `now`: CopyMarks::now(). Rows are numbered from the stripe's first row.
  void NoteAll(int64_t now);
  void Note(int64_t now, int64_t row);
  // Records changes of `rows`, ascending global row numbers; `first` is the stripe's first row.
  void Note(int64_t now, absl::Span<const int64_t> rows, int64_t first);

  // Appends the rows that changed after `mark`, ascending, as global row numbers; `first` is the
  // stripe's first row. Extends the last of `runs` if the first appended rows follow it directly.
  void AppendSince(int64_t mark, int64_t first, std::vector<RowRun>* runs) const;

 private:
  size_t block_of(int64_t row) const { return static_cast<size_t>(row >> block_shift_); }
  void MakeBlocks();

  const int64_t rows_;
  const int block_shift_;
  int64_t last_ = 0;             // newest of all stamps below
  int64_t all_ = 0;              // stamp of every row
  std::vector<int64_t> blocks_;  // stamps by block; empty: only `all_` applies
};

// Halves the number of runs until at most `most` (> 0) remain, by including the rows between
// neighbours.
void JoinRuns(size_t most, std::vector<RowRun>* runs);

}  // namespace cairn
