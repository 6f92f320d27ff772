// Highway's rule: foreach_target.h, which includes this file once per instruction set, comes before
// anything else that uses HWY_NAMESPACE.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/variables/row_rounding.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cstring>

#include "absl/base/casts.h"
#include "common/value_kernels-inl.h"
#include "common/variables/row_rounding.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

// 32 bits that depend only on `draws` and `i`: MurmurHash3's finalizer (Appleby) with `draws` mixed
// in.
inline uint32_t Draw(uint64_t draws, uint32_t i) {
  uint32_t x = static_cast<uint32_t>(draws) + i * 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x ^= static_cast<uint32_t>(draws >> 32);
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

// Rounds 0 <= number <= 1024 down, or up if `draw`, which is below 2^24, is less than the fraction
// times 2^24. Compares integers, because float comparisons may trap and are not vectorized.
inline uint32_t UpOrDown(float number, uint32_t draw) {
  const auto whole = static_cast<int32_t>(number);
  const auto rest = static_cast<int32_t>((number - static_cast<float>(whole)) * 0x1p24F);
  return static_cast<uint32_t>(whole) +
         static_cast<uint32_t>(static_cast<int32_t>(draw) < rest ? 1 : 0);
}

// Random bits are added to the dropped bits, so they carry with the probability that the dropped
// bits represent.
inline void ToHalvesAtRandom(const float* from, size_t count, uint64_t draws, uint32_t first,
                             uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t draw = Draw(draws, first + static_cast<uint32_t>(i));
    const auto bits = absl::bit_cast<uint32_t>(from[i]);
    const uint32_t magnitude = std::min(bits & kMagnitude, kLargestHalf);
    // Below 2^-14 a half counts units of 2^-24, so more than 13 bits are dropped.
    const bool small = magnitude < kSmallestNormalHalf;
    const uint32_t dropped = small ? 126 - (magnitude >> 23) : 13;
    const uint32_t shift = std::min(dropped, 31U);
    const uint32_t digits = ((magnitude & 0x7fffff) | 0x800000) >> std::min(dropped - shift, 31U);
    const uint32_t kept = small ? digits : magnitude - kExponentOffset;
    const uint32_t number = (kept + (draw & ((1U << shift) - 1))) >> shift;
    const uint32_t half = (bits & kMagnitude) > kInfinity ? 0x7e00 : number;  // keeps NaN
    to[i] = static_cast<uint16_t>(half | ((bits & ~kMagnitude) >> 16));
  }
}

inline void ToBFloatsAtRandom(const float* from, size_t count, uint64_t draws, uint32_t first,
                              uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t draw = Draw(draws, first + static_cast<uint32_t>(i));
    const auto bits = absl::bit_cast<uint32_t>(from[i]);
    const uint32_t magnitude = std::min(bits & kMagnitude, kLargestBFloat);
    const uint32_t number = (magnitude + (draw >> 16)) >> 16;
    const uint32_t rounded = (bits & kMagnitude) > kInfinity ? 0x7fc0 : number;  // keeps NaN
    to[i] = static_cast<uint16_t>(rounded | ((bits & ~kMagnitude) >> 16));
  }
}

constexpr uint32_t kMostOfAByte = 0x42fe0000;  // float32's bits of 127

// Returns the scale, or NaN if a number is NaN. Without kAtRandom, ties round toward 0.
template <bool kAtRandom>
float ToRowBytes(const float* from, size_t count, uint64_t draws, uint32_t first, int8_t* to) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, absl::bit_cast<uint32_t>(from[i]) & kMagnitude);
  }
  const bool nan = largest > kInfinity;
  const float scale = absl::bit_cast<float>(std::min(largest, kLargestBFloat)) / 127;
  // If the scale would be below the smallest normal float32, all numbers count as 0.
  if (nan || scale < 0x1p-126F) {
    std::fill_n(to, count, int8_t{0});
    return nan ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const float inverse = 1 / scale;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = absl::bit_cast<uint32_t>(from[i]);
    const float scaled = absl::bit_cast<float>(bits & kMagnitude) * inverse;
    // Rounding of `inverse` may make the largest number more than 127; clamp it.
    const float bounded =
        absl::bit_cast<float>(std::min(absl::bit_cast<uint32_t>(scaled), kMostOfAByte));
    const uint32_t draw = kAtRandom ? Draw(draws, first + static_cast<uint32_t>(i)) >> 8 : 1U << 23;
    const auto number = static_cast<int32_t>(UpOrDown(bounded, draw));
    const int32_t sign = static_cast<int32_t>(bits) >> 31;  // 0 or -1
    to[i] = static_cast<int8_t>((number ^ sign) - sign);
  }
  return scale;
}

inline float ToNearestRowBytes(const float* from, size_t count, int8_t* to) {
  return ToRowBytes<false>(from, count, 0, 0, to);
}

inline float ToRandomRowBytes(const float* from, size_t count, uint64_t draws, uint32_t first,
                              int8_t* to) {
  return ToRowBytes<true>(from, count, draws, first, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
namespace {

HWY_EXPORT(ToHalves);
HWY_EXPORT(FromHalves);
HWY_EXPORT(ToBFloats);
HWY_EXPORT(FromBFloats);
HWY_EXPORT(FromBytes);
HWY_EXPORT(ToHalvesAtRandom);
HWY_EXPORT(ToBFloatsAtRandom);
HWY_EXPORT(ToNearestRowBytes);
HWY_EXPORT(ToRandomRowBytes);

constexpr size_t kScaleBytes = sizeof(float);

}  // namespace

size_t RowFormatBytes(RowFormat format, size_t count) {
  switch (format) {
    case RowFormat::kFloat32: break;
    case RowFormat::kFloat16:
    case RowFormat::kBFloat16: return count * sizeof(uint16_t);
    case RowFormat::kInt8: return kScaleBytes + count;
  }
  return count * sizeof(float);
}

size_t RowFormatAlignment(RowFormat format) {
  const bool halves = format == RowFormat::kFloat16 || format == RowFormat::kBFloat16;
  return halves ? sizeof(uint16_t) : sizeof(float);
}

void RoundToNearest(RowFormat format, const float* numbers, size_t count, std::byte* bytes) {
  auto* const halves = reinterpret_cast<uint16_t*>(bytes);
  switch (format) {
    case RowFormat::kFloat32: std::memcpy(bytes, numbers, count * sizeof(float)); return;
    case RowFormat::kFloat16: HWY_DYNAMIC_DISPATCH(ToHalves)(numbers, count, halves); return;
    case RowFormat::kBFloat16: HWY_DYNAMIC_DISPATCH(ToBFloats)(numbers, count, halves); return;
    case RowFormat::kInt8: {
      auto* const to = reinterpret_cast<int8_t*>(bytes + kScaleBytes);
      const float scale = HWY_DYNAMIC_DISPATCH(ToNearestRowBytes)(numbers, count, to);
      std::memcpy(bytes, &scale, sizeof(scale));
    }
  }
}

void RoundAtRandom(RowFormat format, const float* numbers, size_t count, uint64_t draws,
                   uint32_t first, std::byte* bytes) {
  auto* const halves = reinterpret_cast<uint16_t*>(bytes);
  switch (format) {
    case RowFormat::kFloat32: std::memcpy(bytes, numbers, count * sizeof(float)); return;
    case RowFormat::kFloat16:
      HWY_DYNAMIC_DISPATCH(ToHalvesAtRandom)(numbers, count, draws, first, halves);
      return;
    case RowFormat::kBFloat16:
      HWY_DYNAMIC_DISPATCH(ToBFloatsAtRandom)(numbers, count, draws, first, halves);
      return;
    case RowFormat::kInt8: {
      auto* const to = reinterpret_cast<int8_t*>(bytes + kScaleBytes);
      const float scale = HWY_DYNAMIC_DISPATCH(ToRandomRowBytes)(numbers, count, draws, first, to);
      std::memcpy(bytes, &scale, sizeof(scale));
    }
  }
}

void ExpandNumbers(RowFormat format, const std::byte* bytes, size_t count, float* numbers) {
  const auto* const halves = reinterpret_cast<const uint16_t*>(bytes);
  switch (format) {
    case RowFormat::kFloat32: std::memcpy(numbers, bytes, count * sizeof(float)); return;
    case RowFormat::kFloat16: HWY_DYNAMIC_DISPATCH(FromHalves)(halves, count, numbers); return;
    case RowFormat::kBFloat16: HWY_DYNAMIC_DISPATCH(FromBFloats)(halves, count, numbers); return;
    case RowFormat::kInt8: {
      float scale = 0;
      std::memcpy(&scale, bytes, sizeof(scale));
      HWY_DYNAMIC_DISPATCH(FromBytes)
      (reinterpret_cast<const int8_t*>(bytes + kScaleBytes), count, scale, numbers);
    }
  }
}

}  // namespace cairn
#endif  // HWY_ONCE
