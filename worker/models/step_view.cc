#include "worker/models/step_view.h"

namespace cairn {

HostStep::HostStep(const Batch& batch, StepState* state)
    : StepView(batch, *state),
      own_(*state),
      input_{.labels = batch.labels.data(),
             .dense = batch.dense.data(),
             .row_offsets = batch.row_offsets.data(),
             .columns = batch.columns.data(),
             .values = batch.values.data(),
             .positions = state->positions.data()} {}

float* HostStep::Buffer(size_t buffer, size_t floats) {
  constexpr size_t kAlignment = 64 / sizeof(float);
  std::vector<float>& memory = own_.scratch[buffer];
  if (memory.size() < floats + kAlignment) memory.resize(floats + kAlignment);
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  return memory.data() + (64 - misaligned) % 64 / sizeof(float);
}

}  // namespace cairn
