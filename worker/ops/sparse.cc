#include "worker/ops/sparse.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/ops/sparse.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "worker/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

// Keeps four vectors of a row of y in registers while it adds the row's entries; then single
// vectors, then single columns.
HWY_INLINE void SparseRowTimesDense(const CsrView& x, int64_t begin, int64_t end, const float* w,
                                    size_t width, float* y) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * lanes <= width; at += 4 * lanes) {
    auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
    for (int64_t n = begin; n < end; ++n) {
      const float* row = w + static_cast<size_t>(x.columns[n]) * width + at;
      const auto value = hn::Set(d, x.values[n]);
      a = hn::MulAdd(value, hn::LoadU(d, row), a);
      b = hn::MulAdd(value, hn::LoadU(d, row + lanes), b);
      c = hn::MulAdd(value, hn::LoadU(d, row + 2 * lanes), c);
      e = hn::MulAdd(value, hn::LoadU(d, row + 3 * lanes), e);
    }
    hn::StoreU(a, d, y + at);
    hn::StoreU(b, d, y + at + lanes);
    hn::StoreU(c, d, y + at + 2 * lanes);
    hn::StoreU(e, d, y + at + 3 * lanes);
  }
  ForLanes(width - at, [&](auto tag, size_t i) HWY_ATTR {
    auto sum = hn::Zero(tag);
    for (int64_t n = begin; n < end; ++n) {
      const float* row = w + static_cast<size_t>(x.columns[n]) * width + at;
      sum = hn::MulAdd(hn::Set(tag, x.values[n]), hn::LoadU(tag, row + i), sum);
    }
    hn::StoreU(sum, tag, y + at + i);
  });
}

// For one output: two sums, so that an addition does not wait for the previous one.
HWY_INLINE float SparseRowTimesVector(const CsrView& x, int64_t begin, int64_t end,
                                      const float* w) {
  float even = 0, odd = 0;
  int64_t n = begin;
  for (; n + 2 <= end; n += 2) {
    even += x.values[n] * w[x.columns[n]];
    odd += x.values[n + 1] * w[x.columns[n + 1]];
  }
  if (n < end) even += x.values[n] * w[x.columns[n]];
  return even + odd;
}

void SparseTimesDenseKernel(const CsrView& x, const float* w, size_t width, float* y) {
  for (size_t r = 0; r < x.rows; ++r) {
    const int64_t begin = x.row_offsets[r], end = x.row_offsets[r + 1];
    if (width == 1) {
      y[r] = SparseRowTimesVector(x, begin, end, w);
    } else {
      SparseRowTimesDense(x, begin, end, w, width, y + r * width);
    }
  }
}

void SparseTransposedKernel(const CsrView& x, const float* d_y, size_t width, float* d_w) {
  for (size_t r = 0; r < x.rows; ++r) {
    const float* from = d_y + r * width;
    for (int64_t n = x.row_offsets[r]; n < x.row_offsets[r + 1]; ++n) {
      float* to = d_w + static_cast<size_t>(x.columns[n]) * width;
      const float value = x.values[n];
      if (width == 1) {
        *to += value * *from;
        continue;
      }
      ForLanes(width, [&](auto d, size_t i) HWY_ATTR {
        const auto sum =
            hn::MulAdd(hn::Set(d, value), hn::LoadU(d, from + i), hn::LoadU(d, to + i));
        hn::StoreU(sum, d, to + i);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(SparseTimesDenseKernel);
HWY_EXPORT(SparseTransposedKernel);

void SparseTimesDense(const CsrView& x, const float* w, size_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(SparseTimesDenseKernel)(x, w, width, y);
}

void SparseTransposedTimesDense(const CsrView& x, const float* d_y, size_t width, size_t w_rows,
                                float* d_w) {
  std::fill_n(d_w, w_rows * width, 0.0f);
  HWY_DYNAMIC_DISPATCH(SparseTransposedKernel)(x, d_y, width, d_w);
}

void SparseToDense(const CsrView& x, size_t width, float* out) {
  std::fill_n(out, x.rows * width, 0.0f);
  for (size_t r = 0; r < x.rows; ++r, out += width) {
    for (int64_t n = x.row_offsets[r]; n < x.row_offsets[r + 1]; ++n) {
      out[x.columns[n]] += x.values[n];
    }
  }
}

}  // namespace cairn
#endif  // HWY_ONCE
