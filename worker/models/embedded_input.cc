#include "worker/models/embedded_input.h"

#include "worker/ops/concat.h"

namespace cairn {

InitializerConfig EmbeddingInitializer() { return {.type = "uniform"}; }

EmbeddedInput::EmbeddedInput(PartList* list, const ModelArguments& arguments)
    : tables_(list, ColumnNames("embedding/", arguments.schema.key_columns),
              arguments.config.embedding.dim, EmbeddingInitializer()),
      tables_width_(arguments.schema.key_columns * arguments.config.embedding.dim),
      dense_columns_(arguments.schema.dense_columns),
      stride_(PaddedStride(tables_width_ + dense_columns_)),
      input_(list->AddBuffer()),
      d_input_(list->AddBuffer()) {}

LayerStack::Input EmbeddedInput::Filled(const Batch& batch, StepState* state) const {
  return {.dense = Buffer(state, input_, static_cast<size_t>(batch.rows * stride_)),
          .stride = stride_};
}

LayerStack::Input EmbeddedInput::Fill(const Batch& batch, StepState* state) const {
  float* input = Buffer(state, input_, static_cast<size_t>(batch.rows * stride_));
  tables_.Gather(*state, batch.rows, input, stride_);
  CopyColumns(batch.dense.data(), dense_columns_, batch.rows, dense_columns_, input + tables_width_,
              stride_);
  return Filled(batch, state);
}

// The dense columns' gradient is not needed, so the product stops before them.
void EmbeddedInput::Backward(const Batch& batch, const LayerStack& layers, float* d_y,
                             StepState* state) const {
  float* d_input = Buffer(state, d_input_, static_cast<size_t>(batch.rows * stride_));
  layers.Backward(state, batch.rows, Filled(batch, state), nullptr, d_y, d_input, tables_width_);
  tables_.Scatter(state, batch.rows, d_input, stride_);
}

}  // namespace cairn
