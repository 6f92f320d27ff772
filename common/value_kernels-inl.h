// Conversions between float32 and narrower numbers, to nearest. Plain loops that the compiler
// vectorizes. Included once per instruction set (Highway's foreach_target.h).
#if defined(CAIRN_COMMON_VALUE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_COMMON_VALUE_KERNELS_INL_H_
#undef CAIRN_COMMON_VALUE_KERNELS_INL_H_
#else
#define CAIRN_COMMON_VALUE_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/base/casts.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
// float32's bits of 65504, of 2^-14, of the largest bfloat16 and of 0.5; kExponentOffset is the
// difference of the exponent biases of float32 and float16.
constexpr uint32_t kLargestHalf = 0x477fe000, kSmallestNormalHalf = 0x38800000;
constexpr uint32_t kLargestBFloat = 0x7f7f0000;
constexpr uint32_t kOneHalf = 0x3f000000, kExponentOffset = 112U << 23;

// To nearest, ties to even.
inline void ToHalves(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    const auto bits = absl::bit_cast<uint32_t>(from[i]);
    const uint32_t magnitude = std::min(bits & kMagnitude, kLargestHalf);
    const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - kExponentOffset) >> 13;
    // Below 2^-14 a half counts units of 2^-24; adding 0.5 rounds to such units.
    const uint32_t small =
        absl::bit_cast<uint32_t>(absl::bit_cast<float>(magnitude) + 0.5F) - kOneHalf;
    const uint32_t number = magnitude < kSmallestNormalHalf ? small : normal;
    const uint32_t half = (bits & kMagnitude) > kInfinity ? 0x7e00 : number;  // keeps NaN
    to[i] = static_cast<uint16_t>(half | ((bits & ~kMagnitude) >> 16));
  }
}

inline void FromHalves(const uint16_t* from, size_t count, float* to) {
  constexpr float kScale = 0x1p112F;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t half = from[i];
    const uint32_t magnitude = (half & 0x7fff) << 13;
    const uint32_t finite = absl::bit_cast<uint32_t>(absl::bit_cast<float>(magnitude) * kScale);
    const uint32_t other = magnitude | kInfinity;  // infinity or NaN
    const uint32_t bits = (half & 0x7c00) == 0x7c00 ? other : finite;
    to[i] = absl::bit_cast<float>(bits | ((half & 0x8000) << 16));
  }
}

inline void ToBFloats(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    const auto bits = absl::bit_cast<uint32_t>(from[i]);
    const uint32_t magnitude = std::min(bits & kMagnitude, kLargestBFloat);
    const uint32_t number = (magnitude + 0x7fff + ((magnitude >> 16) & 1)) >> 16;
    const uint32_t rounded = (bits & kMagnitude) > kInfinity ? 0x7fc0 : number;  // keeps NaN
    to[i] = static_cast<uint16_t>(rounded | ((bits & ~kMagnitude) >> 16));
  }
}

inline void FromBFloats(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = absl::bit_cast<float>(uint32_t{from[i]} << 16);
}

// Returns the scale, or NaN if a value is not finite.
inline float ToBytes(const float* from, size_t count, int8_t* to) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, absl::bit_cast<uint32_t>(from[i]) & kMagnitude);
  }
  const float scale = absl::bit_cast<float>(largest) / 127;
  // If the scale would be below the smallest normal float32, all values count as 0.
  if (largest >= kInfinity || scale < 0x1p-126F) {
    std::fill_n(to, count, int8_t{0});
    return largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const float inverse = 1 / scale;
  for (size_t i = 0; i < count; ++i) {
    const float scaled = from[i] * inverse;
    to[i] = static_cast<int8_t>(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5F : 0.5F)));
  }
  return scale;
}

inline void FromBytes(const int8_t* from, size_t count, float scale, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#endif  // per target
