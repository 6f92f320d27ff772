// Placement maps for moves of rows in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/variables/variable_spec.h"

namespace cairn::test {

// `now` with the first `pieces` buckets or shards of server `source` moved to server `target`.
inline VariableSpec NextMap(const VariableSpec& now, int32_t source, int32_t target,
                            size_t pieces) {
  VariableSpec next = now;
  ++next.map_version;
  for (int32_t& ps : next.bucket_ps) {
    if (ps == source && pieces > 0) --pieces, ps = target;
  }
  for (DenseShard& shard : next.shards) {
    if (shard.ps == source && pieces > 0) --pieces, shard.ps = target;
  }
  return next;
}

// 0 … count - 1.
inline std::vector<int32_t> FirstServers(int32_t count) {
  std::vector<int32_t> servers(static_cast<size_t>(count));
  std::iota(servers.begin(), servers.end(), 0);
  return servers;
}

}  // namespace cairn::test
