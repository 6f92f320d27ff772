// Loops over float32 lanes: whole vectors, then the rest one by one. Included once per Highway
// target, after hwy/highway.h.
#if defined(CAIRN_WORKER_OPS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_WORKER_OPS_LANES_INL_H_
#undef CAIRN_WORKER_OPS_LANES_INL_H_
#else
#define CAIRN_WORKER_OPS_LANES_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, i) for every whole vector at i, then with four lanes, then with one. The body
// loads and stores only at i.
template <typename Body>
HWY_INLINE void ForLanes(size_t count, Body&& body) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(full, i);
  if (hn::Lanes(four) < lanes) {
    for (; i + hn::Lanes(four) <= count; i += hn::Lanes(four)) body(four, i);
  }
  for (; i < count; ++i) body(one, i);
}

// The sum of body(tag, i) over all i; the body returns a vector of its tag. The order of addition
// depends only on `count` and the vector width.
template <typename Body>
HWY_INLINE float SumLanes(size_t count, Body&& body) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  float total = 0;
  size_t i = 0;
  if (lanes <= count) {
    auto sum = hn::Zero(full);
    for (; i + lanes <= count; i += lanes) sum = hn::Add(sum, body(full, i));
    total = hn::GetLane(hn::SumOfLanes(full, sum));
  }
  if (hn::Lanes(four) < lanes) {
    for (; i + hn::Lanes(four) <= count; i += hn::Lanes(four)) {
      total += hn::GetLane(hn::SumOfLanes(four, body(four, i)));
    }
  }
  for (; i < count; ++i) total += hn::GetLane(body(one, i));
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
