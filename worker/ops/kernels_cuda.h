// The ops of models as loop bodies, one for each element or row, which a GPU runs in parallel.
//
// cuda_queue.cu runs the bodies on a GPU; the tests run the same bodies in loops on the CPU.
// Therefore no body uses shared memory or relies on an order of threads. Sums over rows are added
// atomically, in any order; a sum that one thread computes is not. Formulas are those of the
// functions of the same names (interaction.h, loss.h, ...).
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define CAIRN_ANYWHERE __host__ __device__
#else
#define CAIRN_ANYWHERE
#endif

namespace cairn::kernels {

CAIRN_ANYWHERE inline void AtomicAdd(float* to, float value) {
#ifdef __CUDA_ARCH__
  atomicAdd(to, value);
#else
  std::atomic_ref(*to).fetch_add(value, std::memory_order_relaxed);
#endif
}

// For threads that all set the same value.
CAIRN_ANYWHERE inline void Set(float* to, float value) {
#ifdef __CUDA_ARCH__
  *to = value;
#else
  std::atomic_ref(*to).store(value, std::memory_order_relaxed);
#endif
}

CAIRN_ANYWHERE inline float Dot(const float* x, const float* y, uint32_t count) {
  float dot = 0;
  for (uint32_t k = 0; k < count; ++k) dot += x[k] * y[k];
  return dot;
}

// The rows that one thread sums before it adds its sum to the total.
inline constexpr uint32_t kRowsPerSum = 32;
inline uint64_t SumsOver(uint64_t rows) { return (rows + kRowsPerSum - 1) / kRowsPerSum; }

// Gives bodies that add atomically a fixed order. One thread runs elements i, i + stride, i + 2 *
// stride, …, which include all that add to the same memory.
template <typename Body>
struct InStrides {
  Body body;
  uint64_t stride, count;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    for (uint64_t n = i; n < count; n += stride) body(n);
  }
};
// Gives bodies a fixed order in which `size` consecutive elements add to the same memory.
template <typename Body>
struct InGroups {
  Body body;
  uint32_t size;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    for (uint32_t n = 0; n < size; ++n) body(uint64_t{i} * size + n);
  }
};

// As many floats as one instruction moves, with the alignment that it requires.
template <int kFloats>
struct alignas(kFloats * sizeof(float)) Pack {
  float x[kFloats];
};

// Every body is called for an index `i` below the number of its elements. "i: row x column" means
// that i / columns is the row and i % columns the column. Index has 32 bits if they suffice,
// because divisions are then faster.

struct FlagNotFiniteBody {
  const float* x;
  float* flag;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    // An infinity minus itself is NaN too.
    if (x[i] - x[i] != 0.0f) Set(flag, 1.0f);
  }
};

struct ScaleBody {
  float scale;
  float* x;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    x[i] *= scale;
  }
};

// i: row x pack.
template <int kFloats>
struct AddToRowsBody {
  const float* row;
  uint32_t packs;  // in each row
  bool relu;
  float* y;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    using P = Pack<kFloats>;
    const P added = reinterpret_cast<const P*>(row)[i % packs];
    P sums = reinterpret_cast<P*>(y)[i];
    for (int k = 0; k < kFloats; ++k) {
      const float sum = sums.x[k] + added.x[k];
      sums.x[k] = relu && sum < 0 ? 0 : sum;  // keeps NaN
    }
    reinterpret_cast<P*>(y)[i] = sums;
  }
};

// sums[column] += term(row, column) over all rows; i: block of rows x column.
template <typename Term>
struct SumOverRowsBody {
  Term term;
  uint32_t rows, width;
  float* sums;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const uint32_t column = i % width;
    const uint32_t first = static_cast<uint32_t>(i / width) * kRowsPerSum;
    float total = 0;
    for (uint32_t row = first; row < first + kRowsPerSum && row < rows; ++row) {
      total += term(row, column);
    }
    AtomicAdd(sums + column, total);
  }
};

// Applies relu's derivative, if y is not null, and sums the columns; `i` as in SumOverRowsBody.
struct BiasBackwardBody {
  const float* y;
  uint32_t rows, width;
  float* d_y;
  float* d_b;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const uint32_t column = i % width;
    const uint32_t first = static_cast<uint32_t>(i / width) * kRowsPerSum;
    const uint32_t last = rows - first < kRowsPerSum ? rows : first + kRowsPerSum;
    float total = 0;
    uint32_t row = first;
    for (; last - row >= kAtOnce; row += kAtOnce) AddRows<kAtOnce>(row, column, &total);
    for (; row < last; ++row) AddRows<1>(row, column, &total);
    AtomicAdd(d_b + column, total);
  }

 private:
  static constexpr uint32_t kAtOnce = 8;  // rows whose loads do not wait for each other

  template <uint32_t kRows>
  CAIRN_ANYWHERE void AddRows(uint32_t row, uint32_t column, float* total) const {
    const uint64_t first = uint64_t{row} * width + column;
    float slopes[kRows], outputs[kRows];
    for (uint32_t k = 0; k < kRows; ++k) {
      const uint64_t at = first + uint64_t{k} * width;
      slopes[k] = d_y[at];
      outputs[k] = y == nullptr ? 1 : y[at];
    }
    for (uint32_t k = 0; k < kRows; ++k) {
      if (outputs[k] <= 0) d_y[first + uint64_t{k} * width] = slopes[k] = 0;
      *total += slopes[k];
    }
  }
};

struct ElementTerm {
  const float* x;
  uint32_t width;
  CAIRN_ANYWHERE float operator()(uint64_t row, uint32_t column) const {
    return x[row * width + column];
  }
};

// x [rows, width], each row multiplied by d_y [rows].
struct WeightedElementTerm {
  ElementTerm x;
  const float* d_y;
  CAIRN_ANYWHERE float operator()(uint64_t row, uint32_t column) const {
    return x(row, column) * d_y[row];
  }
};

// x [rows, fields] times d_e [rows, fields, factors]; column: field x factor.
struct FieldTerm {
  const float* x;
  const float* d_e;
  uint64_t d_e_stride;
  uint32_t fields, factors;
  CAIRN_ANYWHERE float operator()(uint64_t row, uint32_t column) const {
    return x[row * fields + column / factors] * d_e[row * d_e_stride + column];
  }
};

// i: row x pack of columns.
template <int kFloats>
struct CopyColumnsBody {
  const float* from;
  uint64_t from_stride;
  uint32_t packs;  // in each row
  float* to;
  uint64_t to_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    using P = Pack<kFloats>;
    const Index row = i / packs, pack = i % packs;
    reinterpret_cast<P*>(to + row * to_stride)[pack] =
        reinterpret_cast<const P*>(from + row * from_stride)[pack];
  }
};

// i: row x column.
struct AddColumnsBody {
  const float* a;
  uint64_t a_stride;
  const float* b;
  uint64_t b_stride;
  uint32_t width;
  float* out;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    out[i] = a[row * a_stride + column] + b[row * b_stride + column];
  }
};

// i: row x pack of columns.
template <int kFloats>
struct GatherRowsBody {
  const float* table;
  const int32_t* positions;
  uint32_t packs;  // in each row
  float* out;
  uint64_t out_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    using P = Pack<kFloats>;
    const Index row = i / packs, pack = i % packs;
    reinterpret_cast<P*>(out + row * out_stride)[pack] =
        reinterpret_cast<const P*>(table)[static_cast<uint64_t>(positions[row]) * packs + pack];
  }
};

struct AddByPositionBody {
  const float* table;
  const int32_t* positions;
  float* sums;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    sums[i] += table[positions[i]];
  }
};

// i: row.
struct DotsByPositionBody {
  const float* a;
  const int32_t* a_positions;
  const float* b;
  const int32_t* b_positions;
  uint32_t width;
  float* out;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    out[i] = Dot(a + static_cast<uint64_t>(a_positions[i]) * width,
                 b + static_cast<uint64_t>(b_positions[i]) * width, width);
  }
};

// i: row x column.
struct SumScaledRowsBody {
  const float* table;
  const int32_t* from;
  const float* scale;
  const int32_t* to;
  uint32_t width;
  float* sums;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    AtomicAdd(sums + static_cast<uint64_t>(to[row]) * width + column,
              scale[row] * table[static_cast<uint64_t>(from[row]) * width + column]);
  }
};

// y[row] += x[row] . w; i: row.
struct AddMatrixTimesVectorBody {
  const float* x;
  uint32_t columns;
  const float* w;
  float* y;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    y[i] += Dot(x + static_cast<uint64_t>(i) * columns, w, columns);
  }
};

// Rows of a sparse matrix, as CsrView has them.
struct Rows {
  const int64_t* offsets;
  const int32_t* columns;
  const float* values;
};

// i: row x column of y.
struct SparseTimesDenseBody {
  Rows x;
  const float* w;
  uint32_t width;
  float* y;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    float sum = 0;
    for (int64_t n = x.offsets[row]; n < x.offsets[row + 1]; ++n) {
      sum += x.values[n] * w[static_cast<uint64_t>(x.columns[n]) * width + column];
    }
    y[i] = sum;
  }
};

// i: row x column of d_y.
struct SparseTransposedTimesDenseBody {
  Rows x;
  const float* d_y;
  uint32_t width;
  float* d_w;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    for (int64_t n = x.offsets[row]; n < x.offsets[row + 1]; ++n) {
      AtomicAdd(d_w + static_cast<uint64_t>(x.columns[n]) * width + column, x.values[n] * d_y[i]);
    }
  }
};

// i: row; a column may occur twice in a row.
struct SparseToDenseBody {
  Rows x;
  uint64_t width;
  float* out;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    for (int64_t n = x.offsets[i]; n < x.offsets[i + 1]; ++n) {
      out[i * width + static_cast<uint64_t>(x.columns[n])] += x.values[n];
    }
  }
};

// One factor's part of a factorization machine: the sum of the products of all pairs of terms.
struct PairSum {
  float sum = 0, squares = 0;
  CAIRN_ANYWHERE void Add(float term) {
    sum += term;
    squares += term * term;
  }
  CAIRN_ANYWHERE float products() const { return 0.5f * (sum * sum - squares); }
};

// i: row x factor.
struct FmForwardBody {
  const float* e;
  uint32_t fields, factors;
  float* sums;
  float* out;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / factors, factor = i % factors;
    const float* x = e + static_cast<uint64_t>(row) * fields * factors + factor;
    PairSum pairs;
    for (uint32_t f = 0; f < fields; ++f, x += factors) pairs.Add(*x);
    sums[i] = pairs.sum;
    AtomicAdd(out + row, pairs.products());
  }
};

// i: row x field x factor.
struct FmBackwardBody {
  const float* e;
  const float* sums;
  const float* d_out;
  uint32_t fields, factors;
  float* d_e;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / (fields * factors), factor = i % factors;
    d_e[i] = d_out[row] * (sums[row * factors + factor] - e[i]);
  }
};

// i: row x factor.
struct FmSparseForwardBody {
  Rows x;
  const float* v;
  uint32_t factors;
  float* sums;
  float* out;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / factors, factor = i % factors;
    PairSum pairs;
    for (int64_t n = x.offsets[row]; n < x.offsets[row + 1]; ++n) {
      pairs.Add(x.values[n] * v[static_cast<uint64_t>(x.columns[n]) * factors + factor]);
    }
    sums[i] = pairs.sum;
    AtomicAdd(out + row, pairs.products());
  }
};

// i: row x factor.
struct FmSparseBackwardBody {
  Rows x;
  const float* v;
  const float* sums;
  const float* d_out;
  uint32_t factors;
  float* d_v;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / factors, factor = i % factors;
    for (int64_t n = x.offsets[row]; n < x.offsets[row + 1]; ++n) {
      const uint64_t at = static_cast<uint64_t>(x.columns[n]) * factors + factor;
      AtomicAdd(d_v + at, d_out[row] * x.values[n] * (sums[i] - x.values[n] * v[at]));
    }
  }
};

// i: row x field x factor.
struct ScaleFieldsBody {
  const float* x;
  const float* v;
  uint32_t fields, factors;
  float* e;
  uint64_t e_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const uint32_t row_floats = fields * factors;
    const Index row = i / row_floats, at = i % row_floats;
    e[row * e_stride + at] = x[row * fields + at / factors] * v[at];
  }
};

// The index in a row of the dot product of vectors i > j.
CAIRN_ANYWHERE inline uint32_t PairIndex(uint32_t i, uint32_t j) { return i * (i - 1) / 2 + j; }

// The dot products of distinct vectors, from those of all: products [rows, vectors, vectors].
// i: row x vector x vector; only pairs whose first number exceeds the second do work.
struct PairsOfProductsBody {
  const float* products;
  uint32_t vectors;
  float* out;
  uint64_t out_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / (vectors * vectors);
    const uint32_t pair = i % (vectors * vectors);
    const uint32_t a = pair / vectors, b = pair % vectors;
    if (b < a) out[row * out_stride + PairIndex(a, b)] = products[i];
  }
};

// The symmetric matrix of the pairs' gradients, with a zero diagonal. i: row x vector x vector.
struct MatrixOfPairsBody {
  const float* d_out;
  uint64_t d_out_stride;
  uint32_t vectors;
  float* matrix;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / (vectors * vectors);
    const uint32_t pair = i % (vectors * vectors);
    const uint32_t a = pair / vectors, b = pair % vectors;
    const float* d = d_out + row * d_out_stride;
    matrix[i] = a == b ? 0 : d[a < b ? PairIndex(b, a) : PairIndex(a, b)];
  }
};

struct SigmoidCrossEntropyBody {
  const float* logits;
  const float* labels;
  float scale;
  float* loss;
  float* d_logits;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const float x = logits[i], y = labels[i] < 0 ? 0 : labels[i];
    const float decay = expf(-fabsf(x));
    loss[i] = (x > 0 ? x : 0) - x * y + log1pf(decay);
    d_logits[i] = ((x < 0 ? decay : 1.0f) / (1.0f + decay) - y) * scale;
  }
};

// i: row.
struct SoftmaxCrossEntropyBody {
  const float* logits;
  const float* labels;
  uint32_t classes;
  float scale;
  float* loss;
  float* d_logits;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const float* x = logits + static_cast<uint64_t>(i) * classes;
    float* d = d_logits + static_cast<uint64_t>(i) * classes;
    float max = x[0];
    for (uint32_t c = 1; c < classes; ++c) max = x[c] > max ? x[c] : max;
    const auto label = static_cast<uint32_t>(labels[i]);
    const float own = x[label] - max;
    float sum = 0;
    for (uint32_t c = 0; c < classes; ++c) sum += d[c] = expf(x[c] - max);
    for (uint32_t c = 0; c < classes; ++c) d[c] = (d[c] / sum - (c == label ? 1.0f : 0.0f)) * scale;
    loss[i] = logf(sum) - own;
  }
};

// i: row.
struct SquaredErrorBody {
  const float* predictions;
  const float* targets;
  uint32_t width;
  float scale;
  float* loss;
  float* d_predictions;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const float share = 1.0f / static_cast<float>(width);
    float sum = 0;
    for (uint64_t at = static_cast<uint64_t>(i) * width; at < (i + uint64_t{1}) * width; ++at) {
      const float error = predictions[at] - targets[at];
      sum += error * error;
      d_predictions[at] = 2.0f * error * share * scale;
    }
    loss[i] = sum * share;
  }
};

}  // namespace cairn::kernels
