#include "worker/models/layer_stack.h"

#include "absl/strings/str_cat.h"
#include "worker/ops/dense.h"
#include "worker/ops/elementwise.h"

namespace cairn {

LayerStack::LayerStack(PartList* list, const std::string& prefix, int64_t inputs,
                       absl::Span<const int64_t> widths, bool relu_last,
                       const InitializerConfig& kernels) {
  for (size_t i = 0; i < widths.size(); ++i) {
    Layer layer{.inputs = inputs, .outputs = widths[i], .relu = relu_last || i + 1 < widths.size()};
    const std::string name = absl::StrCat(prefix, i);
    layer.kernel = list->AddDense(name + "/kernel", {inputs, widths[i]}, kernels);
    layer.bias = list->AddDense(name + "/bias", {widths[i]}, {});
    layer.output = list->AddBuffer();
    layer.d_output = list->AddBuffer();
    layers_.push_back(layer);
    inputs = widths[i];
  }
}

void LayerStack::Forward(StepState* state, int64_t rows, const Input& x, float* y) const {
  const float* input = x.dense;
  int64_t stride = x.stride;
  for (const Layer& layer : layers_) {
    float* output = &layer == &layers_.back()
                        ? y
                        : Buffer(state, layer.output, static_cast<size_t>(rows * layer.outputs));
    const float* kernel = state->uses[layer.kernel].values.data();
    const float* bias = state->uses[layer.bias].values.data();
    if (x.sparse != nullptr && &layer == &layers_.front()) {
      const size_t outputs = static_cast<size_t>(layer.outputs);
      SparseTimesDense(*x.sparse, kernel, outputs, output);
      AddToRows(bias, static_cast<size_t>(rows), outputs, layer.relu, output);
    } else {
      DenseForward({rows, layer.inputs, layer.outputs, stride}, input, kernel, bias, layer.relu,
                   output);
    }
    input = output;
    stride = layer.outputs;
  }
}

void LayerStack::Backward(StepState* state, int64_t rows, const Input& x, const float* y,
                          float* d_y, float* d_x, int64_t d_x_columns) const {
  const float* output = y;
  float* d_output = d_y;
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    if (layer.relu) ReluBackward(output, d_output, static_cast<size_t>(rows * layer.outputs));
    const VariableUse& kernel = state->uses[layer.kernel];
    float* d_kernel = state->uses[layer.kernel].gradient.data();
    float* d_bias = state->uses[layer.bias].gradient.data();
    if (i == 0 && x.sparse != nullptr) {
      const size_t outputs = static_cast<size_t>(layer.outputs);
      SumRows(d_output, static_cast<size_t>(rows), outputs, d_bias);
      SparseTransposedTimesDense(*x.sparse, d_output, outputs, kernel.values.size() / outputs,
                                 d_kernel);
      return;
    }
    const DenseShape shape{rows, layer.inputs, layer.outputs, i == 0 ? x.stride : layer.inputs};
    if (i == 0) {
      DenseBackward(shape, x.dense, kernel.values.data(), d_output, d_x, d_x_columns, d_kernel,
                    d_bias);
      return;
    }
    const size_t input_size = static_cast<size_t>(rows * layer.inputs);
    const float* input = Buffer(state, layers_[i - 1].output, input_size);
    float* d_input = Buffer(state, layers_[i - 1].d_output, input_size);
    DenseBackward(shape, input, kernel.values.data(), d_output, d_input, layer.inputs, d_kernel,
                  d_bias);
    output = input;
    d_output = d_input;
  }
}

}  // namespace cairn
