// From the items of a request to the shards they name, with every check that needs the shard.
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
#include "ps_server/rows/variable.h"
#include "thrift/cairn_types.h"

namespace cairn {

// In the functions below, `server` is the server's name, "ps:0", for messages.

// What an item is about.
struct ItemName {
  absl::string_view call;  // "push", "pull", "assign", for messages
  absl::string_view variable;
  int32_t shard = 0;
  wire::Selection::type selection = wire::Selection::WHOLE;
  absl::string_view slot;
  int64_t map_version = 0;  // of the caller's map; 0: not told
};

struct ItemTarget {
  Variable* variable = nullptr;
  // Exactly one of the two.
  HostedDense* dense = nullptr;
  HostedTable* table = nullptr;
  size_t part = 0;                    // 0: the value, s + 1: slot s
  absl::Span<const int64_t> ids;      // ROWS, KEYS
  const KeyGroups* groups = nullptr;  // KEYS: `ids` by bucket
  int64_t rows = 0;                   // that the item names
  bool whole = false;

  HostedShard& shard() const {
    return dense != nullptr ? static_cast<HostedShard&>(*dense) : *table;
  }
  size_t row_bytes() const;
  DType part_dtype() const;
  // Adds those in which its rows are; of a dense shard all.
  void AddStripes(std::vector<Stripe*>* stripes) const;
};

// `push "emb" on ps:0`, the beginning of every message about an item.
std::string ItemText(absl::string_view server, const ItemName& item);

// kNotFound, naming the nearest name there is.
absl::Status UnknownVariable(absl::string_view server, const VariableMap& variables,
                             const ItemName& item);

// kNotFound: unknown variable (names the nearest) or slot. kInvalidArgument: a shard or bucket that
// lives elsewhere by the caller's map too, a selection the variable does not have, ids that are no
// int64 or out of range. MOVED: it lives elsewhere by a newer map than the caller's. BUSY: by an
// older one; what the caller names is yet to arrive. `groups` holds KEYS' ids by bucket and
// outlives the target, as `ids` does.
absl::StatusOr<ItemTarget> ResolveItem(absl::string_view server, const VariableMap& variables,
                                       const ItemName& item, const Payload& ids, KeyGroups& groups);

// For calls that go by the whole map, not by the rows that they name. Where the caller has told its
// map's version, and that is not this server's: MOVED, or BUSY as above.
absl::Status CheckSameMap(absl::string_view server, const ItemName& item, const Variable& variable);

// kInvalidArgument: not the target's dtype, or not rows x width elements.
absl::Status CheckValues(absl::string_view server, const ItemName& item, const ItemTarget& target,
                         wire::DType::type dtype, const Payload& values);

// int64 ids of all items together.
template <typename Item>
int64_t IdCount(const std::vector<Item>& items) {
  size_t bytes = 0;
  for (const Item& item : items) bytes += item.ids.size();
  return static_cast<int64_t>(bytes / sizeof(int64_t));
}

}  // namespace cairn
