// Rules that divide by the root of summed or averaged squares: Adagrad, Adadelta, RMSProp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels_adagrad.cc"
#include "hwy/foreach_target.h"  // includes this file once per instruction set
// Highway's rule: before anything else that uses HWY_NAMESPACE.
#include "common/optimizer/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

struct Adagrad {
  static constexpr size_t kSlots = 1;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& accumulator, V&, V&, V g) {
    accumulator = hn::MulAdd(g, g, accumulator);
    const auto root = hn::Sqrt(hn::Add(accumulator, hn::Set(d, k[3])));
    w = hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, k[2]), g), root));
  }
};

struct Adadelta {
  static constexpr size_t kSlots = 2;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& squares, V& deltas, V&, V g) {
    const auto rho = hn::Set(d, k[3]);
    const auto rest = hn::Set(d, k[4]);
    const auto epsilon = hn::Set(d, k[5]);
    squares = hn::MulAdd(rho, squares, hn::Mul(rest, hn::Mul(g, g)));
    const auto delta = hn::Div(hn::Mul(hn::Sqrt(hn::Add(deltas, epsilon)), g),
                               hn::Sqrt(hn::Add(squares, epsilon)));
    deltas = hn::MulAdd(rho, deltas, hn::Mul(rest, hn::Mul(delta, delta)));
    w = hn::NegMulAdd(hn::Set(d, k[2]), delta, w);
  }
};

template <bool kMomentum, bool kCentered>
struct Rmsprop {
  static constexpr size_t kSlots = 1 + (kMomentum ? 1 : 0) + (kCentered ? 1 : 0);
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& velocity, V& s1, V& s2, V g) {
    const auto rho = hn::Set(d, k[3]);
    const auto rest = hn::Set(d, k[4]);
    velocity = hn::MulAdd(rho, velocity, hn::Mul(rest, hn::Mul(g, g)));
    auto variance = velocity;
    if constexpr (kCentered) {
      V& average = kMomentum ? s2 : s1;
      average = hn::MulAdd(rho, average, hn::Mul(rest, g));
      // Never negative but for rounding, where Keras takes the root of a negative number.
      variance = hn::Max(hn::Zero(d), hn::NegMulAdd(average, average, velocity));
    }
    const auto root = hn::Sqrt(hn::Add(variance, hn::Set(d, k[5])));
    const auto step = hn::Div(hn::Mul(hn::Set(d, k[2]), g), root);
    if constexpr (kMomentum) {
      s1 = hn::MulAdd(hn::Set(d, k[6]), s1, step);
      w = hn::Sub(w, s1);
    } else {
      w = hn::Sub(w, step);
    }
  }
};

Kernels AdagradOfTarget(bool guarded) { return KernelsOf<Adagrad>(guarded); }
Kernels AdadeltaOfTarget(bool guarded) { return KernelsOf<Adadelta>(guarded); }
Kernels RmspropOfTarget(bool momentum, bool centered, bool guarded) {
  if (momentum) {
    return centered ? KernelsOf<Rmsprop<true, true>>(guarded)
                    : KernelsOf<Rmsprop<true, false>>(guarded);
  }
  return centered ? KernelsOf<Rmsprop<false, true>>(guarded)
                  : KernelsOf<Rmsprop<false, false>>(guarded);
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
HWY_EXPORT(AdagradOfTarget);
HWY_EXPORT(AdadeltaOfTarget);
HWY_EXPORT(RmspropOfTarget);

Kernels AdagradKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(AdagradOfTarget)(guarded); }
Kernels AdadeltaKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(AdadeltaOfTarget)(guarded); }
Kernels RmspropKernels(bool momentum, bool centered, bool guarded) {
  return HWY_DYNAMIC_DISPATCH(RmspropOfTarget)(momentum, centered, guarded);
}

}  // namespace cairn
#endif  // HWY_ONCE
