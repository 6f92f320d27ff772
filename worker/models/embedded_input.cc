#include "worker/models/embedded_input.h"

namespace cairn {

InitializerConfig EmbeddingInitializer() { return {.type = "uniform"}; }

EmbeddedInput::EmbeddedInput(PartList* list, const ModelArguments& arguments)
    : tables_(list, "embedding/", arguments.schema.key_columns,
              SharingOf(arguments, arguments.config.embedding.hash_buckets),
              arguments.config.embedding.dim, EmbeddingInitializer()),
      hash_buckets_(arguments.config.embedding.hash_buckets),
      tables_width_(arguments.schema.key_columns * arguments.config.embedding.dim),
      dense_columns_(arguments.schema.dense_columns),
      stride_(PaddedStride(tables_width_ + dense_columns_)),
      input_(list->AddBuffer()),
      d_input_(list->AddBuffer()) {}

void EmbeddedInput::Plan(const Batch& batch, StepState* state) const {
  tables_.Plan(batch, hash_buckets_, state);
}

LayerStack::Input EmbeddedInput::Filled(StepView& step) const {
  return {.dense = step.Buffer(input_, static_cast<size_t>(step.rows() * stride_)),
          .stride = stride_};
}

LayerStack::Input EmbeddedInput::Fill(StepView& step) const {
  float* input = step.Buffer(input_, static_cast<size_t>(step.rows() * stride_));
  tables_.Gather(step, input, stride_);
  step.ops().CopyColumns(step.input().dense, dense_columns_, step.rows(), dense_columns_,
                         input + tables_width_, stride_);
  return Filled(step);
}

// The dense columns need no gradient, so the product leaves them out.
void EmbeddedInput::Backward(StepView& step, const LayerStack& layers, float* d_y) const {
  float* d_input = step.Buffer(d_input_, static_cast<size_t>(step.rows() * stride_));
  layers.Backward(step, Filled(step), nullptr, d_y, d_input, tables_width_);
  tables_.Scatter(step, d_input, stride_);
}

}  // namespace cairn
