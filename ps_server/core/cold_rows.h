// How requests reach rows that are on disk alone (COLD_ROWS.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/core/row_access.h"
#include "ps_server/rows/hosted_table.h"
#include "ps_server/rows/variable.h"
#include "storage/cold_rows.h"
#include "storage/helper_pool.h"
#include "storage/stripe_store.h"

namespace cairn {

// Reads the rows of keys that have no row in memory from disk, many at a time, and while other keys
// of the request are still looked up. Reused from one request to the next.
// Thread safety: none; other threads may use the table in the meantime.
class ColdReader {
 public:
  // A key's row, found after the disk was read.
  struct Row {
    EmbeddingStripe& stripe;  // locked
    int64_t key;
    uint32_t row;      // RowTable::kNone: not in memory
    const char* cold;  // if not in memory: its record on disk; nullptr: the key has no row
  };
  // `at`: the positions of the key in KeyGroups' order.
  using Take = absl::FunctionRef<void(const Row& row, absl::Span<const uint32_t> at)>;
  // `found`: how many cold rows a block of keys has. Called without a lock.
  using Block = absl::FunctionRef<void(size_t found)>;

  // Begins a new request. The arguments must live until its Finish or Abandon.
  void Begin(const StripeStore& store, const HostedTable& table, const KeyGroups& groups);
  // Adds keys, given as by HostedTable::Missing. The store's helper threads begin to read the first
  // block.
  void Add(absl::Span<const uint32_t> missing);
  bool any() const { return !missing_.empty(); }
  // Reads what helpers have not read. For each block of keys, calls `block`, then `take` once for
  // each key. Errors as StripeStore::ReadCold, after which some keys may have been taken.
  absl::Status Finish(Block block, Take take);
  // Ends the request: nothing more is read or taken.
  void Abandon();

 private:
  // Keys read together: bounds their memory, and how long the first of them waits.
  static constexpr size_t kBlockKeys = 4096;
  // Keys read by one thread: few, so that helpers begin early.
  static constexpr size_t kPieceKeys = 64;

  // Keys that one thread reads; used by that thread alone in the meantime.
  struct Piece {
    std::vector<ColdKey> keys;
    std::vector<uint64_t> departures;  // of the keys' stripes, before they were read
    ColdRows rows;
    absl::Status status;
  };

  void AddGroup(const KeyGroup& group, absl::Span<const uint32_t> missing);
  void AddKey(const ColdKey& key, uint64_t departures);
  void ReadPiece(size_t piece);
  // Reads the rest of the block.
  absl::Status ReadBlock();
  void TakeBlock(Block block, Take take);
  // Takes the keys from `first_key` of the block on. Returns how many there are.
  size_t TakeStripe(EmbeddingStripe& stripe, absl::Span<const uint32_t> missing, size_t first_key,
                    Take take);

  const StripeStore* store_ = nullptr;
  const HostedTable* table_ = nullptr;
  const KeyGroups* groups_ = nullptr;
  // kBlockKeys / kPieceKeys; null before the first key, because most readers never have one.
  std::unique_ptr<Piece[]> pieces_;
  size_t used_ = 0;                     // pieces with keys or rows
  size_t key_count_ = 0;                // keys in all pieces
  std::vector<uint32_t> missing_;       // positions of the block's keys, by bucket and key
  std::vector<uint32_t> later_;         // positions of keys for further blocks, or to be read again
  std::optional<HelperPool::Job> job_;  // reads full pieces; destroyed before them
};

// The rows of a push or an assign. Reused from one request to the next.
class ColdFetch final : public RowResolver {
 public:
  // Begins a new request. `groups` must live until it ends.
  void Begin(const RowAccess& access, Variable& variable, const KeyGroups& groups);
  // If the table has cold rows: finds the keys without a row in memory, begins to read their rows,
  // and returns the memory that the request needs for them. FetchLocated or Abandon must follow.
  int64_t Locate();
  // Charges new rows to `hold`, which must outlive the request.
  void UseHold(MemoryHold& hold) { hold_ = &hold; }
  // Loads or creates the located rows.
  absl::Status FetchLocated() { return reader_.any() ? FetchMissing() : absl::OkStatus(); }
  void Abandon() { reader_.Abandon(); }
  bool Fetch(absl::Span<const KeyGroup> groups) override;
  // OK, or why Fetch failed. The request is half applied then: the server rejects all others
  // (Flusher::Refuse), and the client sends this one again after the restart.
  absl::Status Failure() const;

 private:
  struct Located {
    int64_t absent = 0;   // keys without a row in memory
    int64_t missing = 0;  // keys of these that may have a cold row
  };
  Located LocateSome(absl::Span<const KeyGroup> groups);
  absl::Status FetchMissing();

  const RowAccess* access_ = nullptr;
  Variable* variable_ = nullptr;
  const KeyGroups* groups_ = nullptr;
  MemoryHold* hold_ = nullptr;
  ColdReader reader_;
  absl::Status status_;
};

// For a request with several items: acquires memory for the rows that are not in memory, then loads
// or creates them. `what` names the request in messages. Errors as MemoryBudget::Acquire; if the
// disk cannot be read, as Flusher::Refuse.
absl::Status FetchRows(const RowAccess& access, absl::Span<ColdFetch* const> fetches,
                       absl::string_view what, MemoryHold& hold);

// Like HostedTable::Pull, also for cold rows, which are read while the others are copied. BUSY:
// cold rows were handed over to another server in the meantime. Otherwise errors as
// StripeStore::ReadCold.
absl::Status PullTable(const RowAccess& access, Variable& variable, size_t part,
                       const KeyGroups& groups, float* out, uint32_t* found);

// BUSY: a retry learns which server has the rows.
absl::Status HandedOverError(const Variable& variable);

}  // namespace cairn
