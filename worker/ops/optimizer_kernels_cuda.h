// The optimizers' loops as bodies for GPUs: the formulas of common/optimizer/kernels_*.cc,
// operation by operation and fused where those are. What is a processor's own: the last bits of
// FTRL with another power than -0.5, and where Lion goes when the gradient is NaN, for it moves by
// a sign.
//
// An update reads and writes each array once and computes little, so memory bounds it: where every
// pointer is aligned, a thread moves 16 bytes of each array at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "worker/ops/kernels_cuda.h"

namespace cairn::kernels {

// a * b + c, rounded once.
CAIRN_ANYWHERE inline float MulAdd(float a, float b, float c) { return fmaf(a, b, c); }
CAIRN_ANYWHERE inline double MulAdd(double a, double b, double c) { return fma(a, b, c); }
CAIRN_ANYWHERE inline float Root(float x) { return sqrtf(x); }
CAIRN_ANYWHERE inline double Root(double x) { return sqrt(x); }
CAIRN_ANYWHERE inline float Absolute(float x) { return fabsf(x); }
CAIRN_ANYWHERE inline double Absolute(double x) { return fabs(x); }
CAIRN_ANYWHERE inline float WithSignOf(float size, float x) { return copysignf(size, x); }
CAIRN_ANYWHERE inline double WithSignOf(double size, double x) { return copysign(size, x); }
// Through double: FTRL takes the difference of two powers, and CUDA's powf is off by up to 4 ulp.
CAIRN_ANYWHERE inline float Power(float x, float exponent) {
  return static_cast<float>(pow(static_cast<double>(x), static_cast<double>(exponent)));
}
CAIRN_ANYWHERE inline double Power(double x, double exponent) { return pow(x, exponent); }
// Where one of them is NaN, `b`.
template <typename T>
CAIRN_ANYWHERE T Larger(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
CAIRN_ANYWHERE T Smaller(T a, T b) {
  return a < b ? a : b;
}
// average + (sample - average) * rest
template <typename T>
CAIRN_ANYWHERE T Moved(T average, T sample, T rest) {
  return MulAdd(sample - average, rest, average);
}

// One element's variable and slots; those that a rule does not have are 0.
template <typename T>
struct OptimizerElement {
  T w, s0, s1, s2;
};

// Rules: `k` are UpdateStep's constants, named beside each function of common/optimizer/kernels.h.

struct SgdRule {
  static constexpr int kSlots = 0;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    x.w = MulAdd(-k[2], g, x.w);
  }
};

template <bool kNesterov>
struct MomentumRule {
  static constexpr int kSlots = 1;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    const T step = k[2] * g;
    x.s0 = MulAdd(k[3], x.s0, -step);
    x.w += kNesterov ? MulAdd(k[3], x.s0, -step) : x.s0;
  }
};

struct AdagradRule {
  static constexpr int kSlots = 1;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    x.s0 = MulAdd(g, g, x.s0);
    x.w -= k[2] * g / Root(x.s0 + k[3]);
  }
};

struct AdadeltaRule {
  static constexpr int kSlots = 2;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    const T rho = k[3], rest = k[4], epsilon = k[5];
    x.s0 = MulAdd(rho, x.s0, rest * (g * g));
    const T delta = Root(x.s1 + epsilon) * g / Root(x.s0 + epsilon);
    x.s1 = MulAdd(rho, x.s1, rest * (delta * delta));
    x.w = MulAdd(-k[2], delta, x.w);
  }
};

template <bool kMomentum, bool kCentered>
struct RmspropRule {
  static constexpr int kSlots = 1 + (kMomentum ? 1 : 0) + (kCentered ? 1 : 0);
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    const T rho = k[3], rest = k[4];
    x.s0 = MulAdd(rho, x.s0, rest * (g * g));
    T variance = x.s0;
    if constexpr (kCentered) {
      T& average = kMomentum ? x.s2 : x.s1;
      average = MulAdd(rho, average, rest * g);
      variance = Larger(T{0}, MulAdd(-average, average, x.s0));
    }
    const T step = k[2] * g / Root(variance + k[5]);
    if constexpr (kMomentum) {
      x.s1 = MulAdd(k[6], x.s1, step);
      x.w -= x.s1;
    } else {
      x.w -= step;
    }
  }
};

template <bool kAmsgrad>
struct AdamRule {
  static constexpr int kSlots = kAmsgrad ? 3 : 2;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    x.s0 = Moved(x.s0, g, k[3]);
    x.s1 = Moved(x.s1, g * g, k[4]);
    if constexpr (kAmsgrad) x.s2 = Larger(x.s2, x.s1);
    x.w -= k[2] * x.s0 / (Root(kAmsgrad ? x.s2 : x.s1) + k[5]);
  }
};

struct AdamaxRule {
  static constexpr int kSlots = 2;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    x.s0 = Moved(x.s0, g, k[3]);
    x.s1 = Larger(k[4] * x.s1, Absolute(g));
    x.w -= k[2] * x.s0 / (x.s1 + k[5]);
  }
};

struct NadamRule {
  static constexpr int kSlots = 2;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    x.s0 = Moved(x.s0, g, k[4]);
    x.s1 = Moved(x.s1, g * g, k[5]);
    const T step = MulAdd(k[2], x.s0, k[3] * g);
    x.w -= step / (Root(x.s1 * k[6]) + k[7]);
  }
};

struct LionRule {
  static constexpr int kSlots = 1;
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    const T mixed = MulAdd(k[3], x.s0, k[4] * g);
    x.w -= mixed == 0 ? T{0} : WithSignOf(k[2], mixed);
    x.s0 = MulAdd(k[5], x.s0, k[6] * g);
  }
};

template <bool kSquareRoot>
struct FtrlRule {
  static constexpr int kSlots = 2;
  template <typename T>
  CAIRN_ANYWHERE static T PowerOf(T x, T exponent) {
    if constexpr (kSquareRoot) return Root(x);
    return Power(x, exponent);
  }
  template <typename T>
  CAIRN_ANYWHERE static void Update(const T* k, OptimizerElement<T>& x, T g) {
    const T inverse_rate = k[2], l1 = k[3];
    const T before = PowerOf(x.s0, k[6]);
    x.s0 = MulAdd(g, g, x.s0);
    const T after = PowerOf(x.s0, k[6]);
    const T shrunk = MulAdd(k[4], x.w, g);
    const T pull = (after - before) * inverse_rate;
    x.s1 += MulAdd(-pull, x.w, shrunk);
    const T clipped = Larger(-l1, Smaller(l1, x.s1));
    const T quadratic = MulAdd(after, inverse_rate, k[5]);
    x.w = quadratic == 0 ? T{0} : (clipped - x.s1) / quadratic;
  }
};

// What an update works on. Slots that a rule does not have are null.
template <typename T>
struct OptimizerArrays {
  static constexpr int kConstants = 8;

  T constants[kConstants];
  bool guarded;
  T* value;
  T* slots[3];
  const T* gradient;
};

// `kCount` elements that are moved by one instruction, aligned as that needs.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) OptimizerPack {
  T x[kCount];
};

// Updates pack `pack` of the variable and its slots with pack `from` of the gradient.
template <class Rule, int kPack, typename T>
CAIRN_ANYWHERE void UpdatePack(const OptimizerArrays<T>& at, uint64_t pack, uint64_t from) {
  using P = OptimizerPack<T, kPack>;
  P w = reinterpret_cast<const P*>(at.value)[pack];
  P slots[Rule::kSlots + 1];  // no array is empty
  for (int s = 0; s < Rule::kSlots; ++s) slots[s] = reinterpret_cast<const P*>(at.slots[s])[pack];
  const P gradient = reinterpret_cast<const P*>(at.gradient)[from];
  for (int i = 0; i < kPack; ++i) {
    OptimizerElement<T> x{w.x[i], 0, 0, 0};
    if constexpr (Rule::kSlots > 0) x.s0 = slots[0].x[i];
    if constexpr (Rule::kSlots > 1) x.s1 = slots[1].x[i];
    if constexpr (Rule::kSlots > 2) x.s2 = slots[2].x[i];
    T g = gradient.x[i];
    if (at.guarded) {
      const T bound = at.constants[0];
      g = g > bound ? bound : g;  // NaN stays
      g = g < -bound ? -bound : g;
      x.w = MulAdd(-x.w, at.constants[1], x.w);
    }
    Rule::Update(at.constants, x, g);
    w.x[i] = x.w;
    if constexpr (Rule::kSlots > 0) slots[0].x[i] = x.s0;
    if constexpr (Rule::kSlots > 1) slots[1].x[i] = x.s1;
    if constexpr (Rule::kSlots > 2) slots[2].x[i] = x.s2;
  }
  reinterpret_cast<P*>(at.value)[pack] = w;
  for (int s = 0; s < Rule::kSlots; ++s) reinterpret_cast<P*>(at.slots[s])[pack] = slots[s];
}

// i: pack of elements; the last may be a part of one.
template <class Rule, int kPack, typename T>
struct UpdateElementsBody {
  OptimizerArrays<T> at;
  uint64_t count;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const uint64_t first = static_cast<uint64_t>(i) * kPack;
    if (first + kPack <= count) {
      UpdatePack<Rule, kPack>(at, i, i);
    } else {
      for (uint64_t e = first; e < count; ++e) UpdatePack<Rule, 1>(at, e, e);
    }
  }
};

// i: row that has a gradient x pack of its elements.
template <class Rule, int kPack, typename T>
struct UpdateRowsBody {
  OptimizerArrays<T> at;
  const int64_t* rows;
  uint64_t packs;  // a row
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / static_cast<Index>(packs), pack = i % static_cast<Index>(packs);
    UpdatePack<Rule, kPack>(at, static_cast<uint64_t>(rows[row]) * packs + pack, i);
  }
};

}  // namespace cairn::kernels
