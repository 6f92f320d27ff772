// Products of sparse rows (CSR) with a dense matrix, and their gradients. Thread safety: free
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// Row r has entries row_offsets[r] … row_offsets[r + 1] - 1; entry n is values[n] in column
// columns[n]. Views the caller's memory. All columns must be in range.
struct CsrView {
  size_t rows = 0;
  const int64_t* row_offsets = nullptr;  // [rows + 1]
  const int32_t* columns = nullptr;
  const float* values = nullptr;
};

// y [rows, width] = x w, w [columns, width].
void SparseTimesDense(const CsrView& x, const float* w, size_t width, float* y);

// d_w [w_rows, width] = x^T d_y. Overwritten.
void SparseTransposedTimesDense(const CsrView& x, const float* d_y, size_t width, size_t w_rows,
                                float* d_w);

// x as a dense matrix [rows, width], zeros included. Repeated columns of a row are added.
void SparseToDense(const CsrView& x, size_t width, float* out);

}  // namespace cairn
