// How many shards a variable is split into, by TensorFlow's rules, and which server holds each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/dtype.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// Thread safety: immutable.
class Partitioner {
 public:
  virtual ~Partitioner() = default;

  // Returns the number of shards along each axis; every entry except that of axis 0 is 1.
  // kInvalidArgument: a scalar, or an extent of 0 that leaves nothing to split; TensorFlow fails
  // for these too.
  absl::StatusOr<std::vector<int64_t>> Partition(absl::Span<const int64_t> shape,
                                                 DType dtype) const;
  // Like Partition, for a variable of strings. Each string counts as `bytes_per_string` bytes.
  absl::StatusOr<std::vector<int64_t>> PartitionStrings(absl::Span<const int64_t> shape) const;

 protected:
  explicit Partitioner(int64_t bytes_per_string) : bytes_per_string_(bytes_per_string) {}

  // For messages: "MinSizePartitioner".
  virtual absl::string_view name() const = 0;
  // The number of shards for `rows` rows of `total_bytes` bytes altogether.
  virtual absl::StatusOr<int64_t> Shards(int64_t rows, int64_t total_bytes) const = 0;

 private:
  absl::StatusOr<std::vector<int64_t>> PartitionBytes(absl::Span<const int64_t> shape,
                                                      int64_t element_bytes) const;

  const int64_t bytes_per_string_;
};

// The partitioners of tf.distribute.experimental.partitioners. kInvalidArgument: an argument below
// 1; TensorFlow fails then too, in the constructor or at the first variable.
absl::StatusOr<std::unique_ptr<Partitioner>> FixedShardsPartitioner(int64_t num_shards);
absl::StatusOr<std::unique_ptr<Partitioner>> MinSizePartitioner(int64_t min_shard_bytes = 256 << 10,
                                                                int64_t max_shards = 1,
                                                                int64_t bytes_per_string = 16);
// max_shards 0: no limit.
absl::StatusOr<std::unique_ptr<Partitioner>> MaxSizePartitioner(int64_t max_shard_bytes,
                                                                int64_t max_shards = 0,
                                                                int64_t bytes_per_string = 16);

// "div" split of `rows` into `shards` (the first rows % shards get one more); `ps` is left 0.
// kInvalidArgument: fewer than 1 shard, or more shards than rows (one shard of no rows is allowed).
absl::StatusOr<std::vector<DenseShard>> DivShards(int64_t rows, int64_t shards);

// Chooses a server for each shard, in the order of calls.
// Thread safety: none.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual int32_t Next(int64_t bytes) = 0;
};
// `ps_count` must be at least 1.
std::unique_ptr<Placement> RoundRobinPlacement(int32_t ps_count);
// Chooses the server with the fewest bytes so far; ties: the first (TensorFlow's
// GreedyLoadBalancing with byte_size_load_fn).
std::unique_ptr<Placement> GreedyByBytesPlacement(int32_t ps_count);

}  // namespace cairn
