// Embedding lookup in a whole or sharded variable; reads only the requested rows.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/ops/embedding_lookup.h"
#include "worker/strategy/variable.h"

namespace cairn {

// tf.nn.embedding_lookup: rows `ids` of `table` in that order, repeats allowed; each distinct row
// is read once. kInvalidArgument: an id out of range, a scalar variable.
absl::StatusOr<Tensor> EmbeddingLookup(Variable& table, absl::Span<const int64_t> ids);

// tf.nn.embedding_lookup_sparse, or safe_embedding_lookup_sparse with `options.safe`:
// [input.rows, width]. `table` is float32 [rows, width].
// kInvalidArgument: a table of another dtype or rank, an id out of range, lists of different
// lengths, or a number of rows as CheckLookupRows'. kUnknown: no memory for the result.
absl::StatusOr<Tensor> EmbeddingLookupSparse(Variable& table, const SparseIds& input,
                                             const LookupOptions& options);

}  // namespace cairn
