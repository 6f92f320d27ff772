// The source's side of a move: reads the rows while they are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "ps_server/moves/outgoing_cold.h"
#include "ps_server/rows/variable.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: none. Other threads may use the stripes.
class OutgoingRows {
 public:
  // The stripes of `variable` that `map` assigns to server `target`.
  OutgoingRows(std::shared_ptr<Variable> variable, const VariableSpec& map, int32_t target);

  Variable& variable() { return *variable_; }
  int64_t stripes() const { return static_cast<int64_t>(parts_.size()); }
  // Current sizes, including rows that are only on disk.
  int64_t rows() const;
  int64_t bytes() const;
  // Size of the largest stripe in memory.
  int64_t largest_bytes() const;

  // Appends pieces of stripes that changed since they were last read, until there are `max_bytes`
  // or this pass has visited all stripes. Returns about how many bytes are left in the pass; 0: the
  // pass has ended, and the next call begins another. Errors as in StripeStore::ScanCold.
  absl::StatusOr<int64_t> Read(const StripeStore& store, int64_t max_bytes, std::string* pieces);
  // Called while updates are rejected, when the stripes no longer change: appends each worker's
  // last sequence.
  void AppendNumbers(absl::Span<const Watermark> numbers, absl::Span<const Watermark> incarnations,
                     std::string* pieces) const;
  // Whether nothing has changed since it was last read.
  bool AllRead() const;

  std::vector<StripeId> ids() const;

 private:
  struct Part {
    HostedShard* shard = nullptr;
    EmbeddingStripe* table = nullptr;  // either this or `dense`
    DenseStripe* dense = nullptr;
    std::unique_ptr<OutgoingCold> cold;  // only for a table
    std::optional<uint64_t> read_changes;
    std::optional<uint32_t> read_updates;

    // Both take the stripe's lock. Changed: since the last read; for cold rows, ask `cold`.
    bool Changed() const;
    int64_t memory_bytes() const;
    const Stripe& stripe() const {
      return table != nullptr ? static_cast<const Stripe&>(*table) : *dense;
    }
  };

  void AppendShards(std::string* pieces) const;
  static void ReadMemory(Part& part, std::string* pieces);
  static absl::Status ReadCold(Part& part, const StripeStore& store, int64_t max_bytes,
                               std::string* pieces);

  const std::shared_ptr<Variable> variable_;
  std::vector<Part> parts_;
  std::vector<const HostedShard*> shards_;  // includes shards without a stripe
  size_t next_ = 0;                         // next part of the pass
};

}  // namespace cairn
