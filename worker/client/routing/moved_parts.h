// One server's part of a push or an assign, cut anew after rows in it have moved to other servers.
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

// The map to go by; nullptr: none is known.
using FindMap = absl::FunctionRef<ClientVariablePtr(absl::string_view variable)>;

// `items` were for server `server`, by the maps of their time; they are dealt by those that `find`
// has. Rows with payloads of their own; values that share scales travel plain from here on.
// kInternal: values that are not of their format.
template <typename Item>
absl::StatusOr<MovedParts<Item>> CutAnew(const std::vector<Item>& items, int32_t server,
                                         FindMap find);

// Adds `more` to the items that its server has, both cut anew, from one push and by the same maps:
// one for each shard, with the rows of both. kInternal: they are not.
absl::Status AddItems(std::vector<wire::PushItem> more, std::vector<wire::PushItem>* items);

}  // namespace cairn
