// Pushes whose content depends on (worker, number) alone and whose sums are exact, so that a lost
// or a doubled one is found by the total, and by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

inline constexpr int32_t kKnownServers = 3;
inline constexpr int64_t kDenseRows = 30, kDenseWidth = 4;
inline constexpr int64_t kSparseRows = 3 * 2048, kSparseWidth = 64;  // two stripes a server
inline constexpr int64_t kKeys = 4096, kTableWidth = 4;
inline constexpr int64_t kSoloRows = 8;  // all on ps:1

// dense (whole pushes), sparse (rows), table and seen (keys), solo. seen has a key for every push:
// 1 where it counted once. SGD with rate 1.
std::vector<VariableSpec> KnownVariables();
int64_t SeenKey(int32_t worker, int64_t number);

// Push `number` (1, 2, …) of `worker`: a gradient of -x where a value is to rise by x. Each fifth
// one is of solo alone, so that the other servers have no part of it. Thread safety: none.
class KnownPush {
 public:
  // Valid until the next call.
  std::vector<PushSource> Make(int32_t worker, int64_t number);

 private:
  std::vector<double> dense_, solo_;
  std::vector<int64_t> rows_, keys_, seen_key_;
  std::vector<float> row_values_, key_values_, seen_value_;
};

// Compares what the servers hold with pushes 1 … counts[w] of every worker w, each counted once.
// Updates of every shard are counted too. kDataLoss: every difference, up to some lines.
absl::Status CheckKnownPushes(const std::vector<std::string>& servers, const std::string& job,
                              const std::vector<int64_t>& counts);

}  // namespace cairn::test
