#include "worker/input/dataset/auto_shard.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/input/dataset/dataset_node.h"
#include "worker/input/dataset/order_steps.h"

namespace cairn {
namespace {

struct Share {
  int64_t workers;
  int64_t index;
};

NodePtr EveryOther(NodePtr node, Share share) {
  return std::make_shared<ShardNode>(std::move(node), share.workers, share.index,
                                     /*all_must_have=*/true);
}

// Returns `names` without its Shuffles, which are appended to *shuffles, the last one first.
NodePtr WithoutShuffles(const NodePtr& names, std::vector<const ShuffleNode*>* shuffles) {
  if (names->inputs().size() != 1) return names;
  const auto* const shuffle = dynamic_cast<const ShuffleNode*>(names.get());
  if (shuffle != nullptr) shuffles->push_back(shuffle);
  NodePtr inner = WithoutShuffles(names->inputs().front(), shuffles);
  if (shuffle != nullptr) return inner;
  return inner == names->inputs().front() ? names : names->WithInputs({std::move(inner)});
}

// The names that worker `share` reads. An unseeded shuffle has a different order on each worker, so
// shuffles must follow the division.
NodePtr ShareOfNames(const NodePtr& names, Share share) {
  std::vector<const ShuffleNode*> shuffles;
  NodePtr divided = EveryOther(WithoutShuffles(names, &shuffles), share);
  for (auto shuffle = shuffles.rbegin(); shuffle != shuffles.rend(); ++shuffle) {
    divided = (*shuffle)->WithInputs({std::move(divided)});
  }
  return divided;
}

absl::StatusOr<NodePtr> ShardByFile(const NodePtr& node, Share share) {
  switch (node->file_sharding()) {
    case FileSharding::kItself: return node->Sharded(share.workers, share.index);
    case FileSharding::kNames: return node->WithInputs({ShareOfNames(node->inputs()[0], share)});
    case FileSharding::kNever: break;
    case FileSharding::kInputs: {
      std::vector<NodePtr> inputs;
      for (const NodePtr& input : node->inputs()) {
        ASSIGN_OR_RETURN(inputs.emplace_back(), ShardByFile(input, share));
      }
      return node->WithInputs(std::move(inputs));
    }
  }
  return NotFound("Found an unshardable source dataset: ", node->name(),
                  " reads no files; divide by element (AutoShardPolicy::kData) or not at all "
                  "(kOff), or mark the function that reads files (DatasetFunction::reads_files)");
}

NodePtr ReplaceHints(const NodePtr& node, Share share) {
  std::vector<NodePtr> inputs;
  bool changed = false;
  for (const NodePtr& input : node->inputs()) {
    inputs.push_back(ReplaceHints(input, share));
    changed = changed || inputs.back() != input;
  }
  const auto* const shard = dynamic_cast<const ShardNode*>(node.get());
  if (shard != nullptr && shard->is_hint()) return EveryOther(std::move(inputs.front()), share);
  return changed ? node->WithInputs(std::move(inputs)) : node;
}

AutoSharded Result(const Dataset& dataset, NodePtr node, AutoShardPolicy applied) {
  return {Dataset::FromNode(std::move(node)).WithAutoShardPolicy(dataset.auto_shard_policy()),
          applied};
}

}  // namespace

absl::StatusOr<AutoSharded> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                      int64_t workers, int64_t index) {
  RETURN_IF_ERROR(dataset.status());
  if (workers < 1 || index < 0 || index >= workers) {
    return InvalidArgument("auto-shard: worker ", index, " of ", workers,
                           "; there must be one or more, and the index must be between 0 and ",
                           workers - 1);
  }
  const Share share{workers, index};
  if (policy == AutoShardPolicy::kOff) return AutoSharded{dataset, policy};
  if (policy == AutoShardPolicy::kHint) {
    return Result(dataset, ReplaceHints(dataset.node(), share), policy);
  }
  if (policy != AutoShardPolicy::kData) {
    absl::StatusOr<NodePtr> node = ShardByFile(dataset.node(), share);
    if (node.ok() && workers > 1) return Result(dataset, *std::move(node), AutoShardPolicy::kFile);
    // With one worker nothing is divided, so no files are required either.
    const bool by_file = node.ok() || (workers == 1 && policy == AutoShardPolicy::kFile);
    if (by_file) return AutoSharded{dataset, AutoShardPolicy::kFile};
    if (policy == AutoShardPolicy::kFile || !absl::IsNotFound(node.status())) return node.status();
    LOG_IF(WARNING, workers > 1) << "AutoShardPolicy::kAuto finds no files and divides by element: "
                                    "every worker reads all input";
  }
  if (workers == 1) return AutoSharded{dataset, AutoShardPolicy::kData};
  return Result(dataset, EveryOther(dataset.node(), share), AutoShardPolicy::kData);
}

absl::string_view PolicyName(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::kOff: return "OFF";
    case AutoShardPolicy::kAuto: return "AUTO";
    case AutoShardPolicy::kFile: return "FILE";
    case AutoShardPolicy::kData: return "DATA";
    case AutoShardPolicy::kHint: return "HINT";
  }
  return "unknown";
}

}  // namespace cairn
