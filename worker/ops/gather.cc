#include "worker/ops/gather.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/ops/gather.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "worker/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

// A width fixed at compile time unrolls the copy of a row; 0 takes any width.
template <size_t kWidth>
HWY_INLINE void GatherFixed(const float* table, size_t width, const int32_t* positions,
                            size_t count, float* out, size_t out_stride) {
  const size_t floats = kWidth == 0 ? width : kWidth;
  for (size_t r = 0; r < count; ++r, out += out_stride) {
    const float* from = table + static_cast<size_t>(positions[r]) * floats;
    ForLanes(floats,
             [&](auto d, size_t i) HWY_ATTR { hn::StoreU(hn::LoadU(d, from + i), d, out + i); });
  }
}

template <size_t kWidth>
HWY_INLINE int32_t SumFixed(const float* d_out, size_t stride, size_t width,
                            const int32_t* positions, size_t count, float* sums, int32_t fresh) {
  const size_t floats = kWidth == 0 ? width : kWidth;
  for (size_t r = 0; r < count; ++r, d_out += stride) {
    float* to = sums + static_cast<size_t>(positions[r]) * floats;
    if (positions[r] == fresh) {
      ++fresh;
      ForLanes(floats,
               [&](auto d, size_t i) HWY_ATTR { hn::StoreU(hn::LoadU(d, d_out + i), d, to + i); });
    } else {
      ForLanes(floats, [&](auto d, size_t i) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, d_out + i)), d, to + i);
      });
    }
  }
  return fresh;
}

void GatherKernel(const float* table, size_t width, const int32_t* positions, size_t count,
                  float* out, size_t out_stride) {
  switch (width) {
    case 1: return GatherFixed<1>(table, width, positions, count, out, out_stride);
    case 8: return GatherFixed<8>(table, width, positions, count, out, out_stride);
    case 16: return GatherFixed<16>(table, width, positions, count, out, out_stride);
    case 32: return GatherFixed<32>(table, width, positions, count, out, out_stride);
    default: return GatherFixed<0>(table, width, positions, count, out, out_stride);
  }
}

int32_t SumByPositionKernel(const float* d_out, size_t stride, size_t width,
                            const int32_t* positions, size_t count, float* sums, int32_t stored) {
  switch (width) {
    case 1: return SumFixed<1>(d_out, stride, width, positions, count, sums, stored);
    case 8: return SumFixed<8>(d_out, stride, width, positions, count, sums, stored);
    case 16: return SumFixed<16>(d_out, stride, width, positions, count, sums, stored);
    case 32: return SumFixed<32>(d_out, stride, width, positions, count, sums, stored);
    default: return SumFixed<0>(d_out, stride, width, positions, count, sums, stored);
  }
}

void DotsKernel(const float* a, const int32_t* a_positions, const float* b,
                const int32_t* b_positions, size_t width, size_t count, float* out) {
  for (size_t r = 0; r < count; ++r) {
    const float* x = a + static_cast<size_t>(a_positions[r]) * width;
    const float* y = b + static_cast<size_t>(b_positions[r]) * width;
    out[r] = SumLanes(width, [&](auto d, size_t i) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i));
    });
  }
}

void SumScaledKernel(const float* table, const int32_t* from, const float* scale, const int32_t* to,
                     size_t width, size_t count, float* sums) {
  int32_t fresh = 0;
  for (size_t r = 0; r < count; ++r) {
    const float* x = table + static_cast<size_t>(from[r]) * width;
    float* sum = sums + static_cast<size_t>(to[r]) * width;
    if (to[r] == fresh) {
      ++fresh;
      ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
        hn::StoreU(hn::Mul(hn::Set(d, scale[r]), hn::LoadU(d, x + i)), d, sum + i);
      });
    } else {
      ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
        const auto old = hn::LoadU(d, sum + i);
        hn::StoreU(hn::MulAdd(hn::Set(d, scale[r]), hn::LoadU(d, x + i), old), d, sum + i);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(GatherKernel);
HWY_EXPORT(SumByPositionKernel);
HWY_EXPORT(DotsKernel);
HWY_EXPORT(SumScaledKernel);

void GatherRows(const float* table, size_t width, const int32_t* positions, size_t count,
                float* out, size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(GatherKernel)(table, width, positions, count, out, out_stride);
}

int32_t SumRowsByPosition(const float* d_out, size_t d_out_stride, size_t width,
                          const int32_t* positions, size_t count, float* sums, int32_t stored) {
  return HWY_DYNAMIC_DISPATCH(SumByPositionKernel)(d_out, d_out_stride, width, positions, count,
                                                   sums, stored);
}

void DotsByPosition(const float* a, const int32_t* a_positions, const float* b,
                    const int32_t* b_positions, size_t width, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(DotsKernel)(a, a_positions, b, b_positions, width, count, out);
}

void SumScaledRowsByPosition(const float* table, const int32_t* from, const float* scale,
                             const int32_t* to, size_t width, size_t count, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumScaledKernel)(table, from, scale, to, width, count, sums);
}

}  // namespace cairn
#endif  // HWY_ONCE
