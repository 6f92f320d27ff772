// The loop around every rule. Included once per instruction set by the kernels_*.cc files, between
// HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE of its own, hence no #pragma once.
#if defined(CAIRN_OPTIMIZER_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_KERNELS_INL_H_
#undef CAIRN_OPTIMIZER_KERNELS_INL_H_
#else
#define CAIRN_OPTIMIZER_KERNELS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/optimizer/kernels.h"
#include "common/optimizer/optimizer.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A copy on the stack: the compiler then knows that stores to values do not change the constants.
template <typename T>
using Constants = std::array<T, UpdateStep::kConstants>;

// The arrays of one run of elements. Unused slots are null.
template <typename T>
struct Arrays {
  T* value;
  T* slot0;
  T* slot1;
  T* slot2;
  const T* gradient;
};

// One vector of elements at `i`. A Rule has `static constexpr size_t kSlots` and
//   template <class D, class V, typename T>
//   static void Update(D d, const Constants<T>& k, V& w, V& s0, V& s1, V& s2, V g);
template <class Rule, bool kGuarded, class D, typename T>
HWY_INLINE void UpdateVector(D d, const Constants<T>& k, const Arrays<T>& at, size_t i) {
  auto w = hn::LoadU(d, at.value + i);
  auto g = hn::LoadU(d, at.gradient + i);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  if constexpr (Rule::kSlots > 0) s0 = hn::LoadU(d, at.slot0 + i);
  if constexpr (Rule::kSlots > 1) s1 = hn::LoadU(d, at.slot1 + i);
  if constexpr (Rule::kSlots > 2) s2 = hn::LoadU(d, at.slot2 + i);
  if constexpr (kGuarded) {
    const auto bound = hn::Set(d, k[0]);
    // Not Min and Max, which return either operand for NaN, by instruction set: NaN stays NaN.
    g = hn::IfThenElse(hn::Gt(g, bound), bound, g);
    g = hn::IfThenElse(hn::Lt(g, hn::Neg(bound)), hn::Neg(bound), g);
    w = hn::NegMulAdd(w, hn::Set(d, k[1]), w);
  }
  Rule::Update(d, k, w, s0, s1, s2, g);
  hn::StoreU(w, d, at.value + i);
  if constexpr (Rule::kSlots > 0) hn::StoreU(s0, d, at.slot0 + i);
  if constexpr (Rule::kSlots > 1) hn::StoreU(s1, d, at.slot1 + i);
  if constexpr (Rule::kSlots > 2) hn::StoreU(s2, d, at.slot2 + i);
}

// As many whole vectors of at most kCap elements as fit into [first, count). Returns their end.
template <class Rule, bool kGuarded, size_t kCap, typename T>
HWY_INLINE size_t UpdateCapped(const Constants<T>& k, const Arrays<T>& at, size_t first,
                               size_t count) {
  const hn::CappedTag<T, kCap> d;
  const size_t lanes = hn::Lanes(d);
  for (; first + lanes <= count; first += lanes) UpdateVector<Rule, kGuarded>(d, k, at, first);
  return first;
}

// The tail goes through narrower vectors of the same instruction set, so an element's result does
// not depend on where in an array it stands.
template <class Rule, bool kGuarded, typename T>
HWY_INLINE void UpdateAll(const Constants<T>& k, const Arrays<T>& at, size_t count) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) UpdateVector<Rule, kGuarded>(d, k, at, i);
  if (i == count) return;
  i = UpdateCapped<Rule, kGuarded, 8>(k, at, i, count);
  i = UpdateCapped<Rule, kGuarded, 4>(k, at, i, count);
  UpdateCapped<Rule, kGuarded, 1>(k, at, i, count);
}

template <typename T>
HWY_INLINE Constants<T> CopyConstants(const T* constants) {
  Constants<T> copy;
  std::copy_n(constants, copy.size(), copy.begin());
  return copy;
}

template <class Rule, bool kGuarded, typename T>
void Apply(const T* constants, T* value, T* const* slots, const T* gradient, size_t count) {
  const Constants<T> k = CopyConstants(constants);
  const Arrays<T> at{value, Rule::kSlots > 0 ? slots[0] : nullptr,
                     Rule::kSlots > 1 ? slots[1] : nullptr, Rule::kSlots > 2 ? slots[2] : nullptr,
                     gradient};
  UpdateAll<Rule, kGuarded>(k, at, count);
}

// Rows of a big table are cache misses: ask for them this many rows before their turn.
constexpr size_t kPrefetchRows = 8;
// Longer rows are found by the hardware's own prefetcher.
constexpr size_t kPrefetchBytes = 512;

template <class Rule, bool kGuarded>
void ApplyRows(const float* constants, float* const* rows, size_t row_count, size_t width,
               const float* gradients) {
  constexpr size_t kLineFloats = 64 / sizeof(float);
  const Constants<float> k = CopyConstants(constants);
  const size_t ahead_floats =
      std::min((1 + Rule::kSlots) * width, size_t{kPrefetchBytes / sizeof(float)});
  for (size_t r = 0; r < row_count; ++r) {
    if (r + kPrefetchRows < row_count) {
      const float* next = rows[r + kPrefetchRows];
      for (size_t i = 0; i < ahead_floats; i += kLineFloats) hwy::Prefetch(next + i);
    }
    float* value = rows[r];
    const Arrays<float> at{value, Rule::kSlots > 0 ? value + width : nullptr,
                           Rule::kSlots > 1 ? value + 2 * width : nullptr,
                           Rule::kSlots > 2 ? value + 3 * width : nullptr, gradients + r * width};
    UpdateAll<Rule, kGuarded>(k, at, width);
  }
}

template <class Rule>
Kernels KernelsOf(bool guarded) {
  if (guarded) {
    return {&Apply<Rule, true, float>, &Apply<Rule, true, double>, &ApplyRows<Rule, true>};
  }
  return {&Apply<Rule, false, float>, &Apply<Rule, false, double>, &ApplyRows<Rule, false>};
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#endif  // per target
