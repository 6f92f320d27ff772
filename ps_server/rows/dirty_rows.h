// The rows of a stripe that its next batch must contain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps_server/rows/row_set.h"

namespace cairn {

// A set of rows, and a list of them while there are few. A batch takes the rows in several calls of
// TakeAhead, between which other rows are added, and one call of TakeAll, which ends it.
// Thread safety: none.
class DirtyRows {
 public:
  // After this call, Add(row) cannot throw.
  void Reserve(uint32_t row) {
    set_.Reserve(row);
    if (many_ || list_.size() < list_.capacity()) return;
    list_.reserve(std::clamp<size_t>(2 * list_.size(), 1, kMaxListed));
  }
  void Add(uint32_t row) {
    if (!set_.Add(row) || many_) return;
    if (list_.size() < kMaxListed) {
      list_.push_back(row);
    } else {
      many_ = true;
    }
  }
  // From now on the rows are those below `rows`, except those in `except`.
  void AssignAll(uint32_t rows, const RowSet& except) {
    set_.AssignAll(rows, except);
    many_ = true;
  }
  // The caller has put `row` into the batch.
  void Remove(uint32_t row) { set_.Remove(row); }
  // As RowSet::Renumber.
  void Renumber(uint32_t last, uint32_t row) {
    set_.Renumber(last, row);
    many_ = true;
  }

  // Whether a batch has begun and TakeAll has not ended it.
  bool in_batch() const { return in_batch_; }
  // Begins the batch, and drops the list: from now on Remove may be called.
  void BeginBatch() { in_batch_ = many_ = true; }
  // Calls put(row) for about `max_rows` rows and removes them. False: none was put, and the rest is
  // for TakeAll.
  template <typename Put>
  bool TakeAhead(size_t max_rows, Put put) {
    in_batch_ = true;
    if (set_.size() <= max_rows || sweeps_ == kMaxSweeps) return false;
    many_ = true;
    next_word_ = set_.TakeFrom(next_word_, max_rows, put);
    if (next_word_ < set_.words()) return true;
    next_word_ = 0;
    ++sweeps_;
    return true;
  }
  // Calls put(row) for every row; the set is empty afterwards.
  template <typename Put>
  void TakeAll(Put put) {
    if (many_) {
      set_.TakeFrom(0, SIZE_MAX, put);
    } else {
      for (const uint32_t row : list_) {
        put(row);
        set_.Remove(row);
      }
    }
    list_.clear();
    many_ = in_batch_ = false;
    next_word_ = 0;
    sweeps_ = 0;
  }

 private:
  // More rows than these are found by the set alone.
  static constexpr size_t kMaxListed = 256;
  // Each sweep over the set leaves only the rows added during it: fewer each time, if copying is
  // faster than pushing. Otherwise, TakeAll takes the rest after the last sweep.
  static constexpr int kMaxSweeps = 8;

  RowSet set_;
  std::vector<uint32_t> list_;
  bool many_ = false;  // the list is incomplete or out of date
  bool in_batch_ = false;
  size_t next_word_ = 0;  // where TakeAhead continues
  int sweeps_ = 0;
};

}  // namespace cairn
