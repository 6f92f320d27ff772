// The components of models: parts (layer_stack.h, key_tables.h, linear_terms.h, sparse_columns.h)
// add their variables and buffers to the model's PartList at construction, and later work on a
// StepView (step_view.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// The variables of a model in creation order, and the number of buffers that its parts use.
struct PartList {
  std::vector<VariableSpec> variables;
  size_t buffer_count = 0;

  // Return the variable's index.
  size_t AddDense(std::string name, Shape shape, InitializerConfig initializer);
  size_t AddTable(std::string name, int64_t dim, InitializerConfig initializer);
  // The number of a buffer for StepView::Buffer.
  size_t AddBuffer() { return buffer_count++; }
};

// `floats` rounded up to whole cache lines: the distance between rows of wide activations, so that
// embedding rows of a multiple of 16 floats start on a cache line.
inline int64_t PaddedStride(int64_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace cairn
