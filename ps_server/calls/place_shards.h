// Where a restored job's stripes live.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// Names a server in [0, server_count) for each dense shard and each bucket: shards by their bytes,
// the largest first, to whoever has the least; buckets in turn. Shards and buckets themselves stay
// as they are, so that stripes move whole. The same for the same specs in the same order, whoever
// computes it. Raises map_version.
void PlaceShards(absl::Span<VariableSpec* const> specs, int32_t server_count);

}  // namespace cairn
