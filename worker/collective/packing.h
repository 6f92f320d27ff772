// Which gradients travel together. Small messages cost latency, so they are packed: by size
// (collectives between processes and threads) or into a number of equal chunks (one-process
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

// One gradient, as far as packing looks at it.
struct PackItem {
  std::optional<int64_t> elements = {};  // absent: unknown before it is computed
  DType dtype = DType::kFloat32;
};

// Cuts items into runs: packs[p] are indices into `items`, in order. A pack ends with the item that
// makes it larger than `bytes_per_pack`. One pack of everything if bytes_per_pack is 0 or an item's
// size is unknown. Callers who reduce during the backward pass hand items over in reverse order.
// Packs may mix dtypes: callers group by dtype before.
// kInvalidArgument: bytes_per_pack < 0, or a negative element count.
absl::StatusOr<std::vector<std::vector<size_t>>> GroupBySize(absl::Span<const PackItem> items,
                                                             int64_t bytes_per_pack);

// Elements of each of `num_packs` packs of `total` elements: total / num_packs each, and what
// remains besides in the last. kInvalidArgument: num_packs < 1 or total < 0.
absl::StatusOr<std::vector<int64_t>> PackSizes(int64_t total, int64_t num_packs);

// Gradients of one dtype, flattened one after the other into one piece of memory and cut into
// packs. Thread safety: none. A collective works on packs() in place; CopyTo brings them back.
class ConcatenatedPacks {
 public:
  // Copies `gradients`. kInvalidArgument: as PackSizes, or gradients of different dtypes.
  static absl::StatusOr<ConcatenatedPacks> Make(absl::Span<const ConstBuffer> gradients,
                                                int64_t num_packs);

  // Views of the memory here, in order; some may be empty.
  std::vector<MutableBuffer> packs();
  // Writes each gradient back. kInvalidArgument: dtypes or counts differ from those of Make.
  absl::Status CopyTo(absl::Span<const MutableBuffer> gradients) const;

 private:
  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> counts_;  // of the gradients
  std::vector<int64_t> sizes_;   // of the packs
  std::vector<char> memory_;
};

}  // namespace cairn
