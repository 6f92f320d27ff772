#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels.cc"
#include "hwy/foreach_target.h"  // includes this file once per instruction set
// Highway's rule: before anything else that uses HWY_NAMESPACE.
#include "common/optimizer/kernels-inl.h"
#include "glog/logging.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

Kernels KernelsOfTarget(const OptimizerLoop& loop) {
  Kernels kernels = {};
  VisitRule(loop, [&](auto rule) { kernels = KernelsOf<decltype(rule)>(loop.guarded); });
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {
HWY_EXPORT(KernelsOfTarget);

Kernels KernelsFor(const OptimizerLoop& loop) {
  CHECK(loop.kind != OptimizerLoop::Kind::kNone) << "this optimizer has no kernels";
  return HWY_DYNAMIC_DISPATCH(KernelsOfTarget)(loop);
}

}  // namespace cairn
#endif  // HWY_ONCE
