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

namespace cairn {

class HostedTable;

// Where a pull found its keys' rows, table by table. Rows seldom move, and a worker soon pushes
// what it has pulled, so a push of the same keys need not look them up again.
// Thread safety: none.
class PulledRows {
 public:
  // The rows that this thread's last pull found, for a push of the same keys by this thread.
  static PulledRows& OfThread();

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

// The rows of a request's keys, brought to memory before the request changes them: where some of a
// table's rows are cold, a key without a row may have one on disk. Thread safety: none.
class Presence {
 public:
  virtual ~Presence() = default;
  // Brings those of `groups`, which are some of the request's: rows may have left since they were
  // brought. False: the disk could not be read, and the request ends where it is.
  virtual bool Fetch(absl::Span<const KeyGroup> groups) = 0;

  // Nothing was brought yet.
  void Clear() { rows.clear(), departures.clear(); }
  bool located() const { return !departures.empty(); }

  std::vector<uint32_t> rows;        // by KeyGroups' order, as RowTable::FindAgain takes them
  std::vector<uint64_t> departures;  // by group: the stripe's, when the rows were there
};

// What became of rows, since the start (RowFigures of the IDL).
struct RowCounts {
  std::atomic<int64_t> found{0};
  std::atomic<int64_t> loaded{0};
  std::atomic<int64_t> absent{0};
  std::atomic<int64_t> evicted{0};
  std::atomic<int64_t> not_admitted{0};
  std::atomic<int64_t> expired{0};
  std::atomic<int64_t> crowded_out{0};

  static void Add(std::atomic<int64_t>& count, int64_t more) {
    count.fetch_add(more, std::memory_order_relaxed);
  }
};

// Thread safety: every method may be called from several threads at once.
class HostedTable final : public HostedShard {
 public:
  HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
              int32_t server_index);
  // The same table by another map: the stripes that stay here are shared with `before`, whose
  // others end with it; those that are new here come from `arriving` (null: none), as they are. Not
  // while either is updated; `before` may be read meanwhile and afterwards. *leaving_bytes: the
  // memory of those that end.
  HostedTable(const HostedTable& before, absl::Span<const int32_t> bucket_ps, int32_t server_index,
              const HostedTable* arriving, int64_t* leaving_bytes);

  int64_t first_row() const override { return 0; }
  // Those on disk alone, too.
  int64_t row_count() const override { return rows_in_memory() + cold_rows(); }
  int64_t rows_in_memory() const { return core_->in_memory.load(std::memory_order_relaxed); }
  int64_t cold_rows() const { return core_->cold.load(std::memory_order_relaxed); }
  int64_t stripe_count() const override { return local_buckets_; }
  // Rows at their charge to the memory budget, keys that wait for theirs, the stripes themselves.
  int64_t memory_bytes() const override {
    return fixed_bytes() + waiting_bytes() + rows_in_memory() * layout().row_charge();
  }
  std::vector<int64_t> uses() const override;
  int64_t waiting_bytes() const { return core_->waiting_bytes.load(std::memory_order_relaxed); }
  int64_t fixed_bytes() const { return FixedBytes(stripes_.size(), local_buckets_); }
  static int64_t FixedBytes(size_t buckets, int64_t local_buckets);

  const TableLayout& layout() const { return core_->layout; }
  // Of a row as the disk has it, and its part `part`: `to` [dim].
  size_t row_bytes() const { return RowTable::kStampBytes + layout().row.bytes(); }
  void CopyStored(const char* row, size_t part, float* to) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(row);
    layout().row.ExpandPart(part, bytes + RowTable::kStampBytes, to);
  }
  uint32_t bucket_count() const { return static_cast<uint32_t>(stripes_.size()); }
  bool all_buckets_here() const { return local_buckets_ == static_cast<int64_t>(stripes_.size()); }
  // nullptr where the bucket lives elsewhere.
  EmbeddingStripe* stripe(uint32_t bucket) const { return stripes_[bucket].get(); }
  // Rows that came to the memory of stripes, or left it; that became cold, or are it no more.
  void CountRows(int64_t in_memory, int64_t cold) {
    core_->in_memory.fetch_add(in_memory, std::memory_order_relaxed);
    core_->cold.fetch_add(cold, std::memory_order_relaxed);
  }
  // More memory for keys that wait.
  void CountWaiting(int64_t bytes) {
    core_->waiting_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Whether some keys are pushed before they get a row.
  bool some_wait() const { return layout().admit_after_pushes > 1; }
  RowCounts& counts() const { return core_->counts; }
  RowCensus census() const { return core_->census.Of(*this); }
  // Lives as long as any stripe: the optimizer.
  void KeepAlive(std::shared_ptr<const void> kept) { core_->kept = std::move(kept); }
  // Memory that rows have left and others are to use.
  int64_t idle_bytes() const;
  // Gives `bytes` of it back to the system, or a little more, or what can go: it moves rows so that
  // whole blocks are empty. Returns how many have gone. One thread at a time.
  int64_t ReturnIdle(int64_t bytes);

  // Below, all groups must be of buckets that live here.
  // How many of the keys have no row in memory; a repeated key counts each time.
  int64_t CountAbsent(const KeyGroups& groups) const;
  // Told, with no lock held and while others are yet to be looked up, of keys without a row in
  // memory that may have a cold one: their positions, increasing from call to call, and all that
  // there are of a group at once.
  using Missing = absl::FunctionRef<void(absl::Span<const uint32_t> at)>;
  // Notes in `presence` where the rows of `groups` are, which are some of `all`. Returns how many
  // of the keys have none in memory.
  int64_t Locate(const KeyGroups& all, absl::Span<const KeyGroup> groups, Presence& presence,
                 Missing missing) const;

  struct Changed {
    bool any = false;           // false: every stripe had the origin's part already
    int64_t made = 0;           // rows
    int64_t not_admitted = 0;   // keys, in each of their places
    int64_t waiting_bytes = 0;  // that keys without a row took
  };
  // One update of each key's row, made first where there is none and the table admits the key.
  // `gradients`: [keys, dim]. What was done by the time at which `presence` fails, or memory is
  // refused, stays done and is in `changed`; of each stripe all or nothing is updated.
  void Push(const UpdateStep& step, const Origin& origin, const KeyGroups& groups,
            const float* gradients, const PulledRows& pulled, TableScratch& scratch,
            Presence& presence, Changed& changed);
  // out [keys, dim]: part `part` of each key's row, of absent ones its initial value. Nothing is
  // written for those that are `missing`. `pulled` may be null.
  void Pull(size_t part, const KeyGroups& groups, float* out, PulledRows* pulled,
            Missing missing) const;
  // As HostedDense::AssignRows. `made`: the number of rows made, and `presence`, as for Push.
  void Assign(size_t part, const Origin& origin, const KeyGroups& groups, const float* values,
              std::vector<TouchedStripe>& touched, Presence& presence, int64_t& made);

 private:
  // What the stripes that were made together share.
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
  // What comes after a window.
  enum class Next { kWindow, kSameAgain, kNone };
  // Calls visit(window) with the stripes of `groups`, some at a time, locked, and then, without the
  // locks, after(window's groups, what visit has returned), which says how it goes on.
  template <typename Visit, typename After>
  static void ForEachWindow(const HostedTable& table, absl::Span<const KeyGroup> groups,
                            bool shared, Visit visit, After after);
  // The same where the rows that were found are read: visit(window, missing) appends to `missing`.
  template <typename Visit>
  void Read(absl::Span<const KeyGroup> groups, Missing missing, Visit visit) const;
  // … and where they are changed: visit(window) says whether all was there, or is to be brought.
  template <typename Visit>
  void Update(absl::Span<const KeyGroup> groups, Presence& presence, Visit visit) const;
  // Counts the push of keys without a row, scratch.absent, and takes the rows of those that get
  // one.
  static void Admit(const Window& window, const KeyGroups& groups, TableScratch& scratch,
                    absl::Span<bool> repeats, Changed& changed);
  // Whether the window's keys have their rows in memory, or nowhere.
  bool AllHere(const KeyGroups& groups, const Window& window, const Presence& presence) const;

  // All pools that its stripes' rows may be in.
  std::vector<ChunkPool*> pools() const;
  // Empties one block of `pool`.
  int64_t ReturnBlock(ChunkPool& pool);

  const std::shared_ptr<Core> core_;
  std::vector<std::shared_ptr<Core>> arrived_;  // of stripes that came from other servers
  std::vector<std::shared_ptr<EmbeddingStripe>> stripes_;  // by bucket
  int64_t local_buckets_ = 0;
};

}  // namespace cairn
