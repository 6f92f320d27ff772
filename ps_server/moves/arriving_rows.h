// The target's side of a move: gathers what comes, in memory and in the store, until it is whole.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/variables/variable_spec.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/rows/variable.h"
#include "storage/stripe_store.h"

namespace cairn {

// Rows that are in the source's memory come to memory while there is room below the mark from which
// rows leave it, up to a quarter of the budget; the others are cold from the beginning
// (COLD_ROWS.md).
// Thread safety: none; nobody else knows its stripes.
class ArrivingRows {
 public:
  // For what `map` gives to server `server_index` beyond what `there` has. kResourceExhausted:
  // MEMORY_BUDGET.
  static absl::StatusOr<std::unique_ptr<ArrivingRows>> Make(const Variable& there,
                                                            const VariableSpec& map,
                                                            int32_t server_index,
                                                            MemoryBudget& budget);

  // A variable of these rows alone.
  const std::shared_ptr<Variable>& variable() const { return variable_; }
  std::vector<StripeId> ids() const;

  // Pieces, as the source reads them; they are in the store, not synced, when it returns.
  // kInvalidArgument: not pieces of this move. Errors of the store; what came before is kept.
  absl::Status Write(absl::string_view pieces, StripeStore& store);
  // After the last Write: kFailedPrecondition where stripes are missing, or how far workers are.
  absl::Status CheckWhole() const;
  // Of every worker as the source knows it, in the place of sequences.
  const std::vector<Watermark>& incarnations() const { return incarnations_; }
  // Of shards, as they are to be.
  std::vector<ShardRecord> shards() const;

 private:
  explicit ArrivingRows(MemoryBudget& budget) : budget_(budget) {}
  // nullptr: none of this move.
  Stripe* Find(uint32_t shard, uint32_t stripe) const;
  absl::Status WriteRows(const struct MovePiece& piece, EmbeddingStripe& stripe,
                         const StripeStore& store, StripeBatch& batch);
  absl::Status WriteBlock(EmbeddingStripe& stripe, const StoredRows& rows, bool cold,
                          const StripeStore& store, StripeBatch& batch);
  absl::Status WriteStripe(const struct MovePiece& piece, StripeStore& store);
  absl::Status SetRules(const struct MovePiece& piece);
  absl::Status WriteNumbers(const struct MovePiece& piece, StripeStore& store);
  absl::Status WriteShard(const struct MovePiece& piece);

  MemoryBudget& budget_;
  std::shared_ptr<Variable> variable_;
  std::unordered_set<StripeId, absl::Hash<StripeId>> written_;
  // Those that had come to the source from elsewhere: its numbers say nothing about them.
  std::unordered_set<StripeId, absl::Hash<StripeId>> exact_;
  std::vector<Watermark> incarnations_;
  bool numbered_ = false;   // since the last stripe was written
  int64_t rows_bytes_ = 0;  // of the budget, for rows in memory
};

}  // namespace cairn
