#include "ps_server/calls/gradient_check.h"

#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "common/optimizer/clip.h"

namespace cairn {
namespace {

// NaN and infinity are the values whose exponent bits are all set.
bool HalvesFinite(const std::byte* values, size_t count, uint16_t exponent_bits) {
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    finite &= (bits & exponent_bits) != exponent_bits;
  }
  return finite;
}

template <typename T>
absl::Span<const T> SpanOf(const std::byte* values, size_t count) {
  return {reinterpret_cast<const T*>(values), count};
}

}  // namespace

bool AllFinite(DType dtype, const std::byte* values, size_t count) {
  switch (dtype) {
    case DType::kFloat32: return AllFinite(SpanOf<float>(values, count));
    case DType::kFloat64: return AllFinite(SpanOf<double>(values, count));
    case DType::kFloat16: return HalvesFinite(values, count, 0x7c00);
    case DType::kBFloat16: return HalvesFinite(values, count, 0x7f80);
    case DType::kInt32:
    case DType::kInt64: return true;
  }
  return true;
}

void ClipNorm(DType dtype, const std::byte* gradient, size_t count, double limit,
              std::vector<std::byte>& clipped) {
  clipped.assign(gradient, gradient + count * DTypeBytes(dtype));
  if (dtype == DType::kFloat64) {
    return ClipByNorm({reinterpret_cast<double*>(clipped.data()), count}, limit);
  }
  if (dtype == DType::kFloat32) {
    return ClipByNorm({reinterpret_cast<float*>(clipped.data()), count}, static_cast<float>(limit));
  }
  std::vector<float> floats(count);
  ToFloat32(dtype, gradient, count, floats.data());
  ClipByNorm(absl::MakeSpan(floats), static_cast<float>(limit));
  FromFloat32(dtype, floats.data(), count, clipped.data());
}

}  // namespace cairn
