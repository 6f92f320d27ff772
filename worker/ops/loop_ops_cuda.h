// All ops of models, over an engine that runs the bodies of kernels_cuda.h and matrix products.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "worker/ops/kernels_cuda.h"
#include "worker/ops/ops.h"
#include "worker/ops/table_kernels_cuda.h"

namespace cairn {

// A matrix in the order of cuBLAS and Fortran: column by column, columns `stride` floats apart,
// used transposed if `transposed`. In this order a row-major matrix is its transpose.
struct ColumnMajor {
  const float* data;
  bool transposed;
  int64_t stride;
};

// A batch of products. Each operand of the next product is this many floats after the last one's.
struct ProductBatch {
  int64_t count;
  int64_t a_step, b_step, c_step;
};

// `Engine` must have these methods, and execute calls in order:
//   template <typename Body> void ForEach(uint64_t count, const Body& body)
//       runs body(i) for every i below `count`, in any order and in parallel
//   void Zero(float* x, size_t count)
//   void Multiply(int64_t m, int64_t n, int64_t k, ColumnMajor a, ColumnMajor b, float* c,
//                 int64_t c_stride)
//       c [m, n] = a [m, k] b [k, n], all column-major
//   void MultiplyEach(const ProductBatch& batch, int64_t m, ...)
//       the same, batch.count times
template <typename Engine>
class LoopOps final : public Ops {
 public:
  explicit LoopOps(Engine& engine) : engine_(engine) {}

  // Sums have a fixed order from here on, so that two runs return the same bits; slower.
  void SetDeterministic(bool deterministic) { deterministic_ = deterministic; }
  bool deterministic() const { return deterministic_; }

  // Row-major y = x w is column-major y^T = w^T x^T.
  void DenseForward(const DenseShape& shape, const float* x, const float* w, const float* b,
                    bool relu, float* y) override {
    engine_.Multiply(shape.outputs, shape.rows, shape.inputs, {w, false, shape.outputs},
                     {x, false, shape.x_stride}, y, shape.outputs);
    AddToRows(b, Size(shape.rows), Size(shape.outputs), relu, y);
  }

  void DenseBackward(const DenseShape& shape, const float* x, const float* w, const float* d_y,
                     float* d_x, int64_t d_x_columns, float* d_w) override {
    engine_.Multiply(shape.outputs, shape.inputs, shape.rows, {d_y, false, shape.outputs},
                     {x, true, shape.x_stride}, d_w, shape.outputs);
    if (d_x == nullptr) return;
    engine_.Multiply(d_x_columns, shape.rows, shape.outputs, {w, true, shape.outputs},
                     {d_y, false, shape.outputs}, d_x, shape.x_stride);
  }

  void BiasBackward(const float* y, size_t rows, size_t width, float* d_y, float* d_b) override {
    RunAdding(kernels::SumsOver(rows) * width, width,
              kernels::BiasBackwardBody{y, Extent(rows), Extent(width), d_y, d_b});
  }

  void AddMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* w,
                            float* y) override {
    Run(Size(rows), kernels::AddMatrixTimesVectorBody{x, Extent(columns), w, y});
  }

  void TransposedMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* d_y,
                                   float* d_w) override {
    SumOverRows(kernels::WeightedElementTerm{{x, Extent(columns)}, d_y}, Size(rows), Size(columns),
                d_w);
  }

  void SparseTimesDense(const CsrView& x, const float* w, size_t width, float* y) override {
    Run(x.rows * width, kernels::SparseTimesDenseBody{RowsOf(x), w, Extent(width), y});
  }

  void SparseTransposedTimesDense(const CsrView& x, const float* d_y, size_t width, size_t w_rows,
                                  float* d_w) override {
    Zero(d_w, w_rows * width);
    RunAdding(x.rows * width, width,
              kernels::SparseTransposedTimesDenseBody{RowsOf(x), d_y, Extent(width), d_w});
  }

  void SparseToDense(const CsrView& x, size_t width, float* out) override {
    Zero(out, x.rows * width);
    Run(x.rows, kernels::SparseToDenseBody{RowsOf(x), width, out});
  }

  void Zero(float* x, size_t count) override {
    if (count > 0) engine_.Zero(x, count);
  }

  void Scale(float scale, float* x, size_t count) override {
    Run(count, kernels::ScaleBody{scale, x});
  }

  void AddToRows(const float* row, size_t rows, size_t width, bool relu, float* y) override {
    if (InPacks(width, row, width, y, width)) {
      Run(rows * width / kPack, kernels::AddToRowsBody<kPack>{row, Extent(width / kPack), relu, y});
    } else {
      Run(rows * width, kernels::AddToRowsBody<1>{row, Extent(width), relu, y});
    }
  }

  void SumRows(const float* x, size_t rows, size_t width, float* sum) override {
    SumOverRows(kernels::ElementTerm{x, Extent(width)}, rows, width, sum);
  }

  void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width, float* to,
                   int64_t to_stride) override {
    const uint64_t from_floats = Size(from_stride), to_floats = Size(to_stride);
    if (InPacks(Size(width), from, from_floats, to, to_floats)) {
      Run(Size(rows) * Size(width) / kPack,
          kernels::CopyColumnsBody<kPack>{from, from_floats, Extent(width / kPack), to, to_floats});
    } else {
      Run(Size(rows) * Size(width),
          kernels::CopyColumnsBody<1>{from, from_floats, Extent(width), to, to_floats});
    }
  }

  void AddColumns(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                  int64_t width, float* out) override {
    Run(Size(rows) * Size(width),
        kernels::AddColumnsBody{a, Size(a_stride), b, Size(b_stride), Extent(width), out});
  }

  void GatherRows(const float* table, size_t width, const int32_t* positions, size_t count,
                  float* out, size_t out_stride) override {
    if (InPacks(width, table, width, out, out_stride)) {
      Run(count * width / kPack,
          kernels::GatherRowsBody<kPack>{table, positions, Extent(width / kPack), out, out_stride});
    } else {
      Run(count * width,
          kernels::GatherRowsBody<1>{table, positions, Extent(width), out, out_stride});
    }
  }

  void AddByPosition(const float* table, const int32_t* positions, size_t count,
                     float* sums) override {
    Run(count, kernels::AddByPositionBody{table, positions, sums});
  }

  void GatherTables(absl::Span<const float* const> tables, size_t width, const int32_t* positions,
                    size_t position_stride, size_t count, float* out, size_t out_stride) override {
    for (size_t first = 0; first < tables.size(); first += kernels::kTablesAtOnce) {
      const auto part = tables.subspan(first, kernels::kTablesAtOnce);
      float* const to = out + first * width;
      const int32_t* const at = positions + first * position_stride;
      bool in_packs = true;
      for (const float* const table : part) {
        in_packs = in_packs && InPacks(width, table, width, to, out_stride);
      }
      const uint64_t elements = count * part.size() * width;
      if (in_packs) {
        Run(elements / kPack, kernels::GatherTablesBody<kPack>{
                                  PointersOf<const float>(part), Extent(part.size()), at,
                                  position_stride, Extent(width / kPack), to, out_stride});
      } else {
        Run(elements,
            kernels::GatherTablesBody<1>{PointersOf<const float>(part), Extent(part.size()), at,
                                         position_stride, Extent(width), to, out_stride});
      }
    }
  }

  void AddTablesByPosition(absl::Span<const float* const> tables, const int32_t* positions,
                           size_t position_stride, size_t count, float* sums) override {
    for (size_t first = 0; first < tables.size(); first += kernels::kTablesAtOnce) {
      const auto part = tables.subspan(first, kernels::kTablesAtOnce);
      Run(count, kernels::AddTablesByPositionBody{
                     PointersOf<const float>(part), Extent(part.size()),
                     positions + first * position_stride, position_stride, sums});
    }
  }

  void SumRowsOfTables(const float* d_out, size_t d_out_stride, size_t column_stride, size_t width,
                       const int32_t* positions, size_t position_stride, size_t count,
                       absl::Span<const TableSums> tables, size_t columns, const SumOrder& order,
                       float* parts) override {
    if (order.order != nullptr) {
      SumInOrder(d_out, d_out_stride, column_stride, width, positions, count, tables, columns,
                 order, parts);
      return;
    }
    ZeroTables(tables, width);
    const size_t all = tables.size() * columns;
    for (size_t first = 0; first < all; first += kernels::kTablesAtOnce) {
      const size_t some = std::min(kernels::kTablesAtOnce, all - first);
      kernels::TablePointers<float> sums{};
      for (size_t c = 0; c < some; ++c) sums.at[c] = tables[(first + c) / columns].sums;
      // Columns of one table add to the same sums.
      RunAdding(count * some * width, columns > 1 ? width : some * width,
                kernels::SumRowsOfTablesBody{
                    d_out + first * column_stride, d_out_stride, column_stride, Extent(width),
                    positions + first * position_stride, position_stride, sums, Extent(some)});
    }
  }

  void DotsByPosition(const float* a, const int32_t* a_positions, const float* b,
                      const int32_t* b_positions, size_t width, size_t count, float* out) override {
    Run(count, kernels::DotsByPositionBody{a, a_positions, b, b_positions, Extent(width), out});
  }

  void SumScaledRowsByPosition(const float* table, const int32_t* from, const float* scale,
                               const int32_t* to, size_t width, size_t count, size_t distinct,
                               float* sums) override {
    Zero(sums, distinct * width);
    RunAdding(count * width, width,
              kernels::SumScaledRowsBody{table, from, scale, to, Extent(width), sums});
  }

  void FmForward(const float* e, size_t rows, size_t fields, size_t factors, float* sums,
                 float* out) override {
    RunAddingToRows(rows, Extent(factors),
                    kernels::FmForwardBody{e, Extent(fields), Extent(factors), sums, out});
  }

  void FmBackward(const float* e, const float* sums, const float* d_out, size_t rows, size_t fields,
                  size_t factors, float* d_e) override {
    Run(rows * fields * factors,
        kernels::FmBackwardBody{e, sums, d_out, Extent(fields), Extent(factors), d_e});
  }

  void ScaleFields(const float* x, const float* v, size_t rows, size_t fields, size_t factors,
                   float* e, size_t e_stride) override {
    Run(rows * fields * factors,
        kernels::ScaleFieldsBody{x, v, Extent(fields), Extent(factors), e, e_stride});
  }

  void ScaleFieldsBackward(const float* x, const float* d_e, size_t e_stride, size_t rows,
                           size_t fields, size_t factors, float* d_v) override {
    SumOverRows(kernels::FieldTerm{x, d_e, e_stride, Extent(fields), Extent(factors)}, rows,
                fields * factors, d_v);
  }

  void FmSparseForward(const CsrView& x, const float* v, size_t factors, float* sums,
                       float* out) override {
    RunAddingToRows(x.rows, Extent(factors),
                    kernels::FmSparseForwardBody{RowsOf(x), v, Extent(factors), sums, out});
  }

  void FmSparseBackward(const CsrView& x, const float* v, const float* sums, const float* d_out,
                        size_t factors, size_t v_rows, float* d_v) override {
    Zero(d_v, v_rows * factors);
    RunAdding(x.rows * factors, factors,
              kernels::FmSparseBackwardBody{RowsOf(x), v, sums, d_out, Extent(factors), d_v});
  }

  // Column by column, the vectors of a row are a matrix x [width, vectors]: x^T x.
  void DotInteraction(const float* e, size_t rows, size_t vectors, size_t width, float* out,
                      size_t out_stride, float* products) override {
    const auto n = static_cast<int64_t>(vectors), k = static_cast<int64_t>(width);
    engine_.MultiplyEach({static_cast<int64_t>(rows), n * k, n * k, n * n}, n, n, k, {e, true, k},
                         {e, false, k}, products, n);
    Run(rows * vectors * vectors,
        kernels::PairsOfProductsBody{products, Extent(vectors), out, out_stride});
  }

  void DotInteractionBackward(const float* e, const float* d_out, size_t d_out_stride, size_t rows,
                              size_t vectors, size_t width, float* d_e, float* products) override {
    Run(rows * vectors * vectors,
        kernels::MatrixOfPairsBody{d_out, d_out_stride, Extent(vectors), products});
    const auto n = static_cast<int64_t>(vectors), k = static_cast<int64_t>(width);
    engine_.MultiplyEach({static_cast<int64_t>(rows), n * k, n * n, n * k}, k, n, n, {e, false, k},
                         {products, false, n}, d_e, k);
  }

  void SigmoidCrossEntropy(const float* logits, const float* labels, size_t count, float scale,
                           float* loss, float* d_logits) override {
    Run(count, kernels::SigmoidCrossEntropyBody{logits, labels, scale, loss, d_logits});
  }

  void SoftmaxCrossEntropy(const float* logits, const float* labels, size_t rows, size_t classes,
                           float scale, float* loss, float* d_logits) override {
    Run(rows,
        kernels::SoftmaxCrossEntropyBody{logits, labels, Extent(classes), scale, loss, d_logits});
  }

  void SquaredError(const float* predictions, const float* targets, size_t rows, size_t width,
                    float scale, float* loss, float* d_predictions) override {
    Run(rows,
        kernels::SquaredErrorBody{predictions, targets, Extent(width), scale, loss, d_predictions});
  }

 private:
  static constexpr int kPack = 4;  // floats: 16 bytes are the widest load

  // Extents of a batch are below 2^31, since columns and positions are int32.
  template <typename T>
  static uint32_t Extent(T extent) {
    return static_cast<uint32_t>(extent);
  }
  static size_t Size(int64_t extent) { return static_cast<size_t>(extent); }
  static kernels::Rows RowsOf(const CsrView& x) { return {x.row_offsets, x.columns, x.values}; }

  template <typename T>
  static kernels::TablePointers<T> PointersOf(absl::Span<T* const> tables) {
    kernels::TablePointers<T> pointers{};
    for (size_t t = 0; t < tables.size(); ++t) pointers.at[t] = tables[t];
    return pointers;
  }

  // Positions [key columns, count]. Each row has a term, so none needs to be zero before.
  void SumInOrder(const float* d_out, size_t d_out_stride, size_t column_stride, size_t width,
                  const int32_t* positions, size_t count, absl::Span<const TableSums> tables,
                  size_t columns, const SumOrder& order, float* parts) {
    for (size_t first = 0; first < tables.size(); first += kernels::kTablesAtOnce) {
      const size_t end = std::min(first + kernels::kTablesAtOnce, tables.size());
      kernels::TablePointers<float> sums{};
      for (size_t t = first; t < end; ++t) sums.at[t - first] = tables[t].sums;
      const auto range = [&](absl::Span<const int32_t> starts) {
        return std::pair<size_t, size_t>(starts[first], starts[end]);
      };
      const auto [chunk, chunk_end] = range(order.table_chunks);
      Run((chunk_end - chunk) * width,
          kernels::SumChunksBody{d_out, d_out_stride, column_stride, Extent(width), positions,
                                 Extent(count), Extent(count * columns), order.order,
                                 order.chunks + chunk, order.parts + chunk, Extent(first), sums,
                                 parts});
      const auto [row, row_end] = range(order.table_joined);
      Run((row_end - row) * width,
          kernels::JoinPartsBody{parts, Extent(width), positions, Extent(count * columns),
                                 order.joined + row, order.joined_terms + row, Extent(first),
                                 sums});
    }
  }

  // Tables that follow each other, as a step lays them out, are zeroed together with the gaps
  // between them, which nobody uses.
  void ZeroTables(absl::Span<const TableSums> tables, size_t width) {
    constexpr size_t kLargestGapFloats = 64;
    float* begin = nullptr;
    float* end = nullptr;
    for (const TableSums& table : tables) {
      const bool follows = begin != nullptr && table.sums >= end &&
                           static_cast<size_t>(table.sums - end) < kLargestGapFloats;
      if (!follows) {
        if (begin != nullptr) Zero(begin, static_cast<size_t>(end - begin));
        begin = table.sums;
      }
      end = table.sums + table.distinct * width;
    }
    if (begin != nullptr) Zero(begin, static_cast<size_t>(end - begin));
  }

  // Whether rows of both matrices can be moved in packs.
  static bool InPacks(size_t width, const float* from, uint64_t from_stride, const float* to,
                      uint64_t to_stride) {
    constexpr uintptr_t kBytes = kPack * sizeof(float);
    return width % kPack == 0 && from_stride % kPack == 0 && to_stride % kPack == 0 &&
           reinterpret_cast<uintptr_t>(from) % kBytes == 0 &&
           reinterpret_cast<uintptr_t>(to) % kBytes == 0;
  }

  template <typename Body>
  void Run(uint64_t count, const Body& body) {
    if (count > 0) engine_.ForEach(count, body);
  }

  template <typename Term>
  void SumOverRows(const Term& term, size_t rows, size_t width, float* sums) {
    Zero(sums, width);
    RunAdding(kernels::SumsOver(rows) * width, width,
              kernels::SumOverRowsBody<Term>{term, Extent(rows), Extent(width), sums});
  }

  // Runs a body whose elements add to the same memory if they are a multiple of `stride` apart.
  template <typename Body>
  void RunAdding(uint64_t count, uint64_t stride, const Body& body) {
    if (!deterministic_) return Run(count, body);
    Run(std::min(stride, count), kernels::InStrides<Body>{body, stride, count});
  }
  // Runs a body in which every `width` consecutive elements add to the same memory.
  template <typename Body>
  void RunAddingToRows(uint64_t rows, uint32_t width, const Body& body) {
    if (!deterministic_) return Run(rows * width, body);
    Run(rows, kernels::InGroups<Body>{body, width});
  }

  Engine& engine_;
  bool deterministic_ = false;
};

}  // namespace cairn
