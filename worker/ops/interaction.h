// Products of features: the factorization machine's second order (Rendle, "Factorization
// machines", ICDM 2010) and DLRM's dot interaction (Naumov et al., "Deep Learning Recommendation
// Model", 2019).
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstddef>

#include "worker/ops/sparse.h"

namespace cairn {

// e [rows, fields, factors]. sums [rows, factors] = sum over fields of e;
// out [rows] += 0.5 * sum over factors of (sums^2 - sum over fields of e^2).
void FmForward(const float* e, size_t rows, size_t fields, size_t factors, float* sums, float* out);
// d_e = d_out[row] * (sums[row] - e); `d_e` may be `e`.
void FmBackward(const float* e, const float* sums, const float* d_out, size_t rows, size_t fields,
                size_t factors, float* d_e);

// e[r, f] = x[r, f] * v[f] for x [rows, fields], v [fields, factors]: dense features as fields.
// Rows of `e` are `e_stride` floats apart.
void ScaleFields(const float* x, const float* v, size_t rows, size_t fields, size_t factors,
                 float* e, size_t e_stride);
// d_v[f] = sum over rows of x[r, f] * d_e[r, f], overwritten.
void ScaleFieldsBackward(const float* x, const float* d_e, size_t e_stride, size_t rows,
                         size_t fields, size_t factors, float* d_v);

// FmForward for sparse features: entry n is values[n] * v[columns[n]], v [columns, factors].
void FmSparseForward(const CsrView& x, const float* v, size_t factors, float* sums, float* out);
// d_v [v_rows, factors], overwritten.
void FmSparseBackward(const CsrView& x, const float* v, const float* sums, const float* d_out,
                      size_t factors, size_t v_rows, float* d_v);

// e [rows, vectors, width]; out row r holds e[r, i] . e[r, j] for i > j in the order (1,0), (2,0),
// (2,1), (3,0) …: DotPairs(vectors) floats, rows `out_stride` apart.
constexpr size_t DotPairs(size_t vectors) { return vectors * (vectors - 1) / 2; }
void DotInteraction(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                    size_t out_stride);
// d_e [rows, vectors, width], overwritten, from d_out with the layout of `out`.
void DotInteractionBackward(const float* e, const float* d_out, size_t d_out_stride, size_t rows,
                            size_t vectors, size_t width, float* d_e);

}  // namespace cairn
