// The source's side of a move: reads what goes while it is in use.
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

// Thread safety: none; the stripes may be in use by others.
class OutgoingRows {
 public:
  // The stripes that `variable` has and, by `map`, server `target` is to have.
  OutgoingRows(std::shared_ptr<Variable> variable, const VariableSpec& map, int32_t target);

  Variable& variable() { return *variable_; }
  int64_t stripes() const { return static_cast<int64_t>(parts_.size()); }
  // As they are now; those on disk alone, too.
  int64_t rows() const;
  int64_t bytes() const;
  // The largest stripe's in memory.
  int64_t largest_bytes() const;

  // Appends pieces of stripes that changed since they were read, until there are `max_bytes` or
  // this pass has seen all of them. Returns about how many bytes the pass has left; 0: it has
  // ended, and the next call begins another. Errors as StripeStore::ScanCold.
  absl::StatusOr<int64_t> Read(const StripeStore& store, int64_t max_bytes, std::string* pieces);
  // While updates are turned away: how far workers are, for the stripes that changed no more.
  void AppendNumbers(absl::Span<const Watermark> numbers, absl::Span<const Watermark> incarnations,
                     std::string* pieces) const;
  // Whether nothing has changed since it was read.
  bool AllRead() const;

  std::vector<StripeId> ids() const;

 private:
  struct Part {
    HostedShard* shard = nullptr;
    EmbeddingStripe* table = nullptr;  // exactly one of the two
    DenseStripe* dense = nullptr;
    std::unique_ptr<OutgoingCold> cold;  // of a table
    std::optional<uint64_t> read_changes;
    std::optional<uint32_t> read_updates;

    // Both take the stripe's lock. Since it was read; of cold rows `cold` says.
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
  std::vector<const HostedShard*> shards_;  // those without a stripe included
  size_t next_ = 0;                         // of the pass
};

}  // namespace cairn
