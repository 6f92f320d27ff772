// The formats in which an embedding table stores its rows (ps_server/COMPACT_ROWS.md).
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn {

// The numbers are those of the wire and of the files on disk.
enum class RowFormat : int32_t {
  kFloat32 = 0,
  kFloat16 = 1,   // 2 bytes a value, clamped to ±65504
  kBFloat16 = 2,  // 2 bytes a value
  kInt8 = 3,      // 1 byte a value, and a float32 scale a row: its largest magnitude / 127
};
inline constexpr absl::string_view kRowFormatNames[] = {"float32", "float16", "bfloat16", "int8"};
// The first formats are also allowed for an optimizer's slots.
inline constexpr int32_t kSlotFormats = 3;

struct RowStorage {
  RowFormat values = RowFormat::kFloat32;
  RowFormat slots = RowFormat::kFloat32;  // not kInt8

  bool operator==(const RowStorage&) const = default;
};

inline absl::string_view RowFormatName(RowFormat format) {
  return kRowFormatNames[static_cast<int32_t>(format)];
}

}  // namespace cairn
