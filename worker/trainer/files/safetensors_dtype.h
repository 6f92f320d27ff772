// Element types and their names in .safetensors.
#pragma once

#include "absl/strings/string_view.h"
#include "common/dtype.h"

namespace cairn {

constexpr DType kSafetensorsTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                       DType::kBFloat16, DType::kInt32,   DType::kInt64};

constexpr absl::string_view SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "F64";
    case DType::kFloat16: return "F16";
    case DType::kBFloat16: return "BF16";
    case DType::kInt32: return "I32";
    case DType::kInt64: return "I64";
    case DType::kFloat32: break;
  }
  return "F32";
}

}  // namespace cairn
