// Which rows of a dense shard have changed since a copy of it was made, at no cost to shards that
// nobody asks that of.
//
// A shard counts the copies that are begun of it; the count is a copy's mark. A change carries the
// count at its time, taken while the stripe's lock is held. A copy begins with its mark, and looks
// at each stripe under the stripe's lock later: what changes in a stripe after that look counts one
// copy more, so its number is above the mark, and whoever has that copy is to be told of it.
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

// A shard's count. No two shards of a process have a mark in common, so that one of a shard that
// left and came back, or was dropped and made anew, is not taken for a mark of what is here now.
// Thread safety: every method may be called from several threads at once.
class CopyMarks {
 public:
  CopyMarks();

  // A change's number. 0: no copy was ever begun, and it need not be noted.
  int64_t now() const { return now_.load(std::memory_order_relaxed); }
  // The mark of a copy that begins, above 0. 0: there are none left, after 2^40 copies of a shard
  // or 2^22 shards of a process.
  int64_t Begin();
  // Whether it is one that Begin has returned.
  bool Knows(int64_t mark) const;

 private:
  int64_t end() const;

  const int64_t first_;
  std::atomic<int64_t> now_{0};
};

// When the rows of a stripe have changed, by blocks of about 4 KiB of values; 2 bytes a KiB of
// memory, once a copy has been begun.
// Thread safety: hold the stripe's lock (shared for the const methods).
class ChangedRows {
 public:
  ChangedRows(int64_t rows, size_t row_bytes);

  // `now`: CopyMarks::now(). Rows are counted from the stripe's first.
  void NoteAll(int64_t now);
  void Note(int64_t now, int64_t row);
  // Of `rows`, ascending, with `first` as the stripe's first row.
  void Note(int64_t now, absl::Span<const int64_t> rows, int64_t first);

  // Appends the rows with changes above `mark`, ascending, with `first` as the stripe's first row;
  // joins them to the last of `runs` where they follow on it.
  void AppendSince(int64_t mark, int64_t first, std::vector<RowRun>* runs) const;

 private:
  size_t block_of(int64_t row) const { return static_cast<size_t>(row >> block_shift_); }
  void MakeBlocks();

  const int64_t rows_;
  const int block_shift_;
  int64_t last_ = 0;             // the newest of all below
  int64_t all_ = 0;              // of every row
  std::vector<int64_t> blocks_;  // empty: none but `all_`
};

// Halves the runs until there are `most` (> 0) at most, by taking in the rows between neighbours.
void JoinRuns(size_t most, std::vector<RowRun>* runs);

}  // namespace cairn
