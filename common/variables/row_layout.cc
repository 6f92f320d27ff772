#include "common/variables/row_layout.h"

#include <cstring>
#include <vector>

#include "common/variables/row_rounding.h"

namespace cairn {
namespace {

constexpr size_t kRowAlignment = sizeof(uint32_t);  // of a row, for the data before its numbers

size_t RoundedUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Temporary memory. The heap aligns it more strictly than any format requires.
std::byte* Scratch(size_t bytes) {
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes) scratch.resize(bytes);
  return scratch.data();
}

}  // namespace

RowLayout::RowLayout(size_t dim, size_t slots, RowStorage storage)
    : dim_(dim),
      slots_(slots),
      storage_(storage),
      plain_(storage.values == RowFormat::kFloat32 &&
             (slots == 0 || storage.slots == RowFormat::kFloat32)),
      slots_offset_(
          RoundedUp(RowFormatBytes(storage.values, dim), RowFormatAlignment(storage.slots))),
      slot_bytes_(RowFormatBytes(storage.slots, dim)),
      bytes_(RoundedUp(slots_offset_ + slots * slot_bytes_, kRowAlignment)) {}

void RowLayout::Expand(const std::byte* row, float* floats) const {
  ExpandNumbers(storage_.values, row, dim_, floats);
  if (slots_ == 0) return;
  ExpandNumbers(storage_.slots, row + slots_offset_, slots_ * dim_, floats + dim_);
}

void RowLayout::ExpandPart(size_t part, const std::byte* row, float* values) const {
  const std::byte* bytes = row + offset(part);
  if (reinterpret_cast<uintptr_t>(bytes) % RowFormatAlignment(format(part)) != 0) {
    const size_t size = RowFormatBytes(format(part), dim_);
    bytes = static_cast<std::byte*>(std::memcpy(Scratch(size), bytes, size));
  }
  ExpandNumbers(format(part), bytes, dim_, values);
}

void RowLayout::Round(const float* floats, std::byte* row) const {
  std::memset(row, 0, bytes_);
  RoundToNearest(storage_.values, floats, dim_, row);
  if (slots_ == 0) return;
  RoundToNearest(storage_.slots, floats + dim_, slots_ * dim_, row + slots_offset_);
}

// The padding between and after the parts stays 0, as Round has written it.
void RowLayout::RoundAtRandom(const float* floats, uint64_t draws, std::byte* row) const {
  cairn::RoundAtRandom(storage_.values, floats, dim_, draws, 0, row);
  if (slots_ == 0) return;
  cairn::RoundAtRandom(storage_.slots, floats + dim_, slots_ * dim_, draws,
                       static_cast<uint32_t>(dim_), row + slots_offset_);
}

void RowLayout::SetPart(size_t part, const float* values, std::byte* row) const {
  RoundToNearest(format(part), values, dim_, row + offset(part));
}

void RowLayout::RoundTrip(size_t part, float* values) const {
  if (format(part) == RowFormat::kFloat32) return;
  std::byte* const bytes = Scratch(RowFormatBytes(format(part), dim_));
  RoundToNearest(format(part), values, dim_, bytes);
  ExpandNumbers(format(part), bytes, dim_, values);
}

}  // namespace cairn
