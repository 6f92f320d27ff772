// A variable by another map of whose rows are where (MOVES.md): its record, and the rows that come
// or go with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"
#include "thrift/errors.h"

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

// After a call with these items ended with `status`: if it was BUSY because of rows that have
// arrived, takes them, so that a retry finds them. Returns `status`.
template <typename Item>
absl::Status TakeArrivedIfBusy(ServerCore& core, const Admitted& admitted,
                               absl::Span<const Item> items, absl::Status status) {
  if (ReasonOf(status) != wire::ErrorReason::BUSY || admitted.job == nullptr) return status;
  for (const Item& item : items) {
    const auto variable = admitted.variables->find(item.variable);
    if (variable == admitted.variables->end() ||
        item.map_version <= variable->second->spec().map_version) {
      continue;
    }
    TakeArrived(core, *admitted.job, item.variable, item.map_version).IgnoreError();
  }
  return status;
}

// At the start: what had arrived for `variable` before the server ended, by `map`.
absl::Status LoadArrived(ServerCore& core, const Variable& variable, const VariableSpec& map);

}  // namespace cairn
