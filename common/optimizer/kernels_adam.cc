// The Adam family and Lion.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels_adam.cc"
#include "hwy/foreach_target.h"  // includes this file once per instruction set
// Highway's rule: before anything else that uses HWY_NAMESPACE.
#include "common/optimizer/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

// average + (sample - average) * rest: Keras' form of a moving average.
template <class V>
HWY_INLINE V Moved(V average, V sample, V rest) {
  return hn::MulAdd(hn::Sub(sample, average), rest, average);
}

template <bool kAmsgrad>
struct Adam {
  static constexpr size_t kSlots = kAmsgrad ? 3 : 2;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& m, V& v, V& v_hat, V g) {
    m = Moved(m, g, hn::Set(d, k[3]));
    v = Moved(v, hn::Mul(g, g), hn::Set(d, k[4]));
    if constexpr (kAmsgrad) v_hat = hn::Max(v_hat, v);
    const auto root = hn::Add(hn::Sqrt(kAmsgrad ? v_hat : v), hn::Set(d, k[5]));
    w = hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, k[2]), m), root));
  }
};

struct Adamax {
  static constexpr size_t kSlots = 2;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& m, V& norm, V&, V g) {
    m = Moved(m, g, hn::Set(d, k[3]));
    norm = hn::Max(hn::Mul(hn::Set(d, k[4]), norm), hn::Abs(g));
    const auto divisor = hn::Add(norm, hn::Set(d, k[5]));
    w = hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, k[2]), m), divisor));
  }
};

struct Nadam {
  static constexpr size_t kSlots = 2;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& m, V& v, V&, V g) {
    m = Moved(m, g, hn::Set(d, k[4]));
    v = Moved(v, hn::Mul(g, g), hn::Set(d, k[5]));
    const auto step = hn::MulAdd(hn::Set(d, k[2]), m, hn::Mul(hn::Set(d, k[3]), g));
    const auto root = hn::Sqrt(hn::Mul(v, hn::Set(d, k[6])));
    w = hn::Sub(w, hn::Div(step, hn::Add(root, hn::Set(d, k[7]))));
  }
};

struct Lion {
  static constexpr size_t kSlots = 1;
  template <class D, class V, typename T>
  static HWY_INLINE void Update(D d, const Constants<T>& k, V& w, V& m, V&, V&, V g) {
    const auto mixed = hn::MulAdd(hn::Set(d, k[3]), m, hn::Mul(hn::Set(d, k[4]), g));
    const auto step = hn::CopySign(hn::Set(d, k[2]), mixed);
    w = hn::Sub(w, hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(d)), step));
    m = hn::MulAdd(hn::Set(d, k[5]), m, hn::Mul(hn::Set(d, k[6]), g));
  }
};

Kernels AdamOfTarget(bool amsgrad, bool guarded) {
  return amsgrad ? KernelsOf<Adam<true>>(guarded) : KernelsOf<Adam<false>>(guarded);
}
Kernels AdamaxOfTarget(bool guarded) { return KernelsOf<Adamax>(guarded); }
Kernels NadamOfTarget(bool guarded) { return KernelsOf<Nadam>(guarded); }
Kernels LionOfTarget(bool guarded) { return KernelsOf<Lion>(guarded); }

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
HWY_EXPORT(AdamOfTarget);
HWY_EXPORT(AdamaxOfTarget);
HWY_EXPORT(NadamOfTarget);
HWY_EXPORT(LionOfTarget);

Kernels AdamKernels(bool amsgrad, bool guarded) {
  return HWY_DYNAMIC_DISPATCH(AdamOfTarget)(amsgrad, guarded);
}
Kernels AdamaxKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(AdamaxOfTarget)(guarded); }
Kernels NadamKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(NadamOfTarget)(guarded); }
Kernels LionKernels(bool guarded) { return HWY_DYNAMIC_DISPATCH(LionOfTarget)(guarded); }

}  // namespace cairn
#endif  // HWY_ONCE
