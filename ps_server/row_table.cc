#include "ps_server/row_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace cairn {
namespace {

constexpr size_t kChunkBytes = 16 << 10;
constexpr uint32_t kFirstRows = 4;  // the first chunk grows from this many rows by doubling
constexpr size_t kBatch = 32;       // lookups in flight: more than a core can have misses
constexpr size_t kCacheLine = 64;
constexpr size_t kPrefetchLines = 8;  // longer rows are followed by the hardware

uint32_t ChunkShift(size_t row_bytes) {
  const size_t rows = std::max<size_t>(kChunkBytes / row_bytes, 2 * kFirstRows);
  return static_cast<uint32_t>(std::bit_width(rows)) - 1;
}

}  // namespace

RowTable::RowTable(size_t floats_per_row)
    : floats_(floats_per_row),
      row_bytes_(kHeaderBytes + floats_per_row * sizeof(float)),
      chunk_shift_(ChunkShift(row_bytes_)),
      index_(0, Hash{this}, Equal{this}) {}

int64_t RowTable::key(uint32_t row) const {
  int64_t key;
  std::memcpy(&key, Bytes(row), sizeof(key));
  return key;
}

uint32_t RowTable::last_update(uint32_t row) const {
  uint32_t update;
  std::memcpy(&update, Bytes(row) + sizeof(int64_t), sizeof(update));
  return update;
}

void RowTable::set_last_update(uint32_t row, uint32_t update) {
  std::memcpy(Bytes(row) + sizeof(int64_t), &update, sizeof(update));
}

void RowTable::Prefetch(uint32_t row) const {
  const std::byte* bytes = Bytes(row);
  const size_t end = std::min(row_bytes_, kPrefetchLines * kCacheLine);
  for (size_t at = 0; at < end; at += kCacheLine) __builtin_prefetch(bytes + at, 1);
  __builtin_prefetch(bytes + end - 1, 1);
}

void RowTable::Find(absl::Span<const int64_t> keys, uint32_t* rows) const {
  for (size_t base = 0; base < keys.size(); base += kBatch) {
    const size_t n = std::min(kBatch, keys.size() - base);
    const int64_t* batch = keys.data() + base;
    uint32_t* found = rows + base;
    for (size_t i = 0; i < n; ++i) index_.prefetch(Key{batch[i]});
    for (size_t i = 0; i < n; ++i) {
      const auto at = index_.find(Candidate{}, MixBits(static_cast<uint64_t>(batch[i])));
      found[i] = at == index_.end() ? kNone : *at;
      if (found[i] != kNone) Prefetch(found[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      if (found[i] == kNone || key(found[i]) == batch[i]) continue;
      const auto at = index_.find(Key{batch[i]});
      found[i] = at == index_.end() ? kNone : *at;
    }
  }
}

std::pair<uint32_t, bool> RowTable::FindOrInsert(int64_t key) {
  // Before the index makes room for the row: it must not be left with a slot and no row.
  if (size_ == capacity_) AddMemory();
  bool inserted = false;
  const auto at = index_.lazy_emplace(Key{key}, [&](const auto& construct) {
    std::memcpy(Bytes(size_), &key, sizeof(key));
    set_last_update(size_, 0);
    construct(size_++);
    inserted = true;
  });
  return {*at, inserted};
}

void RowTable::AddMemory() {
  const uint32_t chunk_rows = 1u << chunk_shift_;
  if (capacity_ >= chunk_rows) {
    Chunk chunk(static_cast<std::byte*>(std::malloc(chunk_rows * row_bytes_)));
    if (chunk == nullptr) throw std::bad_alloc();
    chunks_.push_back(std::move(chunk));
    capacity_ += chunk_rows;
    return;
  }
  // The first chunk grows, so that small tables are small.
  if (chunks_.empty()) chunks_.emplace_back();
  const uint32_t rows = capacity_ == 0 ? kFirstRows : 2 * capacity_;
  void* const memory = std::realloc(chunks_[0].get(), rows * row_bytes_);
  if (memory == nullptr) throw std::bad_alloc();
  (void)chunks_[0].release();
  chunks_[0].reset(static_cast<std::byte*>(memory));
  capacity_ = rows;
}

}  // namespace cairn
