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

}  // namespace cairn
