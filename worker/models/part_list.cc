#include "worker/models/part_list.h"

#include <utility>

namespace cairn {

size_t PartList::AddDense(std::string name, Shape shape, InitializerConfig initializer) {
  variables.push_back({.name = std::move(name),
                       .kind = VariableKind::kDense,
                       .shape = std::move(shape),
                       .initializer = std::move(initializer),
                       .touched_rows = TouchedRows::kAll});
  return variables.size() - 1;
}

size_t PartList::AddTable(std::string name, int64_t dim, InitializerConfig initializer) {
  variables.push_back({.name = std::move(name),
                       .kind = VariableKind::kEmbedding,
                       .shape = {dim},
                       .initializer = std::move(initializer),
                       .touched_rows = TouchedRows::kPushed});
  return variables.size() - 1;
}

float* Buffer(StepState* state, size_t buffer, size_t floats) {
  constexpr size_t kAlignment = 64 / sizeof(float);
  std::vector<float>& memory = state->scratch[buffer];
  if (memory.size() < floats + kAlignment) memory.resize(floats + kAlignment);
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  return memory.data() + (64 - misaligned) % 64 / sizeof(float);
}

}  // namespace cairn
