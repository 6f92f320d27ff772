// The order in which a GPU adds the gradients of repeated rows if sums must be deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// The terms of the sums of several tables: term t * count + r, the r-th of table t, adds to row
// positions[t * count + r] of that table. The terms of a row follow each other in `order`, in
// ascending order, cut into chunks, so that no thread adds many terms even if a few rows have most
// of them. The sum of a row with one chunk is complete; those of the others' chunks are parts,
// which a second launch joins. Pointers are device memory.
struct SumOrder {
  const int32_t* order = nullptr;   // null: there is no order
  const int32_t* chunks = nullptr;  // [chunk_count + 1]: the first term of each in `order`
  const int32_t* parts = nullptr;   // [chunk_count]: the number of its part; -1: the sum itself
  const int32_t* joined = nullptr;  // [joined_count + 1]: the first part of each row of several
  const int32_t* joined_terms = nullptr;  // [joined_count]: a term of that row
  // By table and one more: the first chunk, and the first row of several chunks. Host memory.
  absl::Span<const int32_t> table_chunks = {}, table_joined = {};
  size_t part_count = 0;
};

// Builds SumOrders in host memory. Thread safety: none.
class SumOrderBuilder {
 public:
  // Of positions [tables, count]; table t has distinct[t] rows, each with a term.
  void Build(absl::Span<const int32_t> positions, size_t count, absl::Span<const size_t> distinct);

  // All arrays for the device, one after the other.
  const std::vector<int32_t>& numbers() const { return numbers_; }
  // At most so many numbers for `terms` terms.
  static size_t MostNumbers(size_t terms) { return 5 * terms + 2; }
  // The order whose arrays are at `numbers`, a copy of numbers(). Valid until Build.
  SumOrder At(const int32_t* numbers) const;

 private:
  size_t terms_ = 0, chunk_count_ = 0, joined_count_ = 0, part_count_ = 0;
  std::vector<int32_t> numbers_, table_chunks_, table_joined_;
};

}  // namespace cairn
