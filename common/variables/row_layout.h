// The layout of an embedding row in its table: part 0 is the value, part s + 1 is slot s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/variables/row_storage.h"

namespace cairn {

// The layout of a row, which is the same in memory and on disk: the value's bytes
// (common/variables/row_rounding.h), then the bytes of all slots, then zeros up to a multiple of 4.
// The slots begin at an offset aligned for their format. In a table of float32 (plain()) a row is
// its floats, one after the other. Thread safety: immutable.
class RowLayout {
 public:
  RowLayout() = default;
  // `dim` numbers per part, 1 + `slots` parts.
  RowLayout(size_t dim, size_t slots, RowStorage storage = {});

  // Bytes of one row, a multiple of 4.
  size_t bytes() const { return bytes_; }
  // Floats of an expanded row: all parts, one after the other.
  size_t floats() const { return dim_ * (1 + slots_); }
  // Whether a row's bytes are its floats.
  bool plain() const { return plain_; }

  // Convert a row, or one of its parts, to float32. Pointers to rows must be aligned to 4 bytes
  // here and below, except in ExpandPart.
  void Expand(const std::byte* row, float* floats) const;
  void ExpandPart(size_t part, const std::byte* row, float* values) const;
  // Writes every byte of the row, rounded to nearest.
  void Round(const float* floats, std::byte* row) const;
  // Like Round, but rounds each number up or down at random, as `draws` decides (RoundAtRandom).
  void RoundAtRandom(const float* floats, uint64_t draws, std::byte* row) const;
  // Writes part `part`, rounded to nearest. The other parts stay unchanged.
  void SetPart(size_t part, const float* values, std::byte* row) const;

  // Rounds `values` in place to the values that a pull returns once they are stored as part `part`.
  void RoundTrip(size_t part, float* values) const;

 private:
  RowFormat format(size_t part) const { return part == 0 ? storage_.values : storage_.slots; }
  size_t offset(size_t part) const {
    return part == 0 ? 0 : slots_offset_ + (part - 1) * slot_bytes_;
  }

  size_t dim_ = 1;
  size_t slots_ = 0;
  RowStorage storage_;
  bool plain_ = true;
  size_t slots_offset_ = sizeof(float);
  size_t slot_bytes_ = sizeof(float);
  size_t bytes_ = sizeof(float);
};

}  // namespace cairn
