// Maps a dtype to the C++ type of its elements.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "glog/logging.h"

namespace cairn {

// True for float16 and bfloat16, which are stored as bits because C++20 has no arithmetic for them.
inline bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Calls `use` with a zero of the C++ type of `dtype`, which must not be a 16-bit type.
template <typename Use>
void WithNumericType(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat32: return use(float{});
    case DType::kFloat64: return use(double{});
    case DType::kInt32: return use(int32_t{});
    case DType::kInt64: return use(int64_t{});
    case DType::kFloat16:
    case DType::kBFloat16: break;
  }
  LOG(FATAL) << DTypeName(dtype) << " has no C++ type";
}

}  // namespace cairn
