// The arithmetic of models: the ops of this directory on the memory of one device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/ops/dense.h"
#include "worker/ops/sparse.h"
#include "worker/ops/sum_order.h"

namespace cairn {

// Where the gradient of a table goes: [distinct, width].
struct TableSums {
  float* sums = nullptr;
  size_t distinct = 0;
};

// Pointers are into the device's memory. A function of the same name (dense.h, elementwise.h,
// concat.h, gather.h, interaction.h, loss.h, sparse.h) specifies an op's shapes, order and what may
// overlap; ops without such a function are specified here. A device executes ops in the order of
// the calls and may return before they are done; whoever waits for the device gets their errors.
// Thread safety: the CPU's ops may be called from several threads at once, a GPU's from one.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual void DenseForward(const DenseShape& shape, const float* x, const float* w, const float* b,
                            bool relu, float* y) = 0;
  // As DenseBackward in dense.h, without d_b, which BiasBackward computes.
  virtual void DenseBackward(const DenseShape& shape, const float* x, const float* w,
                             const float* d_y, float* d_x, int64_t d_x_columns, float* d_w) = 0;
  // The backward pass of a layer's bias and, if y is not null, of its relu: sets d_y [rows, width]
  // to 0 where y <= 0, then d_b [width] to the sums of d_y's columns. d_b must be 0 before, except
  // on the CPU (StepView::ZeroGradients).
  virtual void BiasBackward(const float* y, size_t rows, size_t width, float* d_y, float* d_b) = 0;
  virtual void AddMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* w,
                                    float* y) = 0;
  virtual void TransposedMatrixTimesVector(const float* x, int64_t rows, int64_t columns,
                                           const float* d_y, float* d_w) = 0;

  virtual void SparseTimesDense(const CsrView& x, const float* w, size_t width, float* y) = 0;
  virtual void SparseTransposedTimesDense(const CsrView& x, const float* d_y, size_t width,
                                          size_t w_rows, float* d_w) = 0;
  virtual void SparseToDense(const CsrView& x, size_t width, float* out) = 0;

  virtual void Zero(float* x, size_t count) = 0;
  // x *= scale.
  virtual void Scale(float scale, float* x, size_t count) = 0;
  virtual void AddToRows(const float* row, size_t rows, size_t width, bool relu, float* y) = 0;
  virtual void SumRows(const float* x, size_t rows, size_t width, float* sum) = 0;
  virtual void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width,
                           float* to, int64_t to_stride) = 0;
  // out [rows, width] = a + b, whose rows are `a_stride` and `b_stride` floats apart. No overlap.
  virtual void AddColumns(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                          int64_t rows, int64_t width, float* out) = 0;

  virtual void GatherRows(const float* table, size_t width, const int32_t* positions, size_t count,
                          float* out, size_t out_stride) = 0;
  // sums[i] += table[positions[i]], a table of single numbers.
  virtual void AddByPosition(const float* table, const int32_t* positions, size_t count,
                             float* sums) = 0;
  // GatherRows and AddByPosition for several tables, which takes few launches on a GPU. Table t
  // uses the positions at `positions` + t * position_stride. GatherTables writes its rows from
  // column t * width of `out` on.
  virtual void GatherTables(absl::Span<const float* const> tables, size_t width,
                            const int32_t* positions, size_t position_stride, size_t count,
                            float* out, size_t out_stride) = 0;
  virtual void AddTablesByPosition(absl::Span<const float* const> tables, const int32_t* positions,
                                   size_t position_stride, size_t count, float* sums) = 0;
  // SumRowsByPosition (gather.h) for several tables, each with `columns` key columns. Key column c
  // uses the positions at `positions` + c * position_stride, and its rows of `d_out` begin at
  // column c * column_stride; table t has the key columns from t * columns on. If there is an order
  // (only on a GPU), whose tables have columns * count terms, the sums are added in that order, by
  // way of `parts` [order.part_count, width], which is overwritten; position_stride is then
  // `count`.
  virtual void SumRowsOfTables(const float* d_out, size_t d_out_stride, size_t column_stride,
                               size_t width, const int32_t* positions, size_t position_stride,
                               size_t count, absl::Span<const TableSums> tables, size_t columns,
                               const SumOrder& order, float* parts) = 0;
  virtual void DotsByPosition(const float* a, const int32_t* a_positions, const float* b,
                              const int32_t* b_positions, size_t width, size_t count,
                              float* out) = 0;
  virtual void SumScaledRowsByPosition(const float* table, const int32_t* from, const float* scale,
                                       const int32_t* to, size_t width, size_t count,
                                       size_t distinct, float* sums) = 0;

  virtual void FmForward(const float* e, size_t rows, size_t fields, size_t factors, float* sums,
                         float* out) = 0;
  virtual void FmBackward(const float* e, const float* sums, const float* d_out, size_t rows,
                          size_t fields, size_t factors, float* d_e) = 0;
  virtual void ScaleFields(const float* x, const float* v, size_t rows, size_t fields,
                           size_t factors, float* e, size_t e_stride) = 0;
  virtual void ScaleFieldsBackward(const float* x, const float* d_e, size_t e_stride, size_t rows,
                                   size_t fields, size_t factors, float* d_v) = 0;
  virtual void FmSparseForward(const CsrView& x, const float* v, size_t factors, float* sums,
                               float* out) = 0;
  virtual void FmSparseBackward(const CsrView& x, const float* v, const float* sums,
                                const float* d_out, size_t factors, size_t v_rows, float* d_v) = 0;
  // `products` [rows, vectors, vectors] is memory for the products of one batched call,
  // overwritten. The CPU does not use it.
  virtual void DotInteraction(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                              size_t out_stride, float* products) = 0;
  virtual void DotInteractionBackward(const float* e, const float* d_out, size_t d_out_stride,
                                      size_t rows, size_t vectors, size_t width, float* d_e,
                                      float* products) = 0;

  // The gradients of the losses are multiplied by `scale`.
  virtual void SigmoidCrossEntropy(const float* logits, const float* labels, size_t count,
                                   float scale, float* loss, float* d_logits) = 0;
  virtual void SoftmaxCrossEntropy(const float* logits, const float* labels, size_t rows,
                                   size_t classes, float scale, float* loss, float* d_logits) = 0;
  virtual void SquaredError(const float* predictions, const float* targets, size_t rows,
                            size_t width, float scale, float* loss, float* d_predictions) = 0;
};

// The functions of this directory as Ops. An op is done when its call returns. Shared, never
// deleted.
Ops& CpuOps();

}  // namespace cairn
