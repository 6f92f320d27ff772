// One server's part of a push or an assign, cut anew after rows in it have moved to other servers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "thrift/cairn_types.h"
#include "worker/client/client_variable.h"

namespace cairn {

// Item: wire::PushItem or wire::AssignItem.
template <typename Item>
struct MovedParts {
  std::vector<Item> here;
  absl::btree_map<int32_t, std::vector<Item>> elsewhere;  // by server
};

// `items` were for server `server`, by the maps of their time; they are dealt by those in
// `variables`. Rows with payloads of their own; values that share scales travel plain from here on.
// kInternal: values that are not of their format.
template <typename Item>
absl::StatusOr<MovedParts<Item>> CutAnew(const std::vector<Item>& items, int32_t server,
                                         const ClientVariableMap& variables);

}  // namespace cairn
