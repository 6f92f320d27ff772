// Ops on several tables in one launch, in the style of kernels_cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/ops/kernels_cuda.h"

namespace cairn::kernels {

// Tables of one launch. Kernels take them by value.
inline constexpr size_t kTablesAtOnce = 32;
template <typename T>
struct TablePointers {
  T* at[kTablesAtOnce];
};

// i: row x table x pack.
template <int kFloats>
struct GatherTablesBody {
  TablePointers<const float> tables;
  uint32_t table_count;
  const int32_t* positions;
  uint64_t position_stride;
  uint32_t packs;  // a row
  float* out;
  uint64_t out_stride;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    using P = Pack<kFloats>;
    const Index pack = i % packs, table = i / packs % table_count, row = i / packs / table_count;
    const auto from = static_cast<uint64_t>(positions[table * position_stride + row]);
    reinterpret_cast<P*>(out + row * out_stride)[table * packs + pack] =
        reinterpret_cast<const P*>(tables.at[table])[from * packs + pack];
  }
};

// i: row.
struct AddTablesByPositionBody {
  TablePointers<const float> tables;
  uint32_t table_count;
  const int32_t* positions;
  uint64_t position_stride;
  float* sums;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    float sum = sums[i];
    for (uint32_t t = 0; t < table_count; ++t) {
      sum += tables.at[t][positions[t * position_stride + i]];
    }
    sums[i] = sum;
  }
};

// One pointer for each key column; those of one table are equal. i: row x key column x column of
// the row.
struct SumRowsOfTablesBody {
  const float* d_out;
  uint64_t d_out_stride, column_stride;
  uint32_t width;
  const int32_t* positions;
  uint64_t position_stride;
  TablePointers<float> sums;
  uint32_t table_count;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index column = i % width, table = i / width % table_count, row = i / width / table_count;
    const auto to = static_cast<uint64_t>(positions[table * position_stride + row]);
    AtomicAdd(sums.at[table] + to * width + column,
              d_out[row * d_out_stride + table * column_stride + column]);
  }
};

// Adds up the chunks (sum_order.h) of several tables. i: chunk x column, from the first table's
// first chunk on.
struct SumChunksBody {
  const float* d_out;
  uint64_t d_out_stride, column_stride;
  uint32_t width;
  const int32_t* positions;
  uint32_t rows;   // the number of terms of each key column
  uint32_t count;  // and of each table
  const int32_t* order;
  const int32_t* chunks;
  const int32_t* numbers;  // the numbers of the chunks' parts
  uint32_t first_table;
  TablePointers<float> sums;
  float* parts;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index chunk = i / width, column = i % width;
    const int32_t begin = chunks[chunk], end = chunks[chunk + 1];
    float total = 0;
    for (int32_t n = begin; n < end; ++n) {
      const auto term = static_cast<uint32_t>(order[n]);
      total += d_out[term % rows * d_out_stride + term / rows * column_stride + column];
    }
    const int32_t part = numbers[chunk];
    if (part < 0) {
      const auto any = static_cast<uint32_t>(order[begin]);
      const auto row = static_cast<uint64_t>(positions[any]);
      sums.at[any / count - first_table][row * width + column] = total;
    } else {
      parts[static_cast<uint64_t>(part) * width + column] = total;
    }
  }
};

// Joins the parts of rows. i: row with several parts x column, from the first table's first such
// row on.
struct JoinPartsBody {
  const float* parts;
  uint32_t width;
  const int32_t* positions;
  uint32_t count;
  const int32_t* joined;
  const int32_t* joined_terms;
  uint32_t first_table;
  TablePointers<float> sums;
  template <typename Index>
  CAIRN_ANYWHERE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    float total = 0;
    for (int32_t part = joined[row]; part < joined[row + 1]; ++part) {
      total += parts[static_cast<uint64_t>(part) * width + column];
    }
    const auto term = static_cast<uint32_t>(joined_terms[row]);
    const auto at = static_cast<uint64_t>(positions[term]);
    sums.at[term / count - first_table][at * width + column] = total;
  }
};

}  // namespace cairn::kernels
