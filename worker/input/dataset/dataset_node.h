// One step of a pipeline: the interface for new sources and for code that rewrites pipelines.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {

using NodePtr = std::shared_ptr<const DatasetNode>;

// Identifies one pass over a dataset: shuffles that reshuffle mix it into their seed.
struct IterationContext {
  uint64_t pass = 0;
};

// How AutoShardPolicy::kFile proceeds at a node.
enum class FileSharding {
  kInputs,  // shard all inputs
  kNames,   // the input yields file names: shard it
  kItself,  // the node is a reader that takes its own share (Sharded)
  kNever,   // the node is a source that cannot be sharded by file
};

// Immutable. Thread safety: const methods may be called from several threads at once.
class DatasetNode {
 public:
  explicit DatasetNode(std::vector<NodePtr> inputs = {}) : inputs_(std::move(inputs)) {}
  virtual ~DatasetNode() = default;

  virtual std::string name() const = 0;  // "Range", for messages
  virtual absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const = 0;
  // Like Dataset::cardinality; by default the only input's.
  virtual int64_t cardinality() const;
  // By default the only input's.
  virtual const std::optional<ElementSpec>& spec() const;
  // Rows of the batches that pass this node, ignoring partial ones; -1: unknown. By default the
  // only input's, or -1 without an input; the default is right for steps that do not change
  // elements.
  virtual int64_t batch_size() const;

  const std::vector<NodePtr>& inputs() const { return inputs_; }
  // The same step on other inputs, as many as now. Called only if there are inputs.
  virtual NodePtr WithInputs(std::vector<NodePtr> inputs) const = 0;
  virtual FileSharding file_sharding() const { return FileSharding::kInputs; }
  // Called only for kItself: the share of worker `index` of `workers`.
  virtual absl::StatusOr<NodePtr> Sharded(int64_t workers, int64_t index) const;

  // The pass number of the next iterator whose pipeline ends at this node.
  uint64_t NextPass() const { return passes_.fetch_add(1, std::memory_order_relaxed); }

 protected:
  const DatasetNode& input() const { return *inputs_.front(); }

 private:
  const std::vector<NodePtr> inputs_;
  mutable std::atomic<uint64_t> passes_{0};
};

// A node without inputs.
class SourceNode : public DatasetNode {
 public:
  explicit SourceNode(std::optional<ElementSpec> spec) : spec_(std::move(spec)) {}
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override { return -1; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override;
  FileSharding file_sharding() const override { return FileSharding::kNever; }

 private:
  const std::optional<ElementSpec> spec_;
};

// A number of elements, not one of the constants.
inline bool IsKnown(int64_t cardinality) { return cardinality >= 0; }

}  // namespace cairn
