// A variable by another map of whose rows are where (MOVES.md): its record, and the rows that come
// or go with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

class ArrivingRows;
class OutgoingRows;

// Runs `write` between epochs' stripes. FAILED_PRECONDITION: the job was dropped meanwhile. Where
// `write` fails the disk did, and the server refuses updates from then on.
absl::Status WriteRecord(ServerCore& core, const Job& job, absl::FunctionRef<absl::Status()> write);

// `variable` by another map, in memory and on disk, between epochs' stripes: with what arrives,
// without what is given away (nullptr: none). Errors as WriteRecord. The turn to create is held
// (TakeCreateSlot).
absl::Status TakeMap(ServerCore& core, Job& job, Variable& variable, const VariableSpec& map,
                     ArrivingRows* arriving, OutgoingRows* outgoing);

// A caller has map `version` of the variable: where that is the one by which rows have arrived
// here, their source has given them away, and they are taken.
absl::Status TakeArrived(ServerCore& core, Job& job, absl::string_view variable, int64_t version);

// A call with this item, or these, was told BUSY: where that is for rows that have arrived, they
// are taken, so that the next finds them.
template <typename Item>
void TakeArrivedFor(ServerCore& core, const Admitted& admitted, const Item& item) {
  const auto variable = admitted.variables->find(item.variable);
  if (variable == admitted.variables->end() || admitted.job == nullptr ||
      item.map_version <= variable->second->spec().map_version) {
    return;
  }
  // The caller comes again, and finds them or not.
  TakeArrived(core, *admitted.job, item.variable, item.map_version).IgnoreError();
}
template <typename Item>
void TakeArrivedFor(ServerCore& core, const Admitted& admitted, const std::vector<Item>& items) {
  for (const Item& item : items) TakeArrivedFor(core, admitted, item);
}

// At the start: what had arrived for `variable` before the server ended, by `map`.
absl::Status LoadArrived(ServerCore& core, const Variable& variable, const VariableSpec& map);

}  // namespace cairn
