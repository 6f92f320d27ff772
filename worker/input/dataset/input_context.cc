#include "worker/input/dataset/input_context.h"

#include "absl/strings/str_cat.h"
#include "common/errors.h"

namespace cairn {

absl::StatusOr<int64_t> InputContext::GetPerReplicaBatchSize(int64_t global_batch_size) const {
  if (global_batch_size < 0 || global_batch_size % num_replicas_in_sync_ != 0) {
    return InvalidArgument("the global batch size ", global_batch_size,
                           " is not divisible by num_replicas_in_sync, ", num_replicas_in_sync_,
                           "; choose a multiple of it");
  }
  return global_batch_size / num_replicas_in_sync_;
}

std::string InputContext::ToText() const {
  return absl::StrCat("tf.distribute.InputContext(input pipeline id ", input_pipeline_id_,
                      ", total: ", num_input_pipelines_, ")");
}

}  // namespace cairn
