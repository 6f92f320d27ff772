// The loop around every rule. kernels.cc includes this file once per instruction set, hence no
// #pragma once.
#if defined(CAIRN_OPTIMIZER_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_KERNELS_INL_H_
#undef CAIRN_OPTIMIZER_KERNELS_INL_H_
#else
#define CAIRN_OPTIMIZER_KERNELS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "common/optimizer/kernels.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#define CAIRN_FORMULA HWY_INLINE
#include "common/optimizer/formulas-inl.h"
#undef CAIRN_FORMULA

// The operations of formulas-inl.h on vectors of tag D.
template <class D>
struct VectorOps {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;

  HWY_INLINE V Set(T x) const { return hn::Set(d, x); }
  HWY_INLINE V Add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V Sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V Mul(V a, V b) const { return hn::Mul(a, b); }
  HWY_INLINE V Div(V a, V b) const { return hn::Div(a, b); }
  HWY_INLINE V MulAdd(V a, V b, V c) const { return hn::MulAdd(a, b, c); }
  HWY_INLINE V MulSub(V a, V b, V c) const { return hn::MulSub(a, b, c); }
  HWY_INLINE V NegMulAdd(V a, V b, V c) const { return hn::NegMulAdd(a, b, c); }
  HWY_INLINE V Sqrt(V x) const { return hn::Sqrt(x); }
  HWY_INLINE V Abs(V x) const { return hn::Abs(x); }
  HWY_INLINE V Neg(V x) const { return hn::Neg(x); }
  HWY_INLINE V CopySign(V size, V sign) const { return hn::CopySign(size, sign); }
  HWY_INLINE V Max(V a, V b) const { return hn::Max(a, b); }
  HWY_INLINE V Min(V a, V b) const { return hn::Min(a, b); }
  HWY_INLINE V IfGreater(V a, V b, V yes, V no) const {
    return hn::IfThenElse(hn::Gt(a, b), yes, no);
  }
  HWY_INLINE V ZeroIfZero(V test, V x) const {
    return hn::IfThenZeroElse(hn::Eq(test, hn::Zero(d)), x);
  }
  // FTRL takes the difference of two powers, which needs the accuracy of libm.
  HWY_INLINE V Power(V x, T exponent) const {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(x, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::pow(lanes[i], exponent);
    return hn::Load(d, lanes);
  }

  D d;
};

// A copy on the stack: the compiler then knows that stores to values do not change the constants.
template <typename T>
using Constants = std::array<T, kKernelConstants>;

// The arrays of one run of elements. Unused slots are null.
template <typename T>
struct Arrays {
  T* value;
  T* slot0;
  T* slot1;
  T* slot2;
  const T* gradient;
};

// Updates one vector of elements at `i`.
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
  const VectorOps<D> op{d};
  if constexpr (kGuarded) Guard(op, k, w, g);
  Rule::Update(op, k, w, s0, s1, s2, g);
  hn::StoreU(w, d, at.value + i);
  if constexpr (Rule::kSlots > 0) hn::StoreU(s0, d, at.slot0 + i);
  if constexpr (Rule::kSlots > 1) hn::StoreU(s1, d, at.slot1 + i);
  if constexpr (Rule::kSlots > 2) hn::StoreU(s2, d, at.slot2 + i);
}

// Updates as many whole vectors of at most kCap elements as fit in [first, count). Returns their
// end.
template <class Rule, bool kGuarded, size_t kCap, typename T>
HWY_INLINE size_t UpdateCapped(const Constants<T>& k, const Arrays<T>& at, size_t first,
                               size_t count) {
  const hn::CappedTag<T, kCap> d;
  const size_t lanes = hn::Lanes(d);
  for (; first + lanes <= count; first += lanes) UpdateVector<Rule, kGuarded>(d, k, at, first);
  return first;
}

// Updates the tail with narrower vectors of the same instruction set, so that an element's result
// does not depend on its position.
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

// Rows of a large table are cache misses, so they are prefetched this many rows ahead.
constexpr size_t kPrefetchRows = 8;
// Bytes to prefetch per row; the hardware's prefetcher finds the rest.
constexpr size_t kPrefetchBytes = 512;

template <class Rule, bool kGuarded>
void ApplyRows(const float* constants, float* const* rows, size_t row_count, size_t width,
               const float* gradients) {
  constexpr size_t kLineFloats = 64 / sizeof(float);
  const Constants<float> k = CopyConstants(constants);
  const size_t ahead_floats =
      std::min(size_t{1 + Rule::kSlots} * width, size_t{kPrefetchBytes / sizeof(float)});
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
