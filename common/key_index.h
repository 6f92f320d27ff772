// Numbers distinct 64-bit keys in order of first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/hash.h"

namespace cairn {

// Open addressing over a power of two of slots, at most a quarter of them used. A slot is valid
// only if it carries the current epoch, so Reset touches no memory, and one table serves column
// after column, step after step. Thread safety: none.
class KeyIndex {
 public:
  // Forgets all keys; makes space for `key_count` keys.
  void Reset(size_t key_count) {
    size_ = 0;
    if (kSlotsPerKey * key_count > slots_.size()) {
      Grow(kSlotsPerKey * key_count);
    } else if (++epoch_ == 0) {  // after 2^32 resets: stale slots must not look valid
      slots_.assign(slots_.size(), Slot{});
      epoch_ = 1;
    }
  }

  // Returns the number of `key`: 0 for the first distinct key, and so on. The number of distinct
  // keys must not exceed Reset's count.
  //
  // Branch prediction cannot guess whether a key is new (15 cycles for each miss), so masks select
  // the slot's values (4.5 ns a key; branches take 10). The only branch is on a slot held by
  // another key.
  int32_t Insert(int64_t key) {
    size_t at = MixBits(static_cast<uint64_t>(key)) >> shift_;
    uint64_t used = 0;  // all ones if the slot is of this epoch
    for (;; at = (at + 1) & mask_) {
      used = 0 - ((static_cast<uint64_t>(slots_[at].epoch ^ epoch_) - 1) >> 63);
      if ((static_cast<uint64_t>(slots_[at].key ^ key) & used) == 0) break;
    }
    Slot& slot = slots_[at];
    const int32_t found = static_cast<int32_t>(used);
    const int32_t number = (slot.number & found) | (size_ & ~found);
    slot = {key, epoch_, number};
    size_ += 1 + found;
    return number;
  }

  // Loads the slot of a key that is about to be inserted: where the table is larger than the
  // second-level cache, an insertion otherwise takes twice as long.
  void Prefetch(int64_t key) const {
    __builtin_prefetch(&slots_[MixBits(static_cast<uint64_t>(key)) >> shift_], 1);
  }

  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }
  // Distinct keys inserted since Reset.
  int32_t size() const { return size_; }

 private:
  static constexpr size_t kSlotsPerKey = 4;

  struct Slot {
    int64_t key = 0;
    uint32_t epoch = 0;  // 0: never valid
    int32_t number = 0;
  };

  void Grow(size_t slot_count) {
    size_t count = 1024;
    shift_ = 54;
    for (; count < slot_count; count *= 2) --shift_;
    slots_.assign(count, Slot{});
    mask_ = count - 1;
    epoch_ = 1;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;  // the slot is the hash's top bits
  uint32_t epoch_ = 0;
  int32_t size_ = 0;
};

}  // namespace cairn
