// How float32 values travel: as they are, or in fewer bytes with an error that is known.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// Numbers are the wire's. Values are [rows, width], row-major; all is little-endian.
enum class ValueFormat : int32_t {
  kPlain = 0,
  kFloat16 = 1,   // 2 bytes a value; beyond 65504 it is that. Error: 2^-11 of a value above 6.1e-5
  kBFloat16 = 2,  // 2 bytes a value. Error: 2^-8 of the value
  // float32 scales of ScaledRows rows each, then 1 byte a value. Error: half a scale, that is 1/254
  // of the largest value of those rows.
  kInt8 = 3,
  // The largest values alone: uint32 indices, ascending, then as many float32. The others are 0.
  kTopK = 4,
};

inline constexpr absl::string_view kValueFormatNames[] = {"plain", "float16", "bfloat16", "int8",
                                                          "top_k"};
absl::string_view ValueFormatName(ValueFormat format);
// One of kValueFormatNames, else kPlain.
ValueFormat ValueFormatFromName(absl::string_view name);

// Rows of this width that share a scale: one alone unless it is narrow.
int64_t ScaledRows(int64_t width);

// Of every format but kTopK.
size_t EncodedBytes(ValueFormat format, int64_t rows, int64_t width);
// Of `count` values those that kTopK keeps: at least one of any. 0 < fraction <= 1.
int64_t KeptValues(double fraction, int64_t count);
inline size_t TopKBytes(int64_t kept) { return static_cast<size_t>(kept) * 8; }

// Writes EncodedBytes to `out`; format is neither kPlain nor kTopK. NaN stays NaN, with kInt8 that
// and infinity make NaN of all that share the scale.
void EncodeValues(ValueFormat format, const float* values, int64_t rows, int64_t width,
                  std::byte* out);
// Writes TopKBytes(kept) to `out`; of equal values the first are kept. 0 <= kept <= values.size(),
// which is below 2^32. No NaN.
void EncodeTopK(absl::Span<const float> values, int64_t kept, std::byte* out);

// The values that `bytes`, from anybody, stand for, into [rows, width] `out`. They may be NaN or
// infinite where `bytes` say so. kInvalidArgument: not as many bytes as the format has (says both),
// indices that do not ascend or are out of range. format is not kPlain.
absl::Status DecodeValues(ValueFormat format, absl::Span<const std::byte> bytes, int64_t rows,
                          int64_t width, float* out);

}  // namespace cairn
