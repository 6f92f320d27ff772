// Finds the shards that the items of a request name, and makes every check that needs the shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/rows/key_groups.h"
#include "ps_server/rows/pulled_rows.h"
#include "ps_server/rows/variable.h"
#include "thrift/cairn_types.h"

namespace cairn {

// In the functions below, `server` is the server's name, "ps:0", for messages.

// The names in an item.
struct ItemName {
  absl::string_view call;  // "push", "pull", "assign", for messages
  absl::string_view variable;
  int32_t shard = 0;
  wire::Selection::type selection = wire::Selection::WHOLE;
  absl::string_view slot;
  int64_t map_version = 0;  // of the caller's map; 0: unknown
};

struct ItemTarget {
  Variable* variable = nullptr;
  // Exactly one of the two is set.
  HostedDense* dense = nullptr;
  HostedTable* table = nullptr;
  size_t part = 0;                    // 0: the value, s + 1: slot s
  absl::Span<const int64_t> ids;      // ROWS, KEYS
  const KeyGroups* groups = nullptr;  // KEYS: `ids` by bucket
  // KEYS: where the last pull found the rows, in the order of `groups`; null: unknown.
  const uint32_t* likely_rows = nullptr;
  int64_t rows = 0;  // named by the item
  bool whole = false;

  HostedShard& shard() const {
    return dense != nullptr ? static_cast<HostedShard&>(*dense) : *table;
  }
  size_t row_bytes() const;
  DType part_dtype() const;
  // Adds the stripes of its rows; for a dense shard, all of its stripes.
  void AddStripes(std::vector<Stripe*>* stripes) const;
};

// `push "emb" on ps:0`: the beginning of every message about an item.
std::string ItemText(absl::string_view server, const ItemName& item);

// kNotFound: names the most similar variable.
absl::Status UnknownVariable(absl::string_view server, const VariableMap& variables,
                             const ItemName& item);

// kNotFound: unknown variable (names the most similar one) or slot. kInvalidArgument: by the
// caller's own map, the shard or bucket is on another server; the variable has no such selection;
// or ids are not int64 or out of range. MOVED: the rows have moved to another server by a newer map
// than the caller's. BUSY: the caller's map is newer, and the rows have not arrived yet. `groups`
// receives the ids of KEYS by bucket, unless `last_pull` (may be null) has read just these keys.
// All three and `ids` must outlive the target.
absl::StatusOr<ItemTarget> ResolveItem(absl::string_view server, const VariableMap& variables,
                                       const ItemName& item, const Payload& ids, KeyGroups& groups,
                                       const PulledRows* last_pull = nullptr);

// For calls that depend on the whole map. MOVED or BUSY, as above, if the caller states a map
// version that is not this server's.
absl::Status CheckSameMap(absl::string_view server, const ItemName& item, const Variable& variable);

// kInvalidArgument: not the target's dtype, or not rows x width elements.
absl::Status CheckValues(absl::string_view server, const ItemName& item, const ItemTarget& target,
                         wire::DType::type dtype, const Payload& values);

// The number of int64 ids in all items together.
template <typename Item>
int64_t IdCount(const std::vector<Item>& items) {
  size_t bytes = 0;
  for (const Item& item : items) bytes += item.ids.size();
  return static_cast<int64_t>(bytes / sizeof(int64_t));
}

}  // namespace cairn
