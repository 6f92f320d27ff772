// Computes the mean of a step's contributions as one push.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/consistency.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/jobs/sync_steps.h"
#include "ps_server/rows/variable.h"
#include "thrift/cairn_types.h"

namespace cairn {

// The parts of a contribution on this server: checked items that own their memory, which is
// charged.
struct ContributionParts {
  std::vector<wire::PushItem> items;
  MemoryHold hold;
};

// Copies the ids of `items`, which have passed every check of a push, and their decoded `values`.
// kResourceExhausted as in MemoryBudget::Acquire.
absl::StatusOr<std::shared_ptr<const ContributionParts>> KeepParts(
    MemoryBudget& budget, absl::string_view server, const std::vector<wire::PushItem>& items,
    absl::Span<const absl::Span<const std::byte>> values);

// The mean of a step. Items refer to the contributions' memory if only one contribution has a part
// of the variable.
struct StepMean {
  std::vector<wire::PushItem> items;
  MemoryHold hold;
};

// Returns one item for each shard of which any contribution has a part. `rows_elsewhere`: rows of
// the step's contributions that have no part on this server. Each item is the sum, in the given
// order, of gradients times weights. Weights by `mean`:
//   kRows          rows of the contribution / rows of all contributions, whether or not they have a
//                  part of the variable. W workers with batch b have the effect of one with batch
//                  W b, including sparse rows.
//   kContributors  as TensorFlow's accumulators: 1 / the number of contributions that have a part
//                  of the variable; for single rows and keys, 1 / the number that have the row.
// kResourceExhausted as in MemoryBudget::Acquire.
absl::StatusOr<StepMean> MeanOf(MemoryBudget& budget, const VariableMap& variables,
                                absl::Span<const PendingContribution> contributions,
                                int64_t rows_elsewhere, SyncMean mean);

}  // namespace cairn
