// Makes the nodes of Dataset's sources and transformations; the caller has checked the arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/dataset_node.h"

namespace cairn::steps {

NodePtr Range(int64_t start, int64_t stop, int64_t step);
// `rows`: the number of rows of every component. `whole`: yields the unchanged tensors as one
// element.
NodePtr Slices(Element tensors, int64_t rows, bool whole);
NodePtr Generate(GeneratorFactory factory, std::optional<ElementSpec> spec);

// The records of one file.
NodePtr TextLines(std::string file);
NodePtr Records(std::string file, Compression compression);
NodePtr FixedRecords(std::string file, int64_t record_bytes, int64_t header_bytes,
                     int64_t footer_bytes);

NodePtr Batch(NodePtr input, int64_t batch_size, bool drop_remainder);
NodePtr PaddedBatch(NodePtr input, int64_t batch_size, bool drop_remainder);
NodePtr Unbatch(NodePtr input);
NodePtr Repeat(NodePtr input, int64_t count);
NodePtr Take(NodePtr input, int64_t count);
NodePtr Skip(NodePtr input, int64_t count);
NodePtr Map(NodePtr input, MapFunction function, MapOptions options);
NodePtr Filter(NodePtr input, FilterFunction predicate);
NodePtr FlatMap(NodePtr input, DatasetFunction function);
NodePtr Interleave(NodePtr input, DatasetFunction function, int64_t cycle_length,
                   int64_t block_length);
NodePtr Cache(NodePtr input);
NodePtr Zip(std::vector<NodePtr> inputs);
NodePtr Concatenate(NodePtr first, NodePtr second, std::optional<ElementSpec> spec);
NodePtr Prefetch(NodePtr input, int64_t buffer_size);
NodePtr Rebatch(NodePtr input, std::vector<int64_t> sizes, bool drop_remainder);
NodePtr LegacyRebatch(NodePtr input, int64_t splits);

// In this header because auto_shard.h looks for it.
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

}  // namespace cairn::steps
