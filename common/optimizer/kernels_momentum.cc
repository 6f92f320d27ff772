// Plain and momentum SGD.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels_momentum.cc"
#include "hwy/foreach_target.h"  // includes this file once per instruction set
// Highway's rule: before anything else that uses HWY_NAMESPACE.
#include "common/optimizer/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

struct Sgd {
  static constexpr size_t kSlots = 0;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V&, V&, V&, V g) {
    w = hn::NegMulAdd(hn::Set(d, k[2]), g, w);
  }
};

template <bool kNesterov>
struct Momentum {
  static constexpr size_t kSlots = 1;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& m, V&, V&, V g) {
    const auto mu = hn::Set(d, k[3]);
    const auto step = hn::Mul(hn::Set(d, k[2]), g);
    m = hn::MulSub(mu, m, step);
    w = hn::Add(w, kNesterov ? hn::MulSub(mu, m, step) : m);
  }
};

Kernels SgdOfTarget(bool guarded) { return KernelsOf<Sgd>(guarded); }
Kernels MomentumOfTarget(bool nesterov, bool guarded) {
  return nesterov ? KernelsOf<Momentum<true>>(guarded) : KernelsOf<Momentum<false>>(guarded);
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
HWY_EXPORT(SgdOfTarget);
HWY_EXPORT(MomentumOfTarget);

Kernels SgdKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(SgdOfTarget)(guarded); }
Kernels MomentumKernels(bool nesterov, bool guarded) {
  return HWY_DYNAMIC_DISPATCH(MomentumOfTarget)(nesterov, guarded);
}

}  // namespace cairn
#endif  // HWY_ONCE
