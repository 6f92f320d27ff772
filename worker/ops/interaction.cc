#include "worker/ops/interaction.h"

#include <algorithm>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/ops/interaction.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "worker/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn {
namespace HWY_NAMESPACE {

// The second-order term of one row whose entry n in [0, count) is weight(n) * vector(n).
template <typename Weight, typename Vector>
HWY_INLINE float FmRow(size_t count, size_t factors, float* sums, const Weight& weight,
                       const Vector& vector) {
  return 0.5f * SumLanes(factors, [&](auto d, size_t i) HWY_ATTR {
           auto sum = hn::Zero(d);
           auto squares = hn::Zero(d);
           for (size_t n = 0; n < count; ++n) {
             const auto e = hn::Mul(hn::Set(d, weight(n)), hn::LoadU(d, vector(n) + i));
             sum = hn::Add(sum, e);
             squares = hn::MulAdd(e, e, squares);
           }
           hn::StoreU(sum, d, sums + i);
           return hn::MulSub(sum, sum, squares);
         });
}

void FmForwardKernel(const float* e, size_t rows, size_t fields, size_t factors, float* sums,
                     float* out) {
  for (size_t r = 0; r < rows; ++r, e += fields * factors) {
    out[r] += FmRow(
        fields, factors, sums + r * factors, [](size_t) HWY_ATTR { return 1.0f; },
        [&](size_t n) HWY_ATTR { return e + n * factors; });
  }
}

void FmSparseForwardKernel(const CsrView& x, const float* v, size_t factors, float* sums,
                           float* out) {
  for (size_t r = 0; r < x.rows; ++r) {
    const size_t begin = static_cast<size_t>(x.row_offsets[r]);
    out[r] += FmRow(
        static_cast<size_t>(x.row_offsets[r + 1]) - begin, factors, sums + r * factors,
        [&](size_t n) HWY_ATTR { return x.values[begin + n]; },
        [&](size_t n) HWY_ATTR { return v + static_cast<size_t>(x.columns[begin + n]) * factors; });
  }
}

void FmBackwardKernel(const float* e, const float* sums, const float* d_out, size_t rows,
                      size_t fields, size_t factors, float* d_e) {
  for (size_t r = 0; r < rows; ++r) {
    const float* sum = sums + r * factors;
    for (size_t f = 0; f < fields; ++f, e += factors, d_e += factors) {
      ForLanes(factors, [&](auto d, size_t i) HWY_ATTR {
        const auto rest = hn::Sub(hn::LoadU(d, sum + i), hn::LoadU(d, e + i));
        hn::StoreU(hn::Mul(hn::Set(d, d_out[r]), rest), d, d_e + i);
      });
    }
  }
}

void FmSparseBackwardKernel(const CsrView& x, const float* v, const float* sums, const float* d_out,
                            size_t factors, float* d_v) {
  for (size_t r = 0; r < x.rows; ++r) {
    const float* sum = sums + r * factors;
    for (int64_t n = x.row_offsets[r]; n < x.row_offsets[r + 1]; ++n) {
      const size_t at = static_cast<size_t>(x.columns[n]) * factors;
      const float value = x.values[n], scale = d_out[r] * value;
      ForLanes(factors, [&](auto d, size_t i) HWY_ATTR {
        const auto rest =
            hn::NegMulAdd(hn::Set(d, value), hn::LoadU(d, v + at + i), hn::LoadU(d, sum + i));
        const auto total = hn::MulAdd(hn::Set(d, scale), rest, hn::LoadU(d, d_v + at + i));
        hn::StoreU(total, d, d_v + at + i);
      });
    }
  }
}

void ScaleFieldsKernel(const float* x, const float* v, size_t rows, size_t fields, size_t factors,
                       float* e, size_t e_stride) {
  for (size_t r = 0; r < rows; ++r, x += fields, e += e_stride) {
    for (size_t f = 0; f < fields; ++f) {
      ForLanes(factors, [&](auto d, size_t i) HWY_ATTR {
        const auto row = hn::LoadU(d, v + f * factors + i);
        hn::StoreU(hn::Mul(hn::Set(d, x[f]), row), d, e + f * factors + i);
      });
    }
  }
}

void ScaleFieldsBackwardKernel(const float* x, const float* d_e, size_t e_stride, size_t rows,
                               size_t fields, size_t factors, float* d_v) {
  for (size_t r = 0; r < rows; ++r, x += fields, d_e += e_stride) {
    for (size_t f = 0; f < fields; ++f) {
      ForLanes(factors, [&](auto d, size_t i) HWY_ATTR {
        const auto row = hn::LoadU(d, d_e + f * factors + i);
        const auto sum = hn::LoadU(d, d_v + f * factors + i);
        hn::StoreU(hn::MulAdd(hn::Set(d, x[f]), row, sum), d, d_v + f * factors + i);
      });
    }
  }
}

// Stores the vectors as columns, [width, padded], so that one vector instruction serves as many
// pairs as there are lanes; `padded` is a multiple of the lanes, and elements beyond `vectors` stay
// zero.
HWY_INLINE void Transpose(const float* e, size_t vectors, size_t width, size_t padded,
                          float* columns) {
  for (size_t i = 0; i < vectors; ++i) {
    for (size_t k = 0; k < width; ++k) columns[k * padded + i] = e[i * width + k];
  }
}

void DotInteractionKernel(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                          size_t out_stride) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const size_t padded = (vectors + lanes - 1) / lanes * lanes;
  std::vector<float> buffer((width + 1) * padded, 0.0f);
  float* columns = buffer.data();
  float* dots = columns + width * padded;
  for (size_t r = 0; r < rows; ++r, e += vectors * width, out += out_stride) {
    Transpose(e, vectors, width, padded, columns);
    for (size_t i = 1; i < vectors; ++i) {
      const float* row = e + i * width;
      for (size_t j = 0; j < i; j += lanes) {
        auto sum = hn::Zero(d);
        for (size_t k = 0; k < width; ++k) {
          sum = hn::MulAdd(hn::Set(d, row[k]), hn::LoadU(d, columns + k * padded + j), sum);
        }
        hn::StoreU(sum, d, dots + j);
      }
      std::memcpy(out + DotPairs(i), dots, i * sizeof(float));
    }
  }
}

// Computes rows first … first + kRows - 1 of d_e = g e: several rows share every load of e.
template <size_t kRows>
HWY_INLINE void MultiplyRows(const float* g, const float* e, size_t vectors, size_t width,
                             size_t first, float* d_e) {
  const float* weights = g + first * vectors;
  ForLanes(width, [&](auto d, size_t k) HWY_ATTR {
    decltype(hn::Zero(d)) sums[kRows];
    for (size_t i = 0; i < kRows; ++i) sums[i] = hn::Zero(d);
    for (size_t j = 0; j < vectors; ++j) {
      const auto row = hn::LoadU(d, e + j * width + k);
      for (size_t i = 0; i < kRows; ++i) {
        sums[i] = hn::MulAdd(hn::Set(d, weights[i * vectors + j]), row, sums[i]);
      }
    }
    for (size_t i = 0; i < kRows; ++i) hn::StoreU(sums[i], d, d_e + (first + i) * width + k);
  });
}

// d_e = g e, where g is the symmetric matrix of d_out with a zero diagonal.
void DotInteractionBackwardKernel(const float* e, const float* d_out, size_t d_out_stride,
                                  size_t rows, size_t vectors, size_t width, float* d_e) {
  std::vector<float> buffer(vectors * vectors, 0.0f);
  float* g = buffer.data();
  const size_t size = vectors * width;
  for (size_t r = 0; r < rows; ++r, e += size, d_e += size, d_out += d_out_stride) {
    for (size_t i = 1; i < vectors; ++i) {
      for (size_t j = 0; j < i; ++j) {
        g[i * vectors + j] = g[j * vectors + i] = d_out[DotPairs(i) + j];
      }
    }
    size_t i = 0;
    for (; i + 4 <= vectors; i += 4) MultiplyRows<4>(g, e, vectors, width, i, d_e);
    for (; i < vectors; ++i) MultiplyRows<1>(g, e, vectors, width, i, d_e);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn {

HWY_EXPORT(FmForwardKernel);
HWY_EXPORT(FmBackwardKernel);
HWY_EXPORT(FmSparseForwardKernel);
HWY_EXPORT(FmSparseBackwardKernel);
HWY_EXPORT(ScaleFieldsKernel);
HWY_EXPORT(ScaleFieldsBackwardKernel);
HWY_EXPORT(DotInteractionKernel);
HWY_EXPORT(DotInteractionBackwardKernel);

void FmForward(const float* e, size_t rows, size_t fields, size_t factors, float* sums,
               float* out) {
  HWY_DYNAMIC_DISPATCH(FmForwardKernel)(e, rows, fields, factors, sums, out);
}

void FmBackward(const float* e, const float* sums, const float* d_out, size_t rows, size_t fields,
                size_t factors, float* d_e) {
  HWY_DYNAMIC_DISPATCH(FmBackwardKernel)(e, sums, d_out, rows, fields, factors, d_e);
}

void FmSparseForward(const CsrView& x, const float* v, size_t factors, float* sums, float* out) {
  HWY_DYNAMIC_DISPATCH(FmSparseForwardKernel)(x, v, factors, sums, out);
}

void FmSparseBackward(const CsrView& x, const float* v, const float* sums, const float* d_out,
                      size_t factors, size_t v_rows, float* d_v) {
  std::fill_n(d_v, v_rows * factors, 0.0f);
  HWY_DYNAMIC_DISPATCH(FmSparseBackwardKernel)(x, v, sums, d_out, factors, d_v);
}

void ScaleFields(const float* x, const float* v, size_t rows, size_t fields, size_t factors,
                 float* e, size_t e_stride) {
  HWY_DYNAMIC_DISPATCH(ScaleFieldsKernel)(x, v, rows, fields, factors, e, e_stride);
}

void ScaleFieldsBackward(const float* x, const float* d_e, size_t e_stride, size_t rows,
                         size_t fields, size_t factors, float* d_v) {
  std::fill_n(d_v, fields * factors, 0.0f);
  HWY_DYNAMIC_DISPATCH(ScaleFieldsBackwardKernel)(x, d_e, e_stride, rows, fields, factors, d_v);
}

void DotInteraction(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                    size_t out_stride) {
  if (vectors < 2) return;
  HWY_DYNAMIC_DISPATCH(DotInteractionKernel)(e, rows, vectors, width, out, out_stride);
}

void DotInteractionBackward(const float* e, const float* d_out, size_t d_out_stride, size_t rows,
                            size_t vectors, size_t width, float* d_e) {
  HWY_DYNAMIC_DISPATCH(DotInteractionBackwardKernel)
  (e, d_out, d_out_stride, rows, vectors, width, d_e);
}

}  // namespace cairn
#endif  // HWY_ONCE
