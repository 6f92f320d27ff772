// Divides one server's part of a push or assign again after rows in it have moved to other servers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "thrift/cairn_types.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Item: wire::PushItem or wire::AssignItem.
template <typename Item>
struct MovedParts {
  std::vector<Item> here;
  absl::btree_map<int32_t, std::vector<Item>> elsewhere;  // by server
};

// Returns the variable with its current map; nullptr: unknown.
using FindMap = absl::FunctionRef<ClientVariablePtr(absl::string_view variable)>;

// Divides `items`, which older maps assigned to `server`, by the maps that `find` returns. The
// results own their payloads; values that share scales (int8) are decoded to plain ones. kInternal:
// values do not have the size that their format requires.
template <typename Item>
absl::StatusOr<MovedParts<Item>> RepartitionItems(const std::vector<Item>& items, int32_t server,
                                                  FindMap find);

// Merges `more` into `items`, both from RepartitionItems of one push with the same maps: one item
// for each shard, with the rows of both. kInternal: the items differ in map or format.
absl::Status AddItems(std::vector<wire::PushItem> more, std::vector<wire::PushItem>* items);

}  // namespace cairn
