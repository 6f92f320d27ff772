// Element types of variables and payloads. The numbers equal the wire's DType.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class DType : int32_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt32 = 5,
  kInt64 = 6,
};

// Bytes of one element. `dtype` must be one of the enumerators.
size_t DTypeBytes(DType dtype);
// "float32", "bfloat16", …; "unknown" for a number that names no dtype.
absl::string_view DTypeName(DType dtype);
// kInvalidArgument lists the allowed names.
absl::StatusOr<DType> DTypeFromName(absl::string_view name);
// kInvalidArgument for a number that names no dtype.
absl::StatusOr<DType> DTypeFromNumber(int32_t number);
// float32, float64, float16, bfloat16: the types an optimizer can update.
bool IsFloating(DType dtype);

// IEEE 754 binary16 and bfloat16 as bits. Conversion from float rounds to nearest even and keeps
// infinities and NaN; binary16 subnormals are exact.
uint16_t Float16FromFloat(float value);
float FloatFromFloat16(uint16_t bits);
uint16_t BFloat16FromFloat(float value);
float FloatFromBFloat16(uint16_t bits);

// Converts `count` elements of a floating dtype (unaligned memory allowed) to or from float32.
// float64 is rounded to float32.
void ToFloat32(DType dtype, const void* from, size_t count, float* to);
void FromFloat32(DType dtype, const float* from, size_t count, void* to);

}  // namespace cairn
