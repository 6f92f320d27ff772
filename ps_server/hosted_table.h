// The buckets of an embedding table that live on this server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "ps_server/embedding_stripe.h"
#include "ps_server/hosted_shard.h"
#include "ps_server/key_groups.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class HostedTable final : public HostedShard {
 public:
  HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
              int32_t server_index);

  int64_t first_row() const override { return 0; }
  int64_t row_count() const override { return rows_.load(std::memory_order_relaxed); }
  int64_t stripe_count() const override { return local_buckets_; }
  // Rows at their charge to the memory budget, and the stripes themselves.
  int64_t memory_bytes() const override {
    return fixed_bytes() + row_count() * layout_.row_charge();
  }
  int64_t fixed_bytes() const { return FixedBytes(stripes_.size(), local_buckets_); }
  static int64_t FixedBytes(size_t buckets, int64_t local_buckets);

  const TableLayout& layout() const { return layout_; }
  uint32_t bucket_count() const { return static_cast<uint32_t>(stripes_.size()); }
  bool all_buckets_here() const { return local_buckets_ == static_cast<int64_t>(stripes_.size()); }
  // nullptr where the bucket lives elsewhere.
  EmbeddingStripe* stripe(uint32_t bucket) const { return stripes_[bucket].get(); }
  // Rows that were loaded into stripes.
  void CountLoaded(int64_t rows) { rows_.fetch_add(rows, std::memory_order_relaxed); }

  // Below, all groups must be of buckets that live here.
  int64_t CountAbsent(const KeyGroups& groups, TableScratch& scratch) const;

  struct Changed {
    bool any = false;  // false: every stripe had the origin's part already
    int64_t made = 0;  // rows
  };
  Changed Push(const UpdateStep& step, const Origin& origin, const KeyGroups& groups,
               const float* gradients, TableScratch& scratch);
  void Pull(size_t part, const KeyGroups& groups, float* out) const;
  // As HostedDense::AssignRows. Returns the number of rows made.
  int64_t Assign(size_t part, const Origin& origin, const KeyGroups& groups, const float* values,
                 std::vector<TouchedStripe>& touched);

 private:
  const TableLayout layout_;
  ChunkPool pool_;
  std::vector<std::unique_ptr<EmbeddingStripe>> stripes_;  // by bucket
  int64_t local_buckets_ = 0;
  std::atomic<int64_t> rows_{0};
};

}  // namespace cairn
