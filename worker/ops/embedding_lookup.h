// Sparse embedding lookups with combiners: tf.nn.embedding_lookup, embedding_lookup_sparse and
// safe_embedding_lookup_sparse, and their gradients.
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn {

// How an output row combines embeddings e with weights w: sum(w e), sum(w e) / sum(w), or sum(w e)
// / sqrt(sum(w^2)). A row whose divisor is 0 is 0.
enum class Combiner { kSum, kMean, kSqrtn };

// ids[n] with weights[n] belongs to output row row_of_id[n].
struct SparseIds {
  int64_t rows = 0;  // rows of the output; a row without ids is 0
  absl::Span<const int32_t> row_of_id = {};
  absl::Span<const int64_t> ids = {};
  absl::Span<const float> weights = {};  // empty: 1 each
};

struct LookupOptions {
  Combiner combiner = Combiner::kMean;
  // Drops ids < 0, and weights <= 0 unless the combiner is kSum.
  bool safe = false;
  // With `safe`: a row that has no ids left gets table row `default_id`; -1: zeros.
  int64_t default_id = -1;
};

// kInvalidArgument: `rows` of a SparseIds is negative, or beyond the int32 of row_of_id.
absl::Status CheckLookupRows(int64_t rows);

// out [ids.size(), width] = rows `ids` of table [table_rows, width].
// kInvalidArgument: an id outside [0, table_rows).
absl::Status EmbeddingLookup(absl::Span<const float> table, int64_t width,
                             absl::Span<const int64_t> ids, absl::Span<float> out);

// out [input.rows, width], overwritten.
// kInvalidArgument: an id outside [0, table_rows) (after `safe` has dropped some), a row_of_id
// outside [0, rows), lists of different lengths, a wrong out.size().
absl::Status EmbeddingLookupSparse(absl::Span<const float> table, int64_t width,
                                   const SparseIds& input, const LookupOptions& options,
                                   absl::Span<float> out);

// Gradients of sum(out * d_out): d_table like the table, d_weights [ids.size()] (0 for dropped
// ids), both overwritten; `d_weights` may be empty. Errors as the lookup's.
absl::Status EmbeddingLookupSparseBackward(absl::Span<const float> table, int64_t width,
                                           const SparseIds& input, const LookupOptions& options,
                                           absl::Span<const float> d_out, absl::Span<float> d_table,
                                           absl::Span<float> d_weights);

}  // namespace cairn
