// Finds the rows of a table by the hashes of their keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "ps_server/rows/chunk_pool.h"

namespace cairn {

// Open addressing over buckets of one cache line, so that a lookup usually reads one. A bucket has
// up to 12 rows, each with 8 bits of its hash; an index costs 6.1 to 9.9 bytes for each row. Large
// indexes are in the pool that the rows are in too, whose memory is ready for use: a new allocation
// would delay the call that makes the index grow.
//
// An index grows while it is used: a larger array of buckets takes new rows at once, and each
// insertion moves some of the old rows, in their order, so that their keys are read in sequence and
// no call waits for all of them.
//
// Rows are numbers below 2^32 - 1. Of a hash, only the lower 40 bits count. `hashes` has two const
// methods: operator()(row), the hash of an indexed row, and Prefetch(row), which prepares for that.
// Thread safety: none; const methods may run together.
class RowIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // `pool` must outlive the index.
  explicit RowIndex(ChunkPool& pool) : pool_(pool) {}
  ~RowIndex() {
    Free(now_);
    Free(old_);
  }
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // Rows in the index.
  uint32_t size() const { return size_; }
  size_t bytes() const { return (now_.count + old_.count) * sizeof(Bucket); }

  // The row with this hash for which same(row) is true, or kNone.
  template <typename Same>
  uint32_t Find(uint64_t hash, Same same) const {
    if (size_ == 0) return kNone;
    const uint32_t row = Find(now_, hash, same);
    return row != kNone || old_.count == 0 ? row : Find(old_, hash, same);
  }
  // Prefetches what Find reads.
  void Prefetch(uint64_t hash) const {
    __builtin_prefetch(now_.buckets + now_.Home(hash));
    if (old_.count != 0) __builtin_prefetch(old_.buckets + old_.Home(hash));
  }

  // Makes room for one more row, with this hash. Throws std::bad_alloc and leaves the index as it
  // is.
  template <typename Hashes>
  void MakeRoom(uint64_t hash, const Hashes& hashes) {
    if (old_.count != 0) MoveRows(kMovedAtOnce, hashes);
    const size_t count = now_.count;
    if (size_ < Limit(count)) return;
    // By 3/8 to 5/8, so that the indexes of stripes that fill at the same rate do not all grow at
    // the same time.
    const size_t share = 3 * 256 + (hash >> 16 & 0x1ff);  // of 2048
    Array larger = Allocate(count + count * share / 2048 + 1);
    MoveRows(UINT32_MAX, hashes);
    old_ = std::exchange(now_, std::move(larger));
    moved_ = 0;
    end_ = size_;
  }
  // Moves up to `rows` rows if the index grows; otherwise one that gets no more rows would stay in
  // two arrays.
  template <typename Hashes>
  void Continue(uint32_t rows, const Hashes& hashes) {
    if (old_.count != 0) MoveRows(rows, hashes);
  }
  // Adds a row that is not in the index. There must be room.
  void Insert(uint64_t hash, uint32_t row) {
    Insert(now_, hash, row);
    ++size_;
  }
  // Removes a row. Then `last`, the row with the greatest number and the hash `last_hash`, has its
  // number.
  template <typename Hashes>
  void Remove(uint64_t hash, uint32_t row, uint64_t last_hash, uint32_t last,
              const Hashes& hashes) {
    MoveRows(UINT32_MAX, hashes);
    Erase(hash, row);
    --size_;
    if (row == last) return;
    const Place place = PlaceOf(last_hash, last);
    place.bucket->rows[place.i] = row;
  }
  // Builds the index anew: of the rows below `rows`, with room for `room` more. Throws
  // std::bad_alloc and leaves the index as it is.
  template <typename Hashes>
  void Rebuild(uint32_t rows, size_t room, const Hashes& hashes) {
    Array array = Allocate((rows + room) * 8 / (kRows * 7) + 1);
    Free(old_);
    Free(now_);
    now_ = std::move(array);
    moved_ = 0;
    end_ = size_ = rows;
    MoveRows(UINT32_MAX, hashes);
  }
  // Rows that there is room for, those in the index among them.
  size_t limit() const { return Limit(now_.count); }
  // Moves out of the block that the pool is vacating. True: something was moved.
  bool MoveOut(const ChunkPool::Vacated& from);

 private:
  static constexpr size_t kRows = 12;  // of a bucket
  // Three would suffice: at least 3/8 as many rows as the index has are added before it grows
  // again.
  static constexpr uint32_t kMovedAtOnce = 8;

  // Empty if all its bytes are 0.
  struct alignas(64) Bucket {
    uint8_t tags[kRows];  // 0: no row
    uint32_t passed;      // rows that are in a later bucket because this one was full
    uint32_t rows[kRows];

    // Bit i: place i has this tag.
    uint32_t Places(uint8_t tag) const {
#ifdef __SSE2__  // for which Highway has no functions
      const __m128i all = _mm_load_si128(reinterpret_cast<const __m128i*>(tags));
      const __m128i equal = _mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)));
      return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kRows) - 1);
#else
      uint32_t places = 0;
      for (uint32_t i = 0; i < kRows; ++i) places |= uint32_t{tags[i] == tag} << i;
      return places;
#endif
    }
  };
  struct Array {
    size_t Home(uint64_t hash) const { return (hash & UINT32_MAX) * count >> 32; }
    size_t After(size_t at) const { return at + 1 == count ? 0 : at + 1; }

    Bucket* buckets = nullptr;
    size_t count = 0;
    bool of_pool = false;
  };
  struct Place {
    Bucket* bucket;
    size_t i;
  };

  static uint8_t Tag(uint64_t hash) {
    const auto tag = static_cast<uint8_t>(hash >> 32);
    return tag == 0 ? uint8_t{1} : tag;
  }
  // An eighth of the places stays free, so that few rows are in other buckets than their own.
  static size_t Limit(size_t buckets) { return buckets * kRows * 7 / 8; }

  // An array of at least this many empty buckets. Throws std::bad_alloc.
  Array Allocate(size_t buckets);
  // One that is not of the pool, not initialized.
  static Array OwnArray(size_t buckets);
  // Leaves the array empty.
  void Free(Array& array);

  template <typename Same>
  static uint32_t Find(const Array& array, uint64_t hash, Same same) {
    size_t at = array.Home(hash);
    for (size_t left = array.count; left > 0; --left, at = array.After(at)) {
      const Bucket& bucket = array.buckets[at];
      for (uint32_t places = bucket.Places(Tag(hash)); places != 0; places &= places - 1) {
        const uint32_t row = bucket.rows[std::countr_zero(places)];
        if (same(row)) return row;
      }
      if (bucket.passed == 0) break;
    }
    return kNone;
  }
  static void Insert(Array& array, uint64_t hash, uint32_t row);
  // Where now_ has an indexed row.
  Place PlaceOf(uint64_t hash, uint32_t row);
  // Removes a row from now_.
  void Erase(uint64_t hash, uint32_t row);

  // Moves up to `rows` rows from old_ to now_, and frees old_ with the last.
  template <typename Hashes>
  void MoveRows(uint32_t rows, const Hashes& hashes) {
    constexpr uint32_t kAhead = 16;  // rows whose buckets are fetched; twice as many keys
    const uint32_t stop = moved_ + std::min(rows, end_ - moved_);
    for (; moved_ < stop; ++moved_) {
      if (end_ - moved_ > 2 * kAhead) hashes.Prefetch(moved_ + 2 * kAhead);
      if (end_ - moved_ > kAhead) {
        __builtin_prefetch(now_.buckets + now_.Home(hashes(moved_ + kAhead)), 1);
      }
      Insert(now_, hashes(moved_), moved_);
    }
    if (moved_ == end_) Free(old_);
  }

  ChunkPool& pool_;
  Array now_;
  Array old_;  // while the index grows: has rows [0, end_); now_ has those but [moved_, end_)
  uint32_t moved_ = 0;  // == end_ if old_ is empty
  uint32_t end_ = 0;
  uint32_t size_ = 0;
};

}  // namespace cairn
