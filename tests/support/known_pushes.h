// Pushes whose content depends only on (worker, number) and whose sums are exact, so that the
// totals show a lost or doubled push, and its key names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/variables/variable_spec.h"
#include "tests/support/known_values.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

inline constexpr int64_t kSoloRows = 8;  // all on ps:1

// KnownSpecs(), seen (keys) and solo. seen has a key for every push: 1 if the push counted once.
std::vector<VariableSpec> KnownVariables();

// Push `number` (1, 2, …) of `worker`. Every fifth push only has rows of solo, so the other servers
// have no part of it. Thread safety: none.
class KnownPush {
 public:
  // Valid until the next call.
  std::vector<PushSource> Make(int32_t worker, int64_t number);
  // Whether the push has a key in seen.
  static bool HasKey(int64_t number) { return number % 5 != 0; }

 private:
  KnownGradients gradients_;
  std::vector<double> solo_;
  std::vector<int64_t> seen_key_;
  std::vector<float> seen_value_;
};

// Compares the servers' state with pushes 1 … counts[w] of every worker w, each counted once. With
// `updates_too`, also compares the update count of every shard. kDataLoss: the differences, limited
// to a few lines.
absl::Status CheckKnownPushes(const std::vector<std::string>& servers, const std::string& job,
                              const std::vector<int64_t>& counts, bool updates_too);

}  // namespace cairn::test
