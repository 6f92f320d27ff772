// In what form an embedding table keeps its rows (ps_server/COMPACT_ROWS.md).
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn {

// Numbers are the wire's, and those of the bytes on disk.
enum class RowFormat : int32_t {
  kFloat32 = 0,
  kFloat16 = 1,   // 2 bytes a value; beyond 65504 it is that
  kBFloat16 = 2,  // 2 bytes a value
  kInt8 = 3,      // 1 byte a value, and a float32 scale a row: its largest value over 127
};
inline constexpr absl::string_view kRowFormatNames[] = {"float32", "float16", "bfloat16", "int8"};
// Of the formats those that an optimizer's slots may have: the first ones.
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
