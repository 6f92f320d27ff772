// The input of deep models over keys: an embedding of every key, then the dense columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/models/key_tables.h"
#include "worker/models/layer_stack.h"
#include "worker/models/model_base.h"
#include "worker/models/part_list.h"

namespace cairn {

// Thread safety: immutable once made; calls on distinct steps may run at once.
class EmbeddedInput {
 public:
  // Tables embedding/C1 … of model.embedding.dim.
  EmbeddedInput(PartList* list, const ModelArguments& arguments);

  const KeyTables& tables() const { return tables_; }
  // Columns of a row: key columns x dim + dense columns.
  int64_t width() const { return tables_width_ + dense_columns_; }

  // Fills and returns the step's [rows, width()].
  LayerStack::Input Fill(StepView& step) const;
  // Gradients of `layers` over that input (no relu at the end), from d_y, and of the tables.
  void Backward(StepView& step, const LayerStack& layers, float* d_y) const;

 private:
  LayerStack::Input Filled(StepView& step) const;

  KeyTables tables_;
  int64_t tables_width_, dense_columns_, stride_;
  size_t input_, d_input_;  // buffers
};

// Initial values of embedding rows: Keras' Embedding default, uniform in [-0.05, 0.05].
InitializerConfig EmbeddingInitializer();

}  // namespace cairn
