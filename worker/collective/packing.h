// Packs gradients that travel together, because each small message costs latency: by size
// (collectives between processes) or into a number of equal chunks (one-process
// all-reduce between GPUs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/buffer.h"

namespace cairn {

// The properties of a gradient that packing considers.
struct PackItem {
  std::optional<int64_t> elements = {};  // absent: unknown before it is computed
  DType dtype = DType::kFloat32;
};

// Divides items into runs: packs[p] are indices into `items`, in order. A pack ends with the item
// that makes it larger than `bytes_per_pack`. Everything is one pack if bytes_per_pack is 0 or an
// item's size is unknown. Callers who reduce during the backward pass pass items in reverse order.
// Packs may mix dtypes: callers group items by dtype first.
// kInvalidArgument: bytes_per_pack < 0, or a negative element count.
absl::StatusOr<std::vector<std::vector<size_t>>> GroupBySize(absl::Span<const PackItem> items,
                                                             int64_t bytes_per_pack);

// Element counts of `num_packs` packs of `total` elements: total / num_packs each, and the
// remainder also in the last. kInvalidArgument: num_packs < 1 or total < 0.
absl::StatusOr<std::vector<int64_t>> PackSizes(int64_t total, int64_t num_packs);

// Gradients of one dtype, concatenated in one piece of memory that is divided into packs. A
// collective works on packs() in place; CopyTo copies the results back. Thread safety: none.
class ConcatenatedPacks {
 public:
  // Copies `gradients`. kInvalidArgument: as PackSizes, or gradients of different dtypes.
  static absl::StatusOr<ConcatenatedPacks> Make(absl::Span<const ConstBuffer> gradients,
                                                int64_t num_packs);

  // Views of this object's memory, in order; some may be empty.
  std::vector<MutableBuffer> packs();
  // Copies each gradient back. kInvalidArgument: dtypes or counts differ from those of Make.
  absl::Status CopyTo(absl::Span<const MutableBuffer> gradients) const;

 private:
  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> counts_;  // of the gradients
  std::vector<int64_t> sizes_;   // of the packs
  std::vector<char> memory_;
};

}  // namespace cairn
