// Installs a new placement map for a variable (MOVES.md): the record, then the rows gained or lost.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/moves/moves.h"
#include "thrift/cairn_types.h"
#include "thrift/errors.h"

namespace cairn {

class ArrivingRows;
class OutgoingRows;

// Gives `variable` another map, in memory and on disk, while the running epoch pauses: adds the
// rows of `arriving` and removes those of `outgoing` (both may be null). Errors as
// JobCatalog::WriteRecord. The caller holds the catalog's slot.
absl::Status TakeMap(JobCatalog& catalog, Job& job, Variable& variable, const VariableSpec& map,
                     ArrivingRows* arriving, OutgoingRows* outgoing);

// A caller has map `version` of the variable, in the job's current timeline. If rows have arrived
// here by that map, their source has handed them over: takes them.
absl::Status TakeArrived(JobCatalog& catalog, Moves& moves, Job& job, absl::string_view variable,
                         int64_t version);

// TIMELINE_ENDED: `status` may be due to maps of an ended timeline.
absl::Status TimelineEnded(const JobCatalog& catalog, const Job& job, const absl::Status& status);

// After a call with these items ended with `status`: if it was BUSY because of rows that have
// arrived, takes them, so that a retry finds them. Returns `status`, or TIMELINE_ENDED.
template <typename Item>
absl::Status TakeArrivedIfBusy(JobCatalog& catalog, Moves& moves, const Admitted& admitted,
                               absl::Span<const Item> items, absl::Status status) {
  if (status.ok() || admitted.job == nullptr) return status;
  if (admitted.timeline_ended()) return TimelineEnded(catalog, *admitted.job, status);
  // A version of an earlier timeline, or an invented one, does not prove that the source has handed
  // the rows over.
  if (ReasonOf(status) != wire::ErrorReason::BUSY || !admitted.has_current_maps()) return status;
  for (const Item& item : items) {
    const auto variable = admitted.variables->find(item.variable);
    if (variable == admitted.variables->end() ||
        item.map_version <= variable->second->spec().map_version) {
      continue;
    }
    TakeArrived(catalog, moves, *admitted.job, item.variable, item.map_version).IgnoreError();
  }
  return status;
}

// At the start: loads the rows that had arrived for `variable`, by `map`, before the server ended.
absl::Status LoadArrived(JobCatalog& catalog, Moves& moves, MemoryBudget& budget,
                         const Variable& variable, const VariableSpec& map);

}  // namespace cairn
