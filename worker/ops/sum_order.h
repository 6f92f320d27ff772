// The order in which a GPU adds the gradients of repeated rows if sums must be deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// The order of the terms of several tables' sums. Term t * count + r, the r-th of table t, adds to
// row positions[t * count + r] of that table. In `order` the terms of one row are adjacent and
// ascending. They are cut into chunks, so that no thread adds many terms even if a few rows have
// most of them. The sum of a row with one chunk is complete; the sums of the chunks of other rows
// are parts, which a second launch joins. Pointers are device memory.
struct SumOrder {
  const int32_t* order = nullptr;   // null: there is no order
  const int32_t* chunks = nullptr;  // [chunk_count + 1]: the first term of each in `order`
  const int32_t* parts = nullptr;   // [chunk_count]: the chunk's part; -1: it is its row's sum
  const int32_t* joined = nullptr;  // [joined_count + 1]: the first part of each row with parts
  const int32_t* joined_terms = nullptr;  // [joined_count]: a term of that row
  // For each table, and one entry more: its first chunk, and its first row with several chunks.
  // Host memory.
  absl::Span<const int32_t> table_chunks = {}, table_joined = {};
  size_t part_count = 0;
};

// Builds SumOrders in host memory. Thread safety: none.
class SumOrderBuilder {
 public:
  // Builds the order for positions [tables, count]; table t has distinct[t] rows, each with a term.
  void Build(absl::Span<const int32_t> positions, size_t count, absl::Span<const size_t> distinct);

  // All arrays for the device, one after the other.
  const std::vector<int32_t>& numbers() const { return numbers_; }
  // Upper bound of the size of numbers() for `terms` terms.
  static size_t MostNumbers(size_t terms) { return 5 * terms + 2; }
  // The order whose arrays are at `numbers`, which holds a copy of numbers(). Valid until the next
  // Build.
  SumOrder At(const int32_t* numbers) const;

 private:
  size_t terms_ = 0, chunk_count_ = 0, joined_count_ = 0, part_count_ = 0;
  std::vector<int32_t> numbers_, table_chunks_, table_joined_;
};

}  // namespace cairn
