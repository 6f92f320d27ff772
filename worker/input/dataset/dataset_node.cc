#include "worker/input/dataset/dataset_node.h"

#include "common/errors.h"
#include "glog/logging.h"

namespace cairn {

int64_t DatasetNode::cardinality() const { return input().cardinality(); }

const std::optional<ElementSpec>& DatasetNode::spec() const { return input().spec(); }

int64_t DatasetNode::batch_size() const { return inputs_.empty() ? -1 : input().batch_size(); }

absl::StatusOr<NodePtr> DatasetNode::Sharded(int64_t workers, int64_t index) const {
  return Unimplemented(name(), " cannot take share ", index, " of ", workers);
}

NodePtr SourceNode::WithInputs(std::vector<NodePtr> inputs) const {
  LOG(FATAL) << name() << " has no inputs, " << inputs.size() << " given";
}

}  // namespace cairn
