// How requests reach rows that are on disk alone (COLD_ROWS.md).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps_server/hosted_table.h"
#include "ps_server/memory_budget.h"
#include "ps_server/server_core.h"
#include "ps_server/variable.h"
#include "storage/cold_rows.h"

namespace cairn {

// Keys of one table without a row in memory, read from disk together.
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

  // Calls `take` once for each key among the positions `missing`, which are reordered; before it,
  // for each block of keys, `block`. Errors as StripeStore::ReadCold; then some keys are taken.
  absl::Status Read(const StripeStore& store, const Variable& variable, const KeyGroups& groups,
                    std::vector<uint32_t>& missing, Block block, Take take);

 private:
  void Order(const KeyGroups& groups, std::vector<uint32_t>& missing);
  absl::Status ReadBlock(const StripeStore& store, const HostedTable& table,
                         const KeyGroups& groups, absl::Span<const uint32_t> missing, Block block,
                         Take take);
  void TakeStripe(EmbeddingStripe& stripe, const KeyGroups& groups,
                  absl::Span<const uint32_t> missing, uint64_t departures, size_t first_key,
                  Take take);

  std::vector<uint32_t> bucket_of_;  // by position, of those that are missing
  std::vector<ColdKey> keys_;
  std::vector<uint64_t> departures_;
  ColdRows rows_;
  std::vector<uint32_t> again_;  // keys whose stripe lost rows meanwhile
};

// The rows of a push or an assign. Reused from one request to the next.
class ColdFetch final : public Presence {
 public:
  // A new request, which keeps `groups` until it has ended.
  void Begin(ServerCore& core, Variable& variable, const KeyGroups& groups);
  // Where the table has cold rows: looks which are missing, and returns the memory that the request
  // needs for their rows. 0: none.
  int64_t Locate();
  // The memory that rows are made in; outlives the request.
  void UseHold(MemoryHold& hold) { hold_ = &hold; }
  // Brings and makes them.
  absl::Status FetchLocated() { return missing_.empty() ? absl::OkStatus() : FetchMissing(); }
  bool Fetch(absl::Span<const KeyGroup> groups) override;
  // OK, or why Fetch failed: the request is half applied, so the server refuses others from then on
  // (Flusher::Refuse), and has this one sent again once it is restarted.
  absl::Status Failure() const;

 private:
  absl::Status FetchMissing();

  ServerCore* core_ = nullptr;
  Variable* variable_ = nullptr;
  const KeyGroups* groups_ = nullptr;
  MemoryHold* hold_ = nullptr;
  std::vector<uint32_t> missing_;
  ColdReader reader_;
  absl::Status status_;
};

// Of a request with several items: memory for the rows that are not in it, and they. `what` needs
// it. Errors as MemoryBudget::Acquire and, where the disk cannot be read, Flusher::Refuse.
absl::Status FetchRows(ServerCore& core, absl::Span<ColdFetch* const> fetches,
                       absl::string_view what, MemoryHold& hold);

// Answers a pull for the positions `missing`, which HostedTable::Pull left out. BUSY: rows of them
// have been given to another server meanwhile.
absl::Status PullCold(ServerCore& core, Variable& variable, size_t part, const KeyGroups& groups,
                      std::vector<uint32_t>& missing, float* out);

// BUSY: whoever comes again is told where the rows are.
absl::Status GivenAwayError(const Variable& variable);

}  // namespace cairn
