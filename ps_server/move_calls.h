// move: rows go from one live server to another (MOVES.md).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ps_server/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One step of a move (cairn.thrift, MoveRequest). FAILED_PRECONDITION: not the step that is due;
absl::Status MoveRows(ServerCore& core, const Admitted& admitted, const wire::MoveRequest& request,
                      wire::MoveReply& reply);

// A caller has map `version` of the variable: where that is the one by which rows have arrived
// here, their source has given them away, and they are taken.
absl::Status TakeArrived(ServerCore& core, Job& job, absl::string_view variable, int64_t version);

// A call with these items was told BUSY: where that is for rows that have arrived, they are taken,
// so that the next finds them.
template <typename Item>
void TakeArrivedFor(ServerCore& core, const Admitted& admitted, const std::vector<Item>& items) {
  for (const Item& item : items) {
    const auto variable = admitted.variables->find(item.variable);
    if (variable == admitted.variables->end() || admitted.job == nullptr ||
        item.map_version <= variable->second->spec().map_version) {
      continue;
    }
    // The caller comes again, and finds them or not.
    TakeArrived(core, *admitted.job, item.variable, item.map_version).IgnoreError();
  }
}

// At the start: what had arrived for `variable` before the server ended, by `map`.
absl::Status LoadArrived(ServerCore& core, const Variable& variable, const VariableSpec& map);

}  // namespace cairn
