// The mean of a step's contributions, as one push.
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

// What a contribution holds on this server: checked items that own their memory, which is charged.
struct ContributionParts {
  std::vector<wire::PushItem> items;
  MemoryHold hold;
};

// Copies the ids of `items`, which have passed every check of a push, and their `values`, which are
// decoded. kResourceExhausted as MemoryBudget::Acquire.
absl::StatusOr<std::shared_ptr<const ContributionParts>> KeepParts(
    MemoryBudget& budget, absl::string_view server, const std::vector<wire::PushItem>& items,
    absl::Span<const absl::Span<const std::byte>> values);

// Views the contributions where one is all there is of a variable.
struct StepMean {
  std::vector<wire::PushItem> items;
  MemoryHold hold;
};

// One item for each shard that any contribution has a part of. `rows_elsewhere`: of contributions
// of the step that have none on this server. The sum, in the order given, of
// gradients times weights, which are
//   kRows          rows / the rows of all contributions, with or without a part of the variable: so
//                  W workers with batch b move what one with batch W b would, sparse rows included.
//   kContributors  TensorFlow's accumulators: 1 / the number of contributions that have a part of
//                  the variable; of single rows and keys, 1 / the number that have the row.
// kResourceExhausted as MemoryBudget::Acquire.
absl::StatusOr<StepMean> MeanOf(MemoryBudget& budget, const VariableMap& variables,
                                absl::Span<const PendingContribution> contributions,
                                int64_t rows_elsewhere, SyncMean mean);

}  // namespace cairn
