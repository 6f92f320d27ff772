// From a dtype to the C++ type of its elements.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "glog/logging.h"

namespace cairn {

// float16 and bfloat16: bits, for which C++20 has no arithmetic.
inline bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Calls `use` with a zero of the C++ type of `dtype`, which is none of the 16-bit types.
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
