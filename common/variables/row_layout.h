// The numbers of an embedding row, as its table keeps them: part 0 is the value, part s + 1 slot s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/variables/row_storage.h"

namespace cairn {

// In memory and on disk alike: the value's bytes (common/variables/row_rounding.h), then all
// slots', and zeros up to a multiple of 4. The slots' begin where their format can be read. A table
// of float32 (plain()) has the floats one after the other. Thread safety: immutable.
class RowLayout {
 public:
  RowLayout() = default;
  // `dim` numbers a part, 1 + `slots` parts.
  RowLayout(size_t dim, size_t slots, RowStorage storage = {});

  // Of one row, a multiple of 4.
  size_t bytes() const { return bytes_; }
  // Of a row that is expanded: part after part.
  size_t floats() const { return dim_ * (1 + slots_); }
  // Whether a row's bytes are its floats.
  bool plain() const { return plain_; }

  // Bytes of rows are aligned to 4, but for ExpandPart's.
  void Expand(const std::byte* row, float* floats) const;
  void ExpandPart(size_t part, const std::byte* row, float* values) const;
  // Every byte of the row: to the nearest.
  void Round(const float* floats, std::byte* row) const;
  // The same, up or down at random; `draws` decides (RoundAtRandom).
  void RoundAtRandom(const float* floats, uint64_t draws, std::byte* row) const;
  // To the nearest; the other parts stay.
  void SetPart(size_t part, const float* values, std::byte* row) const;

  // What a pull gives back of `values` once they are part `part` of a row, in place.
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
