#include "worker/input/dataset/dataset.h"

#include <utility>

#include "common/status.h"
#include "worker/input/dataset/dataset_node.h"
#include "worker/input/dataset/step_node.h"

namespace cairn {

Dataset Dataset::FromError(absl::Status error) {
  Dataset failed(nullptr, AutoShardPolicy::kAuto);
  failed.status_ =
      error.ok() ? absl::InvalidArgumentError("FromError: the error is OK") : std::move(error);
  return failed;
}

Dataset Dataset::FromNode(std::shared_ptr<const DatasetNode> node) {
  if (node == nullptr) return NoneGiven("FromNode", "node");
  return Dataset(std::move(node), AutoShardPolicy::kAuto);
}

Dataset Dataset::WithAutoShardPolicy(AutoShardPolicy policy) const {
  Dataset changed = *this;
  changed.policy_ = policy;
  return changed;
}

int64_t Dataset::cardinality() const {
  return node_ == nullptr ? kUnknownCardinality : node_->cardinality();
}

const std::optional<ElementSpec>& Dataset::spec() const {
  static const std::optional<ElementSpec> unknown;
  return node_ == nullptr ? unknown : node_->spec();
}

absl::StatusOr<std::unique_ptr<DatasetIterator>> Dataset::MakeIterator() const {
  RETURN_IF_ERROR(status_);
  return node_->MakeIterator({.pass = node_->NextPass()});
}

}  // namespace cairn
