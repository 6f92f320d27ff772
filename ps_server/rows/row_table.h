// Embedding rows in memory, found by key.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/hash.h"
#include "ps_server/rows/chunk_pool.h"
#include "ps_server/rows/row_index.h"
#include "storage/stored_rows.h"

namespace cairn {

// A row is [key 8 bytes][last_update 4 bytes][numbers …] in a chunk of about 16 KiB; the index
// holds row numbers only, and keys are read from the rows. Beyond its numbers a row costs 12 bytes,
// 6.1 to 9.9 bytes of the index, one bit, and its share of a half-filled chunk: at most 24 bytes if
// the stripe has more than a few rows. When a row is removed, the last row takes its place.
// Thread safety: none; const methods may run together.
class RowTable {
 public:
  static constexpr uint32_t kNone = RowIndex::kNone;

  // `number_bytes`: size of a row's numbers (RowLayout). `pool` has chunks of
  // ChunkBytes(number_bytes) and must outlive the table.
  RowTable(size_t number_bytes, ChunkPool& pool);
  ~RowTable();
  static size_t ChunkBytes(size_t number_bytes);
  RowTable(const RowTable&) = delete;
  RowTable& operator=(const RowTable&) = delete;

  uint32_t size() const { return size_; }
  // Size of a row without its key, as stored on disk: kStampBytes and its numbers.
  size_t stored_bytes() const { return row_bytes_ - sizeof(int64_t); }
  static constexpr size_t kStampBytes = sizeof(uint32_t);

  // A key to look up in a table.
  struct Query {
    const RowTable* table;
    int64_t key;
  };
  // rows[i] is the row of query i, or kNone. Lookups overlap, even across tables: memory is
  // prefetched, and the rows found are on their way into the cache.
  static void Find(absl::Span<const Query> queries, uint32_t* rows);
  // As Find, but reads less if most of `likely` are right: likely[i] is an earlier result of query
  // i. A wrong row costs a separate lookup; kNone is accepted as it is.
  static void FindAgain(absl::Span<const Query> queries, const uint32_t* likely, uint32_t* rows);
  // The row of `key`, or kNone.
  uint32_t FindOne(int64_t key) const;
  // Returns the row of `key`, and whether it is new (then its numbers are unspecified). The table
  // must have fewer than 2^32 - 1 rows. Throws std::bad_alloc and leaves the table unchanged.
  std::pair<uint32_t, bool> FindOrInsert(int64_t key);

  // Does a part of the work of an index that grows, if it does.
  void ContinueGrowth() { index_.Continue(kContinuedRows, Hashes{*this}); }

  // Removes a row; the last row takes its number.
  void Remove(uint32_t row);
  // Returns chunks without rows to the pool, and shrinks an index that is much too large.
  void TrimMemory();
  size_t index_bytes() const { return index_.bytes(); }
  // Moves rows out of the block that the pool is vacating, at most `max_chunks` chunks. False:
  // nothing is left to move, or no idle chunk is left to move to.
  bool MoveChunks(const ChunkPool::Vacated& from, size_t max_chunks);

  // For loading an empty table. Adds rows of stored_bytes() without looking up their keys, and
  // returns the greatest last_update among them. Until FinishAppending, only these five methods may
  // be called.
  uint32_t Append(const StoredRows& rows);
  // Of several rows with the same key, keeps the last; the memory of the others is reused.
  void IndexAppended();
  // Removes the rows of `keys` that are in the table.
  void RemoveAppended(const StoredRows& keys);
  // Bytes of the rows that IndexAppended has not processed.
  size_t appended_bytes() const { return (size_ - index_.size()) * row_bytes_; }
  // Calls IndexAppended and frees the memory that only loading needs.
  void FinishAppending();

  int64_t key(uint32_t row) const { return Load<int64_t>(Bytes(row)); }
  // The number of the stripe's update that last changed the row; at most kLastUpdate.
  uint32_t last_update(uint32_t row) const { return LoadStamp(row) & kLastUpdate; }
  void set_last_update(uint32_t row, uint32_t update) {
    *Stamp(row) = update | (*Stamp(row) & kTouched);
  }
  static constexpr uint32_t kLastUpdate = ~(uint32_t{1} << 31);
  // As last_update, of a row as stored on disk.
  static uint32_t LastUpdateOf(absl::string_view stored) {
    return Load<uint32_t>(reinterpret_cast<const std::byte*>(stored.data())) & kLastUpdate;
  }
  // Whether the row was used since Untouch: a bit beside its last_update. The bit is on disk too,
  // but has no meaning there. Touch may run in several threads at once, beside the const methods
  // that read stamps.
  bool touched(uint32_t row) const { return (LoadStamp(row) & kTouched) != 0; }
  void Touch(uint32_t row) const {
    const std::atomic_ref<uint32_t> stamp(*Stamp(row));
    const uint32_t seen = stamp.load(std::memory_order_relaxed);
    // No other thread changes the stamp to another value meanwhile.
    if ((seen & kTouched) == 0) stamp.store(seen | kTouched, std::memory_order_relaxed);
  }
  void Untouch(uint32_t row) { *Stamp(row) &= kLastUpdate; }
  // Aligned to 4. Valid until the next FindOrInsert or Remove.
  std::byte* numbers(uint32_t row) { return Bytes(row) + kHeaderBytes; }
  const std::byte* numbers(uint32_t row) const { return Bytes(row) + kHeaderBytes; }
  // The numbers of a row in a table of float32.
  float* floats(uint32_t row) { return reinterpret_cast<float*>(Bytes(row) + kHeaderBytes); }
  const float* floats(uint32_t row) const {
    return reinterpret_cast<const float*>(Bytes(row) + kHeaderBytes);
  }
  std::byte* stored(uint32_t row) { return Bytes(row) + sizeof(int64_t); }
  // Prefetches the row's memory for writing.
  void Prefetch(uint32_t row) const;

 private:
  static constexpr size_t kHeaderBytes = sizeof(int64_t) + kStampBytes;
  static constexpr uint32_t kTouched = ~kLastUpdate;
  static constexpr uint32_t kContinuedRows = 64;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  static uint64_t Hash(int64_t key) { return MixBits(static_cast<uint64_t>(key)); }
  // Hashes of rows, for the index.
  struct Hashes {
    const RowTable& table;
    uint64_t operator()(uint32_t row) const { return Hash(table.key(row)); }
    void Prefetch(uint32_t row) const { __builtin_prefetch(table.Bytes(row)); }
  };
  // The same while rows are loaded: their keys are read from appended_, which is in the cache.
  struct AppendedHashes {
    const RowTable& table;
    uint64_t operator()(uint32_t row) const { return Hash(table.appended_[row]); }
    void Prefetch(uint32_t) const {}
  };

  std::byte* Bytes(uint32_t row) const {
    return chunks_[row >> chunk_shift_] + (row & ((1u << chunk_shift_) - 1)) * row_bytes_;
  }
  template <typename T>
  static T Load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint32_t* Stamp(uint32_t row) const {
    return reinterpret_cast<uint32_t*>(Bytes(row) + sizeof(int64_t));
  }
  uint32_t LoadStamp(uint32_t row) const {
    return std::atomic_ref<uint32_t>(*Stamp(row)).load(std::memory_order_relaxed);
  }
  uint32_t Find(int64_t key, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t row) { return this->key(row) == key; });
  }
  void AddMemory();

  const size_t row_bytes_;
  const uint32_t chunk_shift_;  // log2 of rows per chunk
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;          // rows that fit into the allocated memory
  std::vector<int64_t> appended_;  // while loading: keys of the rows, so that rows need not be read
  ChunkPool& pool_;
  std::unique_ptr<std::byte[], Free> first_;  // the first chunk
  std::vector<std::byte*> chunks_;            // the others belong to the pool
  RowIndex index_;
};

}  // namespace cairn
