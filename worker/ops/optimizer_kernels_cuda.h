// The optimizers' loops as bodies for GPUs, with the formulas of the CPU's kernels
// (common/optimizer/formulas-inl.h). Results differ from those of a CPU that fuses multiply and add
// in two cases only: the last bits of FTRL with another power than -0.5, and the direction in which
// Lion moves when the gradient is NaN, because it moves by a sign.
//
// An update reads and writes each array once and computes little, so memory bounds it: where every
// pointer is aligned, a thread moves 16 bytes of each array at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "worker/ops/kernels_cuda.h"

namespace cairn::kernels {

#define CAIRN_FORMULA CAIRN_ANYWHERE
#include "common/optimizer/formulas-inl.h"
#undef CAIRN_FORMULA

// The operations of formulas-inl.h on elements of type T: float or double.
template <typename T>
struct ScalarOps {
  static constexpr bool kIsFloat = sizeof(T) == sizeof(float);

  CAIRN_ANYWHERE T Set(T x) const { return x; }
  CAIRN_ANYWHERE T Add(T a, T b) const { return a + b; }
  CAIRN_ANYWHERE T Sub(T a, T b) const { return a - b; }
  CAIRN_ANYWHERE T Mul(T a, T b) const { return a * b; }
  CAIRN_ANYWHERE T Div(T a, T b) const { return a / b; }
  CAIRN_ANYWHERE T MulAdd(T a, T b, T c) const {
    if constexpr (kIsFloat) return fmaf(a, b, c);
    return fma(a, b, c);
  }
  CAIRN_ANYWHERE T MulSub(T a, T b, T c) const { return MulAdd(a, b, -c); }
  CAIRN_ANYWHERE T NegMulAdd(T a, T b, T c) const { return MulAdd(-a, b, c); }
  CAIRN_ANYWHERE T Sqrt(T x) const {
    if constexpr (kIsFloat) return sqrtf(x);
    return sqrt(x);
  }
  CAIRN_ANYWHERE T Abs(T x) const {
    if constexpr (kIsFloat) return fabsf(x);
    return fabs(x);
  }
  CAIRN_ANYWHERE T Neg(T x) const { return -x; }
  CAIRN_ANYWHERE T CopySign(T size, T sign) const {
    if constexpr (kIsFloat) return copysignf(size, sign);
    return copysign(size, sign);
  }
  // Returns `b` if either is NaN.
  CAIRN_ANYWHERE T Max(T a, T b) const { return a > b ? a : b; }
  CAIRN_ANYWHERE T Min(T a, T b) const { return a < b ? a : b; }
  CAIRN_ANYWHERE T IfGreater(T a, T b, T yes, T no) const { return a > b ? yes : no; }
  CAIRN_ANYWHERE T ZeroIfZero(T test, T x) const { return test == 0 ? T{0} : x; }
  // Computes in double: FTRL takes the difference of two powers, and CUDA's powf is off by up to 4
  // ulp.
  CAIRN_ANYWHERE T Power(T x, T exponent) const {
    return static_cast<T>(pow(static_cast<double>(x), static_cast<double>(exponent)));
  }
};

// The constants of an update, and whether the gradient is clipped or the weight decays.
template <typename T>
struct OptimizerConstants {
  static constexpr int kCount = 8;

  T values[kCount];
  bool guarded;
};

// The arrays of one variable. Slots that a rule does not have are null.
template <typename T>
struct OptimizerArrays {
  T* value;
  T* slots[3];
  const T* gradient;
};

// `kCount` elements, aligned so that one instruction moves them.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) OptimizerPack {
  T x[kCount];
};

// Updates pack `pack` of the variable and its slots with pack `from` of the gradient.
template <class Rule, int kPack, typename T>
CAIRN_ANYWHERE void UpdatePack(const OptimizerConstants<T>& constants, const OptimizerArrays<T>& at,
                               uint64_t pack, uint64_t from) {
  using P = OptimizerPack<T, kPack>;
  P w = reinterpret_cast<const P*>(at.value)[pack];
  P slots[Rule::kSlots + 1];  // no array is empty
  for (int s = 0; s < Rule::kSlots; ++s) slots[s] = reinterpret_cast<const P*>(at.slots[s])[pack];
  const P gradient = reinterpret_cast<const P*>(at.gradient)[from];
  for (int i = 0; i < kPack; ++i) {
    const ScalarOps<T> op;
    T s0 = 0, s1 = 0, s2 = 0;
    if constexpr (Rule::kSlots > 0) s0 = slots[0].x[i];
    if constexpr (Rule::kSlots > 1) s1 = slots[1].x[i];
    if constexpr (Rule::kSlots > 2) s2 = slots[2].x[i];
    T g = gradient.x[i];
    if (constants.guarded) Guard(op, constants.values, w.x[i], g);
    Rule::Update(op, constants.values, w.x[i], s0, s1, s2, g);
    if constexpr (Rule::kSlots > 0) slots[0].x[i] = s0;
    if constexpr (Rule::kSlots > 1) slots[1].x[i] = s1;
    if constexpr (Rule::kSlots > 2) slots[2].x[i] = s2;
  }
  reinterpret_cast<P*>(at.value)[pack] = w;
  for (int s = 0; s < Rule::kSlots; ++s) reinterpret_cast<P*>(at.slots[s])[pack] = slots[s];
}

// The number of variables in one launch. With their table, a kernel's arguments stay below the 4
// KiB that every driver accepts.
inline constexpr uint32_t kVariablesAtOnce = 64;

// i: pack of elements, of one variable after the other; the last pack of each may be a part of one.
template <class Rule, int kPack, typename T>
struct UpdateElementsBody {
  OptimizerConstants<T> constants;
  uint32_t variables;
  OptimizerArrays<T> at[kVariablesAtOnce];
  uint64_t counts[kVariablesAtOnce];  // elements
  uint64_t ends[kVariablesAtOnce];    // packs of this variable and of those before it
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    uint32_t v = 0;
    for (uint32_t last = variables - 1; v < last;) {
      const uint32_t middle = (v + last) / 2;
      if (i < ends[middle]) {
        last = middle;
      } else {
        v = middle + 1;
      }
    }
    const OptimizerArrays<T> own = at[v];
    const uint64_t pack = v == 0 ? i : i - ends[v - 1];
    const uint64_t first = pack * kPack;
    if (first + kPack <= counts[v]) {
      UpdatePack<Rule, kPack>(constants, own, pack, pack);
    } else {
      for (uint64_t e = first; e < counts[v]; ++e) UpdatePack<Rule, 1>(constants, own, e, e);
    }
  }
};

// i: row that has a gradient x pack of its elements.
template <class Rule, int kPack, typename T>
struct UpdateRowsBody {
  OptimizerConstants<T> constants;
  OptimizerArrays<T> at;
  const int64_t* rows;
  uint64_t packs;  // packs of a row
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / static_cast<Index>(packs), pack = i % static_cast<Index>(packs);
    UpdatePack<Rule, kPack>(constants, at, static_cast<uint64_t>(rows[row]) * packs + pack, i);
  }
};

}  // namespace cairn::kernels
