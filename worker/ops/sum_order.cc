#include "worker/ops/sum_order.h"

#include <algorithm>
#include <cmath>

namespace cairn {
namespace {

// Shorter chunks would cost more in the second launch than they save in the first.
constexpr int32_t kShortestChunk = 32;

}  // namespace

void SumOrderBuilder::Build(absl::Span<const int32_t> positions, size_t count,
                            absl::Span<const size_t> distinct) {
  const size_t tables = distinct.size();
  std::vector<int32_t> order(positions.size()), chunks, parts, joined, joined_terms;
  table_chunks_.clear();
  table_joined_.clear();
  int32_t part = 0;
  std::vector<int32_t> ends;
  for (size_t t = 0; t < tables; ++t) {
    table_chunks_.push_back(static_cast<int32_t>(chunks.size()));
    table_joined_.push_back(static_cast<int32_t>(joined.size()));
    const auto first = static_cast<int32_t>(t * count);
    // The rest is a counting sort by row.
    ends.assign(distinct[t] + 1, 0);
    const absl::Span<const int32_t> own = positions.subspan(t * count, count);
    for (const int32_t row : own) ++ends[static_cast<size_t>(row) + 1];
    const int32_t most = *std::ranges::max_element(ends);
    // With this length both launches add about as many numbers for the row with the most terms.
    const int32_t chunk =
        std::max(kShortestChunk, static_cast<int32_t>(std::ceil(std::sqrt(most))));
    for (size_t row = 0; row < distinct[t]; ++row) ends[row + 1] += ends[row];
    for (size_t r = 0; r < count; ++r) {
      order[t * count + static_cast<size_t>(ends[static_cast<size_t>(own[r])]++)] =
          first + static_cast<int32_t>(r);
    }
    // Now ends[row] is the end of the row's terms.
    for (size_t row = 0; row < distinct[t]; ++row) {
      const int32_t begin = row == 0 ? 0 : ends[row - 1], end = ends[row];
      const bool several = end - begin > chunk;
      if (several) {
        joined.push_back(part);
        joined_terms.push_back(order[static_cast<size_t>(first + begin)]);
      }
      for (int32_t at = begin; at < end; at += chunk) {
        chunks.push_back(first + at);
        parts.push_back(several ? part++ : -1);
      }
    }
  }
  table_chunks_.push_back(static_cast<int32_t>(chunks.size()));
  table_joined_.push_back(static_cast<int32_t>(joined.size()));
  chunks.push_back(static_cast<int32_t>(order.size()));
  joined.push_back(part);
  terms_ = order.size();
  chunk_count_ = parts.size();
  joined_count_ = joined_terms.size();
  part_count_ = static_cast<size_t>(part);
  numbers_ = std::move(order);
  for (const std::vector<int32_t>* array : {&chunks, &parts, &joined, &joined_terms}) {
    numbers_.insert(numbers_.end(), array->begin(), array->end());
  }
}

SumOrder SumOrderBuilder::At(const int32_t* numbers) const {
  SumOrder order;
  order.order = numbers;
  order.chunks = order.order + terms_;
  order.parts = order.chunks + chunk_count_ + 1;
  order.joined = order.parts + chunk_count_;
  order.joined_terms = order.joined + joined_count_ + 1;
  order.table_chunks = table_chunks_;
  order.table_joined = table_joined_;
  order.part_count = part_count_;
  return order;
}

}  // namespace cairn
