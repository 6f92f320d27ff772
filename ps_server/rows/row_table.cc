#include "ps_server/rows/row_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace cairn {
namespace {

constexpr size_t kChunkBytes = 16 << 10;
constexpr uint32_t kFirstRows = 4;  // the first chunk grows from this many rows by doubling
constexpr size_t kMinLimit = 256;   // of an index that is shrunk
constexpr size_t kBatch = 64;       // lookups in flight: more than a core's outstanding misses
constexpr size_t kCacheLine = 64;
constexpr size_t kPrefetchLines = 8;  // the hardware prefetcher follows longer rows

constexpr size_t RowBytes(size_t number_bytes) {
  return sizeof(int64_t) + RowTable::kStampBytes + number_bytes;
}

uint32_t ChunkShift(size_t row_bytes) {
  const size_t rows = std::max<size_t>(kChunkBytes / row_bytes, 2 * kFirstRows);
  return static_cast<uint32_t>(std::bit_width(rows)) - 1;
}

}  // namespace

RowTable::RowTable(size_t number_bytes, ChunkPool& pool)
    : row_bytes_(RowBytes(number_bytes)),
      chunk_shift_(ChunkShift(row_bytes_)),
      pool_(pool),
      index_(pool) {}

RowTable::~RowTable() {
  for (size_t i = 1; i < chunks_.size(); ++i) pool_.GiveBack(chunks_[i]);
}

size_t RowTable::ChunkBytes(size_t number_bytes) {
  const size_t row_bytes = RowBytes(number_bytes);
  const size_t bytes = row_bytes << ChunkShift(row_bytes);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;  // for the index
}

void RowTable::Prefetch(uint32_t row) const {
  const std::byte* bytes = Bytes(row);
  const size_t end = std::min(row_bytes_, kPrefetchLines * kCacheLine);
  for (size_t at = 0; at < end; at += kCacheLine) __builtin_prefetch(bytes + at, 1);
  __builtin_prefetch(bytes + end - 1, 1);
}

void RowTable::Find(absl::Span<const Query> queries, uint32_t* rows) {
  for (size_t base = 0; base < queries.size(); base += kBatch) {
    const absl::Span<const Query> batch = queries.subspan(base, kBatch);
    uint32_t* found = rows + base;
    uint64_t hashes[kBatch];
    for (size_t i = 0; i < batch.size(); ++i) {
      hashes[i] = Hash(batch[i].key);
      batch[i].table->index_.Prefetch(hashes[i]);
    }
    // The first row with the same hash bits is nearly always the right one, and is not read here.
    for (size_t i = 0; i < batch.size(); ++i) {
      const RowTable& table = *batch[i].table;
      found[i] = table.index_.Find(hashes[i], [](uint32_t) { return true; });
      if (found[i] != kNone) __builtin_prefetch(&table.chunks_[found[i] >> table.chunk_shift_]);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      if (found[i] != kNone) batch[i].table->Prefetch(found[i]);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const RowTable& table = *batch[i].table;
      if (found[i] == kNone || table.key(found[i]) == batch[i].key) continue;
      found[i] = table.Find(batch[i].key, hashes[i]);
    }
  }
}

uint32_t RowTable::FindOne(int64_t key) const { return Find(key, Hash(key)); }

void RowTable::FindAgain(absl::Span<const Query> queries, const uint32_t* likely, uint32_t* rows) {
  for (size_t base = 0; base < queries.size(); base += kBatch) {
    const absl::Span<const Query> batch = queries.subspan(base, kBatch);
    uint32_t* found = rows + base;
    std::copy_n(likely + base, batch.size(), found);
    for (size_t i = 0; i < batch.size(); ++i) {
      const RowTable& table = *batch[i].table;
      if (found[i] < table.size_)
        __builtin_prefetch(&table.chunks_[found[i] >> table.chunk_shift_]);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      if (found[i] < batch[i].table->size_) batch[i].table->Prefetch(found[i]);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const RowTable& table = *batch[i].table;
      if (found[i] == kNone) continue;
      if (found[i] < table.size_ && table.key(found[i]) == batch[i].key) continue;
      found[i] = table.FindOne(batch[i].key);
    }
  }
}

std::pair<uint32_t, bool> RowTable::FindOrInsert(int64_t key) {
  const uint64_t hash = Hash(key);
  const uint32_t found = Find(key, hash);
  if (found != kNone) return {found, false};
  if (size_ == capacity_) AddMemory();
  index_.MakeRoom(hash, Hashes{*this});
  std::memcpy(Bytes(size_), &key, sizeof(key));
  *Stamp(size_) = 0;
  index_.Insert(hash, size_);
  return {size_++, true};
}

void RowTable::Remove(uint32_t row) {
  const uint32_t last = size_ - 1;
  index_.Remove(Hash(key(row)), row, Hash(key(last)), last, Hashes{*this});
  if (row != last) std::memcpy(Bytes(row), Bytes(last), row_bytes_);
  size_ = last;
}

void RowTable::RemoveAppended(const StoredRows& keys) {
  IndexAppended();
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t row = FindOne(keys.key(i));
    if (row == kNone) continue;
    Remove(row);
    if (row != size_) appended_[row] = appended_[size_];
    appended_.resize(size_);
  }
}

uint32_t RowTable::Append(const StoredRows& rows) {
  static_assert(std::endian::native == std::endian::little, "rows are kept as they are on disk");
  uint32_t last_update = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    appended_.push_back(rows.key(i));
    uint32_t update;
    std::memcpy(&update, rows.row(i).data(), sizeof(update));
    last_update = std::max(last_update, update & kLastUpdate);
  }
  const char* from = rows.bytes().data();
  for (size_t left = rows.size(); left > 0;) {
    if (size_ == capacity_) AddMemory();
    const uint32_t chunk_rows = 1u << chunk_shift_;
    const uint32_t room = std::min(chunk_rows - (size_ & (chunk_rows - 1)), capacity_ - size_);
    const auto count = static_cast<uint32_t>(std::min<size_t>(left, room));
    std::memcpy(Bytes(size_), from, count * row_bytes_);
    from += count * row_bytes_;
    size_ += count;
    left -= count;
  }
  return last_update;
}

void RowTable::IndexAppended() {
  const uint32_t first = index_.size();
  if (size_ > index_.limit()) {
    index_.Rebuild(first, std::max(size_ - first, first / 2), AppendedHashes{*this});
  }
  uint32_t kept = first;  // rows below have their final place
  for (uint32_t row = first; row < size_; ++row) {
    if (row + kBatch < size_) index_.Prefetch(Hash(appended_[row + kBatch]));
    const int64_t key = appended_[row];
    const uint64_t hash = Hash(key);
    const uint32_t found = index_.Find(hash, [&](uint32_t at) { return appended_[at] == key; });
    if (found != kNone) {
      std::memcpy(stored(found), stored(row), stored_bytes());
      continue;
    }
    // Rows with a repeated key were left out, so this row moves down to close the gap.
    if (kept != row) std::memcpy(Bytes(kept), Bytes(row), row_bytes_);
    appended_[kept] = key;
    index_.Insert(hash, kept++);
  }
  size_ = kept;
  appended_.resize(kept);
}

void RowTable::FinishAppending() {
  IndexAppended();
  // Memory was reserved as if there were no repeated keys.
  if (size_ < index_.limit() / 4) index_.Rebuild(size_, 0, AppendedHashes{*this});
  std::vector<int64_t>().swap(appended_);
  TrimMemory();
}

void RowTable::TrimMemory() {
  // Rows may come and go in large numbers.
  if (index_.limit() > kMinLimit && size_ < index_.limit() / 8) {
    try {
      index_.Rebuild(size_, size_ / 4, Hashes{*this});
    } catch (const std::bad_alloc&) {  // the index stays as it is
    }
  }
  const uint32_t chunk_rows = 1u << chunk_shift_;
  while (chunks_.size() > 1 && capacity_ - size_ >= chunk_rows) {
    pool_.GiveBack(chunks_.back());
    chunks_.pop_back();
    capacity_ -= chunk_rows;
  }
}

bool RowTable::MoveChunks(const ChunkPool::Vacated& from, size_t max_chunks) {
  if (index_.MoveOut(from)) return true;
  size_t moved = 0;
  // The first chunk does not belong to the pool.
  for (size_t i = 1; i < chunks_.size(); ++i) {
    if (!from.contains(chunks_[i])) continue;
    if (moved++ == max_chunks) return true;
    std::byte* const to = pool_.TakeIdle();
    if (to == nullptr) return false;
    std::memcpy(to, chunks_[i], pool_.chunk_bytes());
    pool_.GiveBack(std::exchange(chunks_[i], to));
  }
  return false;
}

void RowTable::AddMemory() {
  const uint32_t chunk_rows = 1u << chunk_shift_;
  if (capacity_ >= chunk_rows) {
    // Any exception leaves the table unchanged, and no chunk is taken that could be lost.
    if (chunks_.size() == chunks_.capacity()) chunks_.reserve(2 * chunks_.size());
    chunks_.push_back(pool_.Take());
    capacity_ += chunk_rows;
    return;
  }
  // The first chunk grows, so that small tables are small.
  const uint32_t rows = capacity_ == 0 ? kFirstRows : 2 * capacity_;
  if (chunks_.empty()) chunks_.push_back(nullptr);
  void* const memory = std::realloc(first_.get(), rows * row_bytes_);
  if (memory == nullptr) throw std::bad_alloc();
  (void)first_.release();
  first_.reset(static_cast<std::byte*>(memory));
  chunks_[0] = first_.get();
  capacity_ = rows;
}

}  // namespace cairn
