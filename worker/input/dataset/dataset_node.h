// One step of a pipeline, for those who add sources and for what rewrites pipelines.
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

// Which pass over a dataset an iterator is: shuffles that reshuffle mix it into their seed.
struct IterationContext {
  uint64_t pass = 0;
};

// How AutoShardPolicy::kFile goes on at a node.
enum class FileSharding {
  kInputs,  // it shards all inputs
  kNames,   // the input yields names of files: it is what is sharded
  kItself,  // a reader that takes its own share (Sharded)
  kNever,   // a source that cannot be sharded by file
};

// Immutable. Thread safety: const methods may be called from several threads at once.
class DatasetNode {
 public:
  explicit DatasetNode(std::vector<NodePtr> inputs = {}) : inputs_(std::move(inputs)) {}
  virtual ~DatasetNode() = default;

  virtual std::string name() const = 0;  // "Range", for messages
  virtual absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const = 0;
  // As Dataset::cardinality; by default that of the only input.
  virtual int64_t cardinality() const;
  // By default that of the only input.
  virtual const std::optional<ElementSpec>& spec() const;
  // Rows of the batches that pass here, partial ones aside; -1: not known. By default that of the
  // only input, and -1 without one: right for steps that let elements pass as they are.
  virtual int64_t batch_size() const;

  const std::vector<NodePtr>& inputs() const { return inputs_; }
  // The same step on other inputs, as many. Called only where there are inputs.
  virtual NodePtr WithInputs(std::vector<NodePtr> inputs) const = 0;
  virtual FileSharding file_sharding() const { return FileSharding::kInputs; }
  // Called only for kItself: this reader's share of worker `index` of `workers`.
  virtual absl::StatusOr<NodePtr> Sharded(int64_t workers, int64_t index) const;

  // The number of the next iterator of this node as the last of a pipeline.
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

// A number of elements, and none of the constants.
inline bool IsKnown(int64_t cardinality) { return cardinality >= 0; }

}  // namespace cairn
