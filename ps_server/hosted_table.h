// The buckets of an embedding table that live on this server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ps_server/embedding_stripe.h"
#include "ps_server/hosted_shard.h"
#include "ps_server/key_groups.h"

namespace cairn {

class HostedTable;

// Where a pull found its keys' rows, table by table. Rows stay where they are, and a worker soon
// pushes what it has pulled, so a push of the same keys need not look them up again.
// Thread safety: none.
class PulledRows {
 public:
  // A new pull: what the one before found is forgotten.
  void Clear() { used_ = 0; }
  // For as many rows as there are keys, to be filled in by KeyGroups' order; RowTable::kNone for
  // absent ones.
  uint32_t* Begin(const HostedTable& table, const KeyGroups& groups);
  // What was filled in; nullptr where the pull was not of this table or of other keys.
  const uint32_t* Of(const HostedTable& table, const KeyGroups& groups) const;

 private:
  struct Entry {
    const HostedTable* table = nullptr;  // not followed: it may be gone
    std::vector<int64_t> keys;
    std::vector<uint32_t> rows;
  };
  std::vector<Entry> entries_;
  size_t used_ = 0;  // of them; the others keep their memory
};

// Thread safety: every method may be called from several threads at once.
class HostedTable final : public HostedShard {
 public:
  HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
              int32_t server_index);
  // The same table by another map: the stripes that stay here are shared with `before`, whose
  // others end with it; those that are new here come from `arriving` (null: none), as they are. Not
  // while either is updated; `before` may be read meanwhile and afterwards.
  HostedTable(const HostedTable& before, absl::Span<const int32_t> bucket_ps, int32_t server_index,
              const HostedTable* arriving);

  int64_t first_row() const override { return 0; }
  int64_t row_count() const override { return core_->rows.load(std::memory_order_relaxed); }
  int64_t stripe_count() const override { return local_buckets_; }
  // Rows at their charge to the memory budget, and the stripes themselves.
  int64_t memory_bytes() const override {
    return fixed_bytes() + row_count() * layout().row_charge();
  }
  int64_t fixed_bytes() const { return FixedBytes(stripes_.size(), local_buckets_); }
  static int64_t FixedBytes(size_t buckets, int64_t local_buckets);

  const TableLayout& layout() const { return core_->layout; }
  uint32_t bucket_count() const { return static_cast<uint32_t>(stripes_.size()); }
  bool all_buckets_here() const { return local_buckets_ == static_cast<int64_t>(stripes_.size()); }
  // nullptr where the bucket lives elsewhere.
  EmbeddingStripe* stripe(uint32_t bucket) const { return stripes_[bucket].get(); }
  // Rows that were loaded into stripes.
  void CountLoaded(int64_t rows) { core_->rows.fetch_add(rows, std::memory_order_relaxed); }
  // Lives as long as any stripe: the optimizer.
  void KeepAlive(std::shared_ptr<const void> kept) { core_->kept = std::move(kept); }

  // Below, all groups must be of buckets that live here.
  // How many of the keys have no row; a repeated key counts each time.
  int64_t CountAbsent(const KeyGroups& groups) const;

  struct Changed {
    bool any = false;  // false: every stripe had the origin's part already
    int64_t made = 0;  // rows
  };
  // One update of each key's row, made first where absent. `gradients`: [keys, dim].
  Changed Push(const UpdateStep& step, const Origin& origin, const KeyGroups& groups,
               const float* gradients, const PulledRows& pulled, TableScratch& scratch);
  // out [keys, dim]: part `part` of each key's row, of absent ones its initial value. `pulled` may
  // be null.
  void Pull(size_t part, const KeyGroups& groups, float* out, PulledRows* pulled) const;
  // As HostedDense::AssignRows. Returns the number of rows made.
  int64_t Assign(size_t part, const Origin& origin, const KeyGroups& groups, const float* values,
                 std::vector<TouchedStripe>& touched);

 private:
  // What the stripes that were made together share.
  struct Core {
    Core(TableLayout table_layout, size_t chunk_bytes)
        : layout(std::move(table_layout)), pool(chunk_bytes) {}
    const TableLayout layout;
    ChunkPool pool;
    std::atomic<int64_t> rows{0};
    std::shared_ptr<const void> kept;
  };
  class Window;
  // Calls visit(window) with the stripes of all groups, some at a time, locked.
  template <typename Visit>
  void ForEachWindow(const KeyGroups& groups, bool shared, Visit visit) const;

  const std::shared_ptr<Core> core_;
  std::vector<std::shared_ptr<Core>> arrived_;  // of stripes that came from other servers
  std::vector<std::shared_ptr<EmbeddingStripe>> stripes_;  // by bucket
  int64_t local_buckets_ = 0;
};

}  // namespace cairn
