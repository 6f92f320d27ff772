// Encodings of float32 values on the wire: unchanged, or in fewer bytes with a known error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// The numbers are the wire's. Values are [rows, width], row-major; all data is little-endian.
enum class ValueFormat : int32_t {
  kPlain = 0,
  kFloat16 = 1,   // 2 bytes a value, clamped to ±65504. Error: 2^-11 of a value above 6.1e-5
  kBFloat16 = 2,  // 2 bytes a value. Error: 2^-8 of the value
  // One float32 scale for every ScaledRows rows, then 1 byte a value. Error: half a scale, that is
  // 1/254 of the largest magnitude in those rows.
  kInt8 = 3,
  // Only the values of largest magnitude: uint32 indices, ascending, then as many float32. The
  // other values are 0.
  kTopK = 4,
};

inline constexpr absl::string_view kValueFormatNames[] = {"plain", "float16", "bfloat16", "int8",
                                                          "top_k"};
absl::string_view ValueFormatName(ValueFormat format);
// kPlain if `name` is not in kValueFormatNames.
ValueFormat ValueFormatFromName(absl::string_view name);

// How many rows of this width share a scale: 1 unless the rows are narrow.
int64_t ScaledRows(int64_t width);

// For every format except kTopK.
size_t EncodedBytes(ValueFormat format, int64_t rows, int64_t width);
// How many of `count` values kTopK keeps: at least one if count > 0. 0 < fraction <= 1.
int64_t KeptValues(double fraction, int64_t count);
inline size_t TopKBytes(int64_t kept) { return static_cast<size_t>(kept) * 8; }

// Writes EncodedBytes to `out`; `format` must be neither kPlain nor kTopK. NaN stays NaN. With
// kInt8 a NaN or an infinity makes all values that share its scale NaN.
void EncodeValues(ValueFormat format, const float* values, int64_t rows, int64_t width,
                  std::byte* out);
// Writes TopKBytes(kept) to `out`; of equal values the first are kept. 0 <= kept <= values.size() <
// 2^32. `values` must not contain NaN.
void EncodeTopK(absl::Span<const float> values, int64_t kept, std::byte* out);

// Decodes untrusted `bytes` into `out`, [rows, width]. Values may be NaN or infinite if `bytes` say
// so. kInvalidArgument: a wrong number of bytes for the format (the message gives both), or indices
// that do not ascend or are out of range. `format` must not be kPlain.
absl::Status DecodeValues(ValueFormat format, absl::Span<const std::byte> bytes, int64_t rows,
                          int64_t width, float* out);

}  // namespace cairn
