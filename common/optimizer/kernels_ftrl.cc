// FTRL-proximal (McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013), in
// Keras' form with beta and l2 shrinkage.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels_ftrl.cc"
#include "hwy/foreach_target.h"  // includes this file once per instruction set
// Highway's rule: before anything else that uses HWY_NAMESPACE.
#include <cmath>

#include "common/optimizer/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

template <bool kSquareRoot>
struct Ftrl {
  static constexpr size_t kSlots = 2;

  // accumulator^-learning_rate_power. Any other power than the default is rare, and its difference
  // of two powers wants libm's accuracy.
  template <class D, class V, typename T>
  static HWY_INLINE V Power(D d, V x, T exponent) {
    if constexpr (kSquareRoot) return hn::Sqrt(x);
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(x, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::pow(lanes[i], exponent);
    return hn::Load(d, lanes);
  }

  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& accumulator, V& linear, V&,
                                V g) {
    const auto inverse_rate = hn::Set(d, k[2]);
    const auto l1 = hn::Set(d, k[3]);
    const auto before = Power(d, accumulator, k[6]);
    accumulator = hn::MulAdd(g, g, accumulator);
    const auto after = Power(d, accumulator, k[6]);
    const auto shrunk = hn::MulAdd(hn::Set(d, k[4]), w, g);
    const auto pull = hn::Mul(hn::Sub(after, before), inverse_rate);
    linear = hn::Add(linear, hn::NegMulAdd(pull, w, shrunk));
    const auto clipped = hn::Max(hn::Neg(l1), hn::Min(l1, linear));
    const auto quadratic = hn::MulAdd(after, inverse_rate, hn::Set(d, k[5]));
    // Zero only where the accumulator is still zero: nothing was learned, where Keras has 0 / 0.
    w = hn::IfThenZeroElse(hn::Eq(quadratic, hn::Zero(d)),
                           hn::Div(hn::Sub(clipped, linear), quadratic));
  }
};

Kernels FtrlOfTarget(bool square_root, bool guarded) {
  return square_root ? KernelsOf<Ftrl<true>>(guarded) : KernelsOf<Ftrl<false>>(guarded);
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
HWY_EXPORT(FtrlOfTarget);

Kernels FtrlKernels(bool square_root, bool guarded) {
  return HWY_DYNAMIC_DISPATCH(FtrlOfTarget)(square_root, guarded);
}

}  // namespace cairn
#endif  // HWY_ONCE
