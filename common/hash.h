// Fixed 64-bit hashes, equal on every machine and in every version: they decide the placement of
// keys and the contents of fresh rows.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn {

// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014): a bijection of 64-bit words.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Bucket of an embedding key: the top bits of its mixed value, in [0, bucket_count).
// `bucket_count` is a power of two, 1 … 65536.
constexpr uint32_t BucketOfKey(int64_t key, uint32_t bucket_count) {
  return static_cast<uint32_t>(
      (MixBits(static_cast<uint64_t>(key)) >> 48) * static_cast<uint64_t>(bucket_count) >> 16);
}

// The state of 64-bit FNV-1a after no bytes.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325ULL;

// The state of FNV-1a after `bytes` that follow those of `state`.
constexpr uint64_t FnvAfter(uint64_t state, absl::string_view bytes) {
  for (const char c : bytes) {
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return state;
}

// 64-bit FNV-1a of the bytes, then mixed.
constexpr uint64_t HashBytes(absl::string_view bytes) {
  return MixBits(FnvAfter(kFnvStart, bytes));
}

}  // namespace cairn
