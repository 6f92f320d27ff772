// How many shards a variable is cut into, with TensorFlow's rules, and on which server each goes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/variable_spec.h"

namespace cairn {

// Thread safety: immutable.
class Partitioner {
 public:
  virtual ~Partitioner() = default;
  // Shards per axis: every entry 1 but that of axis 0. kInvalidArgument where TensorFlow fails.
  virtual absl::StatusOr<std::vector<int64_t>> Partition(absl::Span<const int64_t> shape,
                                                         DType dtype) const = 0;
};

// tf.distribute.experimental.partitioners. kInvalidArgument: as TensorFlow's constructors.
absl::StatusOr<std::unique_ptr<Partitioner>> FixedShardsPartitioner(int64_t num_shards);
absl::StatusOr<std::unique_ptr<Partitioner>> MinSizePartitioner(int64_t min_shard_bytes = 256 << 10,
                                                                int64_t max_shards = 1,
                                                                int64_t bytes_per_string = 16);
// max_shards 0: no limit.
absl::StatusOr<std::unique_ptr<Partitioner>> MaxSizePartitioner(int64_t max_shard_bytes,
                                                                int64_t max_shards = 0,
                                                                int64_t bytes_per_string = 16);

// "div" split of `rows` into `shards` (the first rows % shards get one more), `ps` left 0.
// kInvalidArgument: more shards than rows allow, as TensorFlow.
absl::StatusOr<std::vector<DenseShard>> DivShards(int64_t rows, int64_t shards);

// Chooses a server for each shard, in the order of calls.
// Thread safety: none.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual int32_t Next(int64_t bytes) = 0;
};
std::unique_ptr<Placement> RoundRobinPlacement(int32_t ps_count);
// To the server with the fewest bytes so far; ties: the first (TensorFlow's GreedyLoadBalancing
// with byte_size_load_fn).
std::unique_ptr<Placement> GreedyByBytesPlacement(int32_t ps_count);

}  // namespace cairn
