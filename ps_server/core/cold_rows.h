// How requests reach rows that are on disk alone (COLD_ROWS.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

// Keys of one table without a row in memory, read from disk together, and while others of the
// request are still looked up. Reused from one request to the next.
// Thread safety: none; other threads may use the table meanwhile.
class ColdReader {
 public:
  // A key's row as it is found once the disk was read, in memory or not.
  struct Row {
    EmbeddingStripe& stripe;  // locked
    int64_t key;
    uint32_t row;      // RowTable::kNone: not in memory
    const char* cold;  // else as the disk has it; nullptr: nowhere
  };
  // `at`: the positions of the key in KeyGroups' order. `block`: how many cold rows were read, with
  // no lock held.
  using Take = absl::FunctionRef<void(const Row& row, absl::Span<const uint32_t> at)>;
  using Block = absl::FunctionRef<void(size_t found)>;

  // A new request. All three are there until its Finish or Abandon.
  void Begin(const StripeStore& store, const HostedTable& table, const KeyGroups& groups);
  // As HostedTable::Missing. The store's helpers begin to read them, those of the first block.
  void Add(absl::Span<const uint32_t> missing);
  bool any() const { return !missing_.empty(); }
  // Reads what helpers have not, and calls `take` once for each key that was added; before it, for
  // each block of keys, `block`. Errors as StripeStore::ReadCold; then some keys are taken.
  absl::Status Finish(Block block, Take take);
  // Nothing is read any more, and nothing taken.
  void Abandon();

 private:
  // Read together: bounds the memory for them, and how long the first of them waits.
  static constexpr size_t kBlockKeys = 4096;
  // Read by one thread: few, so that helpers begin early.
  static constexpr size_t kPieceKeys = 64;

  // Of one thread while it is read.
  struct Piece {
    std::vector<ColdKey> keys;
    std::vector<uint64_t> departures;  // of the keys' stripes, before they were read
    ColdRows rows;
    absl::Status status;
  };

  void AddGroup(const KeyGroup& group, absl::Span<const uint32_t> missing);
  void AddKey(const ColdKey& key, uint64_t departures);
  void ReadPiece(size_t piece);
  // The rest of the block.
  absl::Status ReadBlock();
  void TakeBlock(Block block, Take take);
  // Keys from `first_key` of the block on. Returns how many.
  size_t TakeStripe(EmbeddingStripe& stripe, absl::Span<const uint32_t> missing, size_t first_key,
                    Take take);

  const StripeStore* store_ = nullptr;
  const HostedTable* table_ = nullptr;
  const KeyGroups* groups_ = nullptr;
  std::array<Piece, kBlockKeys / kPieceKeys> pieces_;
  size_t used_ = 0;                     // of them, with memory
  size_t key_count_ = 0;                // in them
  std::vector<uint32_t> missing_;       // positions of the block's keys, by bucket and key
  std::vector<uint32_t> later_;         // of further blocks, or where rows have left meanwhile
  std::optional<HelperPool::Job> job_;  // full pieces; ends before they do
};

// The rows of a push or an assign. Reused from one request to the next.
class ColdFetch final : public RowResolver {
 public:
  // A new request, which keeps `groups` until it has ended.
  void Begin(const RowAccess& access, Variable& variable, const KeyGroups& groups);
  // Where the table has cold rows: looks which are missing, begins to read them, and returns the
  // memory that the request needs for their rows. 0: none. Then FetchLocated or Abandon.
  int64_t Locate();
  // The memory that rows are made in; outlives the request.
  void UseHold(MemoryHold& hold) { hold_ = &hold; }
  // Brings and makes them.
  absl::Status FetchLocated() { return reader_.any() ? FetchMissing() : absl::OkStatus(); }
  void Abandon() { reader_.Abandon(); }
  bool Fetch(absl::Span<const KeyGroup> groups) override;
  // OK, or why Fetch failed: the request is half applied, so the server refuses others from then on
  // (Flusher::Refuse), and has this one sent again once it is restarted.
  absl::Status Failure() const;

 private:
  struct Located {
    int64_t absent = 0;   // keys without a row in memory
    int64_t missing = 0;  // of them, those that may have a cold one
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

// Of a request with several items: memory for the rows that are not in it, and they. `what` needs
// it. Errors as MemoryBudget::Acquire and, where the disk cannot be read, Flusher::Refuse.
absl::Status FetchRows(const RowAccess& access, absl::Span<ColdFetch* const> fetches,
                       absl::string_view what, MemoryHold& hold);

// As HostedTable::Pull, and cold rows, which are read while the others are copied. BUSY: rows of
// them have been given to another server meanwhile. Else as StripeStore::ReadCold.
absl::Status PullTable(const RowAccess& access, Variable& variable, size_t part,
                       const KeyGroups& groups, float* out, PulledRows* pulled);

// BUSY: whoever comes again is told where the rows are.
absl::Status GivenAwayError(const Variable& variable);

}  // namespace cairn
