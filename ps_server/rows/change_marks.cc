#include "ps_server/rows/change_marks.h"

#include <algorithm>

namespace cairn {
namespace {

constexpr int64_t kMarksOfAShard = int64_t{1} << 40;
constexpr int64_t kShardsWithMarks = int64_t{1} << 22;
constexpr size_t kBlockBytes = 4096;

int64_t FirstMark() {
  static std::atomic<int64_t> shards{0};
  const int64_t shard = shards.fetch_add(1, std::memory_order_relaxed);
  return shard < kShardsWithMarks ? shard * kMarksOfAShard + 1 : 0;
}

int BlockShift(int64_t rows, size_t row_bytes) {
  int shift = 0;
  while ((int64_t{1} << shift) < rows && (row_bytes << (shift + 1)) <= kBlockBytes) ++shift;
  return shift;
}

}  // namespace

CopyMarks::CopyMarks() : first_(FirstMark()) {}

int64_t CopyMarks::Begin() {
  if (first_ == 0) return 0;
  // Changes that were not recorded until now were made before any copy's first read.
  int64_t none = 0;
  now_.compare_exchange_strong(none, first_);
  const int64_t mark = now_.fetch_add(1);
  return mark < end() ? mark : 0;
}

bool CopyMarks::Knows(int64_t mark) const {
  return first_ > 0 && mark >= first_ && mark < std::min(now(), end());
}

int64_t CopyMarks::end() const { return first_ + kMarksOfAShard; }

ChangedRows::ChangedRows(int64_t rows, size_t row_bytes)
    : rows_(rows), block_shift_(BlockShift(rows, row_bytes)) {}

void ChangedRows::NoteAll(int64_t now) { last_ = all_ = now; }

void ChangedRows::MakeBlocks() {
  if (blocks_.empty() && rows_ > 0) blocks_.resize(block_of(rows_ - 1) + 1);
}

void ChangedRows::Note(int64_t now, int64_t row) {
  if (now == 0) return;
  MakeBlocks();
  last_ = blocks_[block_of(row)] = now;
}

void ChangedRows::Note(int64_t now, absl::Span<const int64_t> rows, int64_t first) {
  if (now == 0 || rows.empty()) return;
  MakeBlocks();
  int64_t noted = first;  // rows below are recorded
  for (const int64_t row : rows) {
    if (row < noted) continue;
    const size_t block = block_of(row - first);
    blocks_[block] = now;
    noted = first + (static_cast<int64_t>(block + 1) << block_shift_);
  }
  last_ = now;
}

void ChangedRows::AppendSince(int64_t mark, int64_t first, std::vector<RowRun>* runs) const {
  if (last_ <= mark) return;
  const auto append = [&](int64_t begin, int64_t end) {
    if (!runs->empty() && runs->back().first + runs->back().count == first + begin) {
      runs->back().count += end - begin;
    } else {
      runs->push_back({.first = first + begin, .count = end - begin});
    }
  };
  if (all_ > mark) return append(0, rows_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] <= mark) continue;
    const int64_t begin = static_cast<int64_t>(i) << block_shift_;
    append(begin, std::min(rows_, begin + (int64_t{1} << block_shift_)));
  }
}

void JoinRuns(size_t most, std::vector<RowRun>* runs) {
  while (runs->size() > most) {
    size_t joined = 0;
    for (size_t i = 0; i < runs->size(); i += 2) {
      RowRun run = (*runs)[i];
      if (i + 1 < runs->size()) run.count = (*runs)[i + 1].first + (*runs)[i + 1].count - run.first;
      (*runs)[joined++] = run;
    }
    runs->resize(joined);
  }
}

}  // namespace cairn
