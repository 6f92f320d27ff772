// The input of deep models over keys: an embedding of every key, followed by the dense columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/models/key_tables.h"
#include "worker/models/layer_stack.h"
#include "worker/models/model_base.h"
#include "worker/models/part_list.h"

namespace cairn {

// Thread safety: immutable after construction; calls on distinct steps may run in parallel.
class EmbeddedInput {
 public:
  // Adds the tables "embedding/…" with model.embedding.dim.
  EmbeddedInput(PartList* list, const ModelArguments& arguments);

  const KeyTables& tables() const { return tables_; }
  // Columns of a row: key columns x dim + dense columns.
  int64_t width() const { return tables_width_ + dense_columns_; }

  // Plans the use of the tables for the keys of `batch`.
  void Plan(const Batch& batch, StepState* state) const;
  // Fills the step's input [rows, width()] and returns it.
  LayerStack::Input Fill(StepView& step) const;
  // Computes, from d_y, the gradients of `layers` over that input (no relu at the end) and of the
  // tables.
  void Backward(StepView& step, const LayerStack& layers, float* d_y) const;

 private:
  LayerStack::Input Filled(StepView& step) const;

  KeyTables tables_;
  int64_t hash_buckets_, tables_width_, dense_columns_, stride_;
  size_t input_, d_input_;  // buffers
};

// Initial values of embedding rows: Keras' Embedding default, uniform in [-0.05, 0.05].
InitializerConfig EmbeddingInitializer();

}  // namespace cairn
