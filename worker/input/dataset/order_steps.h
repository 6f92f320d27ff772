// The nodes that auto_shard.cc looks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/dataset_node.h"

namespace cairn {

class ShuffleNode : public DatasetNode {
 public:
  // The caller has already chosen the seed.
  ShuffleNode(NodePtr input, int64_t buffer_size, uint64_t seed, bool reshuffle)
      : DatasetNode({std::move(input)}),
        buffer_size_(buffer_size),
        seed_(seed),
        reshuffle_(reshuffle) {}
  std::string name() const override { return "Shuffle"; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override;
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override;

 private:
  const int64_t buffer_size_;
  const uint64_t seed_;
  const bool reshuffle_;
};

class ShardNode : public DatasetNode {
 public:
  // `all_must_have`: if there are fewer elements than shards, the shards that have one return an
  // error.
  ShardNode(NodePtr input, int64_t shards, int64_t index, bool all_must_have)
      : DatasetNode({std::move(input)}),
        shards_(shards),
        index_(index),
        all_must_have_(all_must_have) {}
  std::string name() const override { return "Shard"; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override;
  int64_t cardinality() const override;
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override;
  bool is_hint() const { return shards_ == kShardHint; }

 private:
  const int64_t shards_;
  const int64_t index_;
  const bool all_must_have_;
};

}  // namespace cairn
