#include "worker/ops/ops.h"

#include <algorithm>

#include "worker/ops/concat.h"
#include "worker/ops/elementwise.h"
#include "worker/ops/gather.h"
#include "worker/ops/interaction.h"
#include "worker/ops/loss.h"

namespace cairn {
namespace {

class OnCpu final : public Ops {
 public:
  void DenseForward(const DenseShape& shape, const float* x, const float* w, const float* b,
                    bool relu, float* y) override {
    cairn::DenseForward(shape, x, w, b, relu, y);
  }
  void DenseBackward(const DenseShape& shape, const float* x, const float* w, const float* d_y,
                     float* d_x, int64_t d_x_columns, float* d_w) override {
    cairn::DenseBackward(shape, x, w, d_y, d_x, d_x_columns, d_w, nullptr);
  }
  void BiasBackward(const float* y, size_t rows, size_t width, float* d_y, float* d_b) override {
    if (y != nullptr) cairn::ReluBackward(y, d_y, rows * width);
    SumRows(d_y, rows, width, d_b);
  }
  void AddMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* w,
                            float* y) override {
    cairn::AddMatrixTimesVector(x, rows, columns, w, y);
  }
  void TransposedMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* d_y,
                                   float* d_w) override {
    cairn::TransposedMatrixTimesVector(x, rows, columns, d_y, d_w);
  }
  void SparseTimesDense(const CsrView& x, const float* w, size_t width, float* y) override {
    cairn::SparseTimesDense(x, w, width, y);
  }
  void SparseTransposedTimesDense(const CsrView& x, const float* d_y, size_t width, size_t w_rows,
                                  float* d_w) override {
    cairn::SparseTransposedTimesDense(x, d_y, width, w_rows, d_w);
  }
  void SparseToDense(const CsrView& x, size_t width, float* out) override {
    cairn::SparseToDense(x, width, out);
  }
  void Zero(float* x, size_t count) override { std::fill_n(x, count, 0.0f); }
  void Scale(float scale, float* x, size_t count) override {
    for (size_t i = 0; i < count; ++i) x[i] *= scale;
  }
  void AddToRows(const float* row, size_t rows, size_t width, bool relu, float* y) override {
    cairn::AddToRows(row, rows, width, relu, y);
  }
  void SumRows(const float* x, size_t rows, size_t width, float* sum) override {
    cairn::SumRows(x, rows, width, sum);
  }
  void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width, float* to,
                   int64_t to_stride) override {
    cairn::CopyColumns(from, from_stride, rows, width, to, to_stride);
  }
  void AddColumns(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                  int64_t width, float* out) override {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        out[r * width + i] = a[r * a_stride + i] + b[r * b_stride + i];
      }
    }
  }
  void GatherRows(const float* table, size_t width, const int32_t* positions, size_t count,
                  float* out, size_t out_stride) override {
    cairn::GatherRows(table, width, positions, count, out, out_stride);
  }
  void AddByPosition(const float* table, const int32_t* positions, size_t count,
                     float* sums) override {
    for (size_t i = 0; i < count; ++i) sums[i] += table[positions[i]];
  }
  void GatherTables(absl::Span<const float* const> tables, size_t width, const int32_t* positions,
                    size_t position_stride, size_t count, float* out, size_t out_stride) override {
    // Works on blocks of rows, so that a block of `out` stays in the cache while its columns are
    // filled.
    constexpr size_t kBlockRows = 64;
    for (size_t begin = 0; begin < count; begin += kBlockRows) {
      for (size_t t = 0; t < tables.size(); ++t) {
        GatherRows(tables[t], width, positions + t * position_stride + begin,
                   std::min(kBlockRows, count - begin), out + begin * out_stride + t * width,
                   out_stride);
      }
    }
  }
  void AddTablesByPosition(absl::Span<const float* const> tables, const int32_t* positions,
                           size_t position_stride, size_t count, float* sums) override {
    for (size_t t = 0; t < tables.size(); ++t) {
      AddByPosition(tables[t], positions + t * position_stride, count, sums);
    }
  }
  void SumRowsOfTables(const float* d_out, size_t d_out_stride, size_t column_stride, size_t width,
                       const int32_t* positions, size_t position_stride, size_t count,
                       absl::Span<const TableSums> tables, size_t columns,
                       const SumOrder& /*order*/, float* /*parts*/) override {
    for (size_t t = 0; t < tables.size(); ++t) {
      int32_t stored = 0;
      for (size_t c = t * columns; c < (t + 1) * columns; ++c) {
        stored = SumRowsByPosition(d_out + c * column_stride, d_out_stride, width,
                                   positions + c * position_stride, count, tables[t].sums, stored);
      }
    }
  }
  void DotsByPosition(const float* a, const int32_t* a_positions, const float* b,
                      const int32_t* b_positions, size_t width, size_t count, float* out) override {
    cairn::DotsByPosition(a, a_positions, b, b_positions, width, count, out);
  }
  void SumScaledRowsByPosition(const float* table, const int32_t* from, const float* scale,
                               const int32_t* to, size_t width, size_t count, size_t /*distinct*/,
                               float* sums) override {
    cairn::SumScaledRowsByPosition(table, from, scale, to, width, count, sums);
  }
  void FmForward(const float* e, size_t rows, size_t fields, size_t factors, float* sums,
                 float* out) override {
    cairn::FmForward(e, rows, fields, factors, sums, out);
  }
  void FmBackward(const float* e, const float* sums, const float* d_out, size_t rows, size_t fields,
                  size_t factors, float* d_e) override {
    cairn::FmBackward(e, sums, d_out, rows, fields, factors, d_e);
  }
  void ScaleFields(const float* x, const float* v, size_t rows, size_t fields, size_t factors,
                   float* e, size_t e_stride) override {
    cairn::ScaleFields(x, v, rows, fields, factors, e, e_stride);
  }
  void ScaleFieldsBackward(const float* x, const float* d_e, size_t e_stride, size_t rows,
                           size_t fields, size_t factors, float* d_v) override {
    cairn::ScaleFieldsBackward(x, d_e, e_stride, rows, fields, factors, d_v);
  }
  void FmSparseForward(const CsrView& x, const float* v, size_t factors, float* sums,
                       float* out) override {
    cairn::FmSparseForward(x, v, factors, sums, out);
  }
  void FmSparseBackward(const CsrView& x, const float* v, const float* sums, const float* d_out,
                        size_t factors, size_t v_rows, float* d_v) override {
    cairn::FmSparseBackward(x, v, sums, d_out, factors, v_rows, d_v);
  }
  void DotInteraction(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                      size_t out_stride, float* /*products*/) override {
    cairn::DotInteraction(e, rows, vectors, width, out, out_stride);
  }
  void DotInteractionBackward(const float* e, const float* d_out, size_t d_out_stride, size_t rows,
                              size_t vectors, size_t width, float* d_e,
                              float* /*products*/) override {
    cairn::DotInteractionBackward(e, d_out, d_out_stride, rows, vectors, width, d_e);
  }
  void SigmoidCrossEntropy(const float* logits, const float* labels, size_t count, float scale,
                           float* loss, float* d_logits) override {
    cairn::SigmoidCrossEntropy(logits, labels, count, loss, d_logits);
    Scale(scale, d_logits, count);
  }
  void SoftmaxCrossEntropy(const float* logits, const float* labels, size_t rows, size_t classes,
                           float scale, float* loss, float* d_logits) override {
    cairn::SoftmaxCrossEntropy(logits, labels, rows, classes, loss, d_logits);
    Scale(scale, d_logits, rows * classes);
  }
  void SquaredError(const float* predictions, const float* targets, size_t rows, size_t width,
                    float scale, float* loss, float* d_predictions) override {
    cairn::SquaredError(predictions, targets, rows, width, loss, d_predictions);
    Scale(scale, d_predictions, rows * width);
  }
};

}  // namespace

Ops& CpuOps() {
  static Ops* const ops = new OnCpu;
  return *ops;
}

}  // namespace cairn
