#include "worker/client/plan/not_finite.h"

#include <algorithm>
#include <cstring>

namespace cairn {
namespace {

// NaN and infinity are the values whose exponent bits are all ones. The inner loop has no exit, so
// that compilers vectorize it; the check comes between blocks.
template <typename Bits>
std::optional<int64_t> FindBits(absl::Span<const std::byte> bytes, Bits exponent) {
  constexpr size_t kBlock = 4096 / sizeof(Bits);
  const size_t count = bytes.size() / sizeof(Bits);
  const auto load = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    return bits;
  };
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t end = std::min(count, start + kBlock);
    Bits found = 0;
    for (size_t i = start; i < end; ++i) found |= (load(i) & exponent) == exponent ? 1 : 0;
    if (found == 0) continue;
    for (size_t i = start; i < end; ++i) {
      if ((load(i) & exponent) == exponent) return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<NotFiniteValue> FindNotFinite(DType dtype, absl::Span<const std::byte> bytes) {
  std::optional<int64_t> index;
  switch (dtype) {
    case DType::kFloat32: index = FindBits<uint32_t>(bytes, 0x7f800000u); break;
    case DType::kFloat64: index = FindBits<uint64_t>(bytes, 0x7ff0000000000000u); break;
    case DType::kFloat16: index = FindBits<uint16_t>(bytes, 0x7c00u); break;
    case DType::kBFloat16: index = FindBits<uint16_t>(bytes, 0x7f80u); break;
    case DType::kInt32:
    case DType::kInt64: break;
  }
  if (!index) return std::nullopt;
  float value = 0;
  ToFloat32(dtype, bytes.data() + *index * DTypeBytes(dtype), 1, &value);
  return NotFiniteValue{*index, value};
}

}  // namespace cairn
