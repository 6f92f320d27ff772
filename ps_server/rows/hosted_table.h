// The buckets of an embedding table that live on this server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "ps_server/rows/embedding_stripe.h"
#include "ps_server/rows/hosted_shard.h"
#include "ps_server/rows/key_groups.h"
#include "ps_server/rows/row_census.h"
#include "ps_server/rows/row_counts.h"

namespace cairn {

// Locates the rows of a request's keys, and loads cold rows, before the request changes them: a key
// without a row in memory may have one on disk. Thread safety: none.
class RowResolver {
 public:
  virtual ~RowResolver() = default;
  // Loads the rows of `groups`, some of the request's groups, again: they may have been evicted
  // since they were loaded. False: the disk could not be read, and the request must stop.
  virtual bool Fetch(absl::Span<const KeyGroup> groups) = 0;

  // Forgets all rows: nothing is located.
  void Clear() { rows.clear(), departures.clear(); }
  bool located() const { return !departures.empty(); }

  std::vector<uint32_t> rows;        // in the order of KeyGroups, as input of RowTable::FindAgain
  std::vector<uint64_t> departures;  // by group: departures() when the rows were located
};

// Thread safety: every method may be called from several threads at once.
class HostedTable final : public HostedShard {
 public:
  HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
              int32_t server_index);
  // The same table with another map. Stripes that stay here are shared with `before`; its other
  // stripes end with it. Stripes that are new here are taken from `arriving` as they are (null:
  // none). Neither table may be updated during this call; `before` may be read during and after it.
  // *leaving_bytes: memory of the stripes that end.
  HostedTable(const HostedTable& before, absl::Span<const int32_t> bucket_ps, int32_t server_index,
              const HostedTable* arriving, int64_t* leaving_bytes);

  int64_t first_row() const override { return 0; }
  // Includes rows that are only on disk.
  int64_t row_count() const override { return rows_in_memory() + cold_rows(); }
  int64_t rows_in_memory() const { return core_->in_memory.load(std::memory_order_relaxed); }
  int64_t cold_rows() const { return core_->cold.load(std::memory_order_relaxed); }
  int64_t stripe_count() const override { return local_buckets_; }
  // Rows at their charge to the memory budget, waiting keys, and the stripes themselves.
  int64_t memory_bytes() const override {
    return fixed_bytes() + waiting_bytes() + rows_in_memory() * layout().row_charge();
  }
  std::vector<int64_t> uses() const override;
  int64_t waiting_bytes() const { return core_->waiting_bytes.load(std::memory_order_relaxed); }
  int64_t fixed_bytes() const { return FixedBytes(stripes_.size(), local_buckets_); }
  static int64_t FixedBytes(size_t buckets, int64_t local_buckets);

  const TableLayout& layout() const { return core_->layout; }
  // The stored size of a row, and a copy of part `part` of a stored row to `to` [dim].
  size_t row_bytes() const { return RowTable::kStampBytes + layout().row.bytes(); }
  void CopyStored(const char* row, size_t part, float* to) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(row);
    layout().row.ExpandPart(part, bytes + RowTable::kStampBytes, to);
  }
  uint32_t bucket_count() const { return static_cast<uint32_t>(stripes_.size()); }
  bool all_buckets_here() const { return local_buckets_ == static_cast<int64_t>(stripes_.size()); }
  // nullptr if the bucket is on another server.
  EmbeddingStripe* stripe(uint32_t bucket) const { return stripes_[bucket].get(); }
  // Adjusts the counts of rows in memory and of cold rows.
  void CountRows(int64_t in_memory, int64_t cold) {
    core_->in_memory.fetch_add(in_memory, std::memory_order_relaxed);
    core_->cold.fetch_add(cold, std::memory_order_relaxed);
  }
  // Adds to the memory of waiting keys.
  void CountWaiting(int64_t bytes) {
    core_->waiting_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Whether keys must be pushed several times before they get a row.
  bool some_wait() const { return layout().admit_after_pushes > 1; }
  RowCounts& counts() const { return core_->counts; }
  RowCensus census() const { return core_->census.Of(*this); }
  // Keeps the optimizer alive as long as any stripe.
  void KeepAlive(std::shared_ptr<const void> kept) { core_->kept = std::move(kept); }
  // Memory that rows no longer use, kept for new rows.
  int64_t idle_bytes() const;
  // Returns idle memory to the system: `bytes`, or a little more, or as much as possible. Moves
  // rows to empty whole blocks. Returns how many bytes were returned. One thread at a time.
  int64_t ReturnIdle(int64_t bytes);

  // In the methods below, all groups must be of buckets on this server.
  // Counts keys without a row in memory; a repeated key counts each time.
  int64_t CountAbsent(const KeyGroups& groups) const;
  // Called, without any lock and before later keys are looked up, with the positions of keys that
  // have no row in memory and may have a cold row. Positions increase from call to call, and all
  // positions of a group come in one call.
  using Missing = absl::FunctionRef<void(absl::Span<const uint32_t> at)>;
  // Records in `resolver` where the rows of `groups`, some of the groups of `all`, are. Returns how
  // many of their keys have no row in memory.
  int64_t Locate(const KeyGroups& all, absl::Span<const KeyGroup> groups, RowResolver& resolver,
                 Missing missing) const;

  struct Changed {
    bool any = false;           // false: every stripe had applied the origin's part before
    int64_t made = 0;           // rows created
    int64_t not_admitted = 0;   // keys, counting repeats
    int64_t waiting_bytes = 0;  // memory that keys without a row took
  };
  // Applies one update to each key's row; creates the row first if there is none and the table
  // admits the key. `gradients`: [keys, dim]. `likely`: where the keys' rows probably are, as input
  // of RowTable::FindAgain in the order of KeyGroups; null: unknown. If `resolver` fails or an
  // allocation throws, the work done until then stays done and is counted in `changed`; each stripe
  // is updated as a whole or not at all.
  void Push(const UpdateStep& step, const Origin& origin, const KeyGroups& groups,
            const float* gradients, const uint32_t* likely, TableScratch& scratch,
            RowResolver& resolver, Changed& changed);
  // Writes part `part` of each key's row to out [keys, dim]; keys without a row have their initial
  // value. Writes nothing for keys that are passed to `missing`. `found`, unless null, receives
  // where the rows are, in the order of KeyGroups; RowTable::kNone: there is no row in memory.
  void Pull(size_t part, const KeyGroups& groups, float* out, uint32_t* found,
            Missing missing) const;
  // As HostedDense::AssignRows. `made`: number of rows created. `resolver` as in Push.
  void Assign(size_t part, const Origin& origin, const KeyGroups& groups, const float* values,
              std::vector<TouchedStripe>& touched, RowResolver& resolver, int64_t& made);

 private:
  // Shared by the stripes that were created together.
  struct Core {
    Core(TableLayout table_layout, size_t chunk_bytes)
        : layout(std::move(table_layout)), pool(chunk_bytes) {}
    const TableLayout layout;
    ChunkPool pool;
    std::atomic<int64_t> in_memory{0};  // rows
    std::atomic<int64_t> cold{0};       // rows
    std::atomic<int64_t> waiting_bytes{0};
    mutable RowCounts counts;
    mutable CensusTaker census;
    std::shared_ptr<const void> kept;
  };
  class Window;
  // How ForEachWindow continues after a window.
  enum class Next { kWindow, kSameAgain, kNone };
  // Calls visit(window) with the locked stripes of some `groups` at a time; then, without the
  // locks, after(groups of the window, result of visit), which decides how to continue.
  template <typename Visit, typename After>
  static void ForEachWindow(const HostedTable& table, absl::Span<const KeyGroup> groups,
                            bool shared, Visit visit, After after);
  // ForEachWindow for reads: visit(window, missing) appends positions of keys to `missing`.
  template <typename Visit>
  void Read(absl::Span<const KeyGroup> groups, Missing missing, Visit visit) const;
  // ForEachWindow for changes: visit(window) returns false if rows must be loaded first.
  template <typename Visit>
  void Update(absl::Span<const KeyGroup> groups, RowResolver& resolver, Visit visit) const;
  // Counts the push of the keys in scratch.absent, which have no row, and takes the rows of the
  // keys that are admitted.
  static void Admit(const Window& window, const KeyGroups& groups, TableScratch& scratch,
                    absl::Span<bool> repeats, Changed& changed);
  // False if a key of the window may have a row that is on disk only.
  bool AllHere(const KeyGroups& groups, const Window& window, const RowResolver& resolver) const;

  // All pools that may contain rows of these stripes.
  std::vector<ChunkPool*> pools() const;
  // Empties one block of `pool` and returns its size; 0 if none can be emptied.
  int64_t ReturnBlock(ChunkPool& pool);

  const std::shared_ptr<Core> core_;
  std::vector<std::shared_ptr<Core>> arrived_;  // of stripes that came from other servers
  std::vector<std::shared_ptr<EmbeddingStripe>> stripes_;  // by bucket
  int64_t local_buckets_ = 0;
};

}  // namespace cairn
