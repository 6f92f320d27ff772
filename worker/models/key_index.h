// Numbers distinct 64-bit keys by first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/hash.h"

namespace cairn {

// Open addressing over a power of two of slots, at most half of them used. A slot counts only if it
// carries the current epoch, so Reset touches no memory and one table serves column after column,
// step after step: for a batch of 1,024 rows it stays within a 32 KiB L1 cache.
// Thread safety: none.
class KeyIndex {
 public:
  // Forgets all keys; room for `key_count` of them.
  void Reset(size_t key_count) {
    size_ = 0;
    if (2 * key_count > slots_.size()) {
      Grow(2 * key_count);
    } else if (++epoch_ == 0) {  // after 2^32 resets: old slots must not look new
      slots_.assign(slots_.size(), Slot{});
      epoch_ = 1;
    }
  }

  // The number of `key`: 0 for the first, and so on. At most Reset's count of distinct keys.
  int32_t Insert(int64_t key) {
    for (size_t at = MixBits(static_cast<uint64_t>(key)) >> shift_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.epoch != epoch_) {
        slot = {key, epoch_, size_};
        return size_++;
      }
      if (slot.key == key) return slot.number;
    }
  }

  // Distinct keys inserted since Reset.
  int32_t size() const { return size_; }

 private:
  struct Slot {
    int64_t key = 0;
    uint32_t epoch = 0;  // 0: never used
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
  int shift_ = 0;  // a hash's top bits are its slot
  uint32_t epoch_ = 0;
  int32_t size_ = 0;
};

}  // namespace cairn
