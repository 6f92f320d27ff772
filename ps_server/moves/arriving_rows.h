// The target's side of a move: collects the arriving rows, in memory and in the store, until they
// are complete.
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

// Rows that are in the source's memory are kept in memory here while they fit into the budget below
// its eviction mark, up to a quarter of the budget. The others are cold from the start
// (COLD_ROWS.md).
// Thread safety: none; no other thread can reach the stripes.
class ArrivingRows {
 public:
  // For the rows that `map` assigns to server `server_index` and that `there` does not have.
  // kResourceExhausted: MEMORY_BUDGET.
  static absl::StatusOr<std::unique_ptr<ArrivingRows>> Make(const Variable& there,
                                                            const VariableSpec& map,
                                                            int32_t server_index,
                                                            MemoryBudget& budget);

  // A variable that has only these rows.
  const std::shared_ptr<Variable>& variable() const { return variable_; }
  std::vector<StripeId> ids() const;

  // Writes pieces as the source reads them. When it returns they are in the store, not synced.
  // kInvalidArgument: the pieces do not belong to this move. Also errors of the store. Earlier
  // pieces are kept.
  absl::Status Write(absl::string_view pieces, StripeStore& store);
  // Called after the last Write. kFailedPrecondition: stripes or the workers' sequences are
  // missing.
  absl::Status CheckWhole() const;
  // The incarnation of every worker known to the source, in place of a sequence.
  const std::vector<Watermark>& incarnations() const { return incarnations_; }
  // The records of the shards after the move.
  std::vector<ShardRecord> shards() const;

 private:
  explicit ArrivingRows(MemoryBudget& budget) : budget_(budget) {}
  // nullptr: the stripe does not belong to this move.
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
  // Stripes that had come to the source from another server: the source's sequences do not apply to
  // them.
  std::unordered_set<StripeId, absl::Hash<StripeId>> exact_;
  std::vector<Watermark> incarnations_;
  bool numbered_ = false;   // sequences have arrived since the last stripe
  int64_t rows_bytes_ = 0;  // bytes of the budget for rows in memory
};

}  // namespace cairn
