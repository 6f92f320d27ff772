// Placement of a restored job's stripes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// Assigns a server in [0, server_count) to each dense shard and each bucket: shards by their bytes,
// the largest first, to the server with the fewest; buckets round-robin. Shards and buckets stay as
// they are, so that stripes move whole. The result depends only on the specs and their order.
// Raises map_version.
void PlaceShards(absl::Span<VariableSpec* const> specs, int32_t server_count);

}  // namespace cairn
