// Contributions to synchronous steps whose content depends only on (worker, number), and whose
// results show for each contribution, on each server, how often it counted and in a step of how
// many.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/variables/variable_spec.h"
#include "tests/support/known_values.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

// KnownSpecs(), and for each server s a table once<s> on that server with a key for every
// contribution: its Adagrad, whose accumulator starts at 0, moves a key by 1 for any weight; a key
// moved twice is above 1. The accumulator shows the weight, which is one over the number of
// contributions to the step. All gradients are multiples of 12, so that means of up to four are
// integers.
std::vector<VariableSpec> ContributionVariables();

// Thread safety: none.
class KnownContribution {
 public:
  // Number 1, 2, … of `worker`; changes all variables on all servers. Valid until the next call.
  std::vector<PushSource> Make(int32_t worker, int64_t number);

 private:
  KnownGradients gradients_;
  std::vector<std::string> names_;
  std::vector<int64_t> key_;
  std::vector<float> value_;
};

// The distance by which each of `numbers` moved its key on server `server`: 0 if it does not count,
// once if IsOnce.
absl::Status TimesCounted(PsClient& client, int32_t server, int32_t worker,
                          const std::vector<int64_t>& numbers, Deadline deadline,
                          std::vector<float>* times);
bool IsOnce(double moved);
// Variables that show which server counted a contribution must not move.
bool StaysWhereItIs(absl::string_view variable);

// Number of contributions without which a server says that it closed steps, by server and worker.
using LostContributions = std::map<std::pair<int32_t, int32_t>, int64_t>;

struct ContributionCounts {
  int64_t steps = 0;
  int64_t counted = 0;
  std::vector<int64_t> dropped;  // by worker
};

// Compares the servers' state with contributions 1 … counts[w] of every worker w, each counted once
// or dropped, the same on all servers except for `lost`; and with the mean of each step applied
// once on each server: the totals, the number of steps and, with `updates_too`, the updates of
// every shard. kDataLoss: the differences, limited to a few lines.
absl::StatusOr<ContributionCounts> CheckKnownContributions(const std::vector<std::string>& servers,
                                                           const std::string& job,
                                                           const std::vector<int64_t>& counts,
                                                           LostContributions lost,
                                                           bool updates_too);

}  // namespace cairn::test
