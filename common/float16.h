// The conversions of dtype.h as constant expressions, which also run on GPUs.
#pragma once

#include <bit>
#include <cstdint>

namespace cairn {

constexpr uint16_t EncodeBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // A NaN whose payload is in the lower half must not round to infinity.
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

constexpr float DecodeBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t EncodeFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // NaN, quiet
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and above round to infinity
  } else if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the last kept bit with float32's rounding, to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  } else {
    // Exponent bias 127 to 15, then round to nearest even at bit 13.
    const uint32_t biased = magnitude - (112u << 23);
    half = (biased + 0xfffu + ((biased >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

constexpr float DecodeFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  uint32_t wide = 0;
  if (magnitude >= 0x7c00u) {
    wide = 0x7f800000u | ((magnitude & 0x3ffu) << 13);  // infinity, NaN
  } else if (magnitude >= 0x0400u) {
    wide = (magnitude << 13) + (112u << 23);
  } else {
    // Subnormal: units of 2^-24, exact in float32.
    wide = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | wide);
}

}  // namespace cairn
