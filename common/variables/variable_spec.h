// The definition of a variable: everything on which servers and workers must agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/optimizer/optimizer.h"
#include "common/shape.h"
#include "common/variables/initializer.h"
#include "common/variables/row_storage.h"

namespace cairn {

enum class VariableKind : int32_t { kDense = 1, kEmbedding = 2 };

// Which rows a row-sparse push changes. kAll: rows that are not pushed get a zero gradient, as in
// Keras; the default of dense variables. kPushed: rows that are not pushed stay unchanged; the only
// choice for embedding tables.
enum class TouchedRows : int32_t { kAll = 1, kPushed = 2 };

// Rows [first_row, first_row + rows) of a dense variable, on server `ps`.
struct DenseShard {
  int64_t first_row = 0;
  int64_t rows = 0;
  int32_t ps = 0;
  bool operator==(const DenseShard&) const = default;
};

// Which rows an embedding table keeps (ps_server/ROW_RULES.md).
inline constexpr int32_t kMostPushesToAdmit = 255;  // a count takes one byte
inline constexpr int64_t kMostSecondsToExpire = int64_t{100} * 366 * 86400;
struct RowRules {
  // A key gets a row at its n-th push; earlier pushes are not applied. 1 … kMostPushesToAdmit.
  int32_t admit_after_pushes = 1;
  // Rows that have not been pushed for this long are deleted some time later; 0: never.
  int64_t expire_after_seconds = 0;
  // Limit for the whole table, divided among its buckets. Above it, the rows that have gone longest
  // without a push are deleted. 0: no limit.
  int64_t max_rows = 0;

  bool operator==(const RowRules&) const = default;
};

struct VariableSpec {
  std::string name = {};  // 1 … 512 bytes of [A-Za-z0-9_./-], e.g. "dense_0/kernel"
  VariableKind kind = VariableKind::kDense;
  DType dtype = DType::kFloat32;  // embeddings: float32
  // Dense: the whole variable. Embedding: [dim].
  Shape shape = {};
  OptimizerConfig optimizer = {};
  InitializerConfig initializer = {};
  TouchedRows touched_rows = TouchedRows::kAll;
  // Dense: contiguous, in order, covering all rows ("div" split along axis 0).
  std::vector<DenseShard> shards = {};
  // Embedding: the server of each hash bucket (BucketOfKey); the size is a power of two, 1 … 65536.
  // A bucket is a stripe on its server.
  std::vector<int32_t> bucket_ps = {};
  int64_t map_version = 1;      // version of shards / bucket_ps
  RowRules row_rules = {};      // embedding
  RowStorage row_storage = {};  // embedding

  bool operator==(const VariableSpec&) const = default;
};

// kInvalidArgument gives the field, the value found and the values allowed. `ps_count` bounds `ps`.
absl::Status ValidateSpec(const VariableSpec& spec, int32_t ps_count);

// The spec on one line, for messages that show two specs.
std::string SpecText(const VariableSpec& spec);

}  // namespace cairn
