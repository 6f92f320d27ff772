#include "worker/models/layer_stack.h"

#include "absl/strings/str_cat.h"

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
    biases_.push_back(layer.bias);
    inputs = widths[i];
  }
}

void LayerStack::Forward(StepView& step, const Input& x, float* y) const {
  const float* input = x.dense;
  int64_t stride = x.stride;
  for (const Layer& layer : layers_) {
    float* output =
        &layer == &layers_.back()
            ? y
            : step.Buffer(layer.output, static_cast<size_t>(step.rows() * layer.outputs));
    const float* kernel = step.values(layer.kernel);
    const float* bias = step.values(layer.bias);
    if (x.sparse != nullptr && &layer == &layers_.front()) {
      const size_t outputs = static_cast<size_t>(layer.outputs);
      step.ops().SparseTimesDense(*x.sparse, kernel, outputs, output);
      step.ops().AddToRows(bias, static_cast<size_t>(step.rows()), outputs, layer.relu, output);
    } else {
      const bool arrives = x.arrives && &layer == &layers_.front();
      for (int64_t row = 0; row < step.rows();) {
        const int64_t end = arrives ? step.AwaitDense(row) : step.rows();
        step.ops().DenseForward({end - row, layer.inputs, layer.outputs, stride},
                                input + row * stride, kernel, bias, layer.relu,
                                output + row * layer.outputs);
        row = end;
      }
    }
    input = output;
    stride = layer.outputs;
  }
}

// Of the first layer.
void LayerStack::KernelGradient(StepView& step, const Input& x, const float* d_output) const {
  const Layer& layer = layers_.front();
  const int64_t parts = step.GradientParts(layer.kernel);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = layer.inputs * part / parts, end = layer.inputs * (part + 1) / parts;
    step.ops().DenseBackward({step.rows(), end - first, layer.outputs, x.stride}, x.dense + first,
                             step.values(layer.kernel), d_output, nullptr, 0,
                             step.gradient(layer.kernel) + first * layer.outputs);
    step.GradientPartDone(layer.kernel, static_cast<size_t>(end * layer.outputs));
  }
}

void LayerStack::Backward(StepView& step, const Input& x, const float* y, float* d_y, float* d_x,
                          int64_t d_x_columns) const {
  step.ZeroGradients(biases_);
  const float* output = y;
  float* d_output = d_y;
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    const float* input = x.dense;
    float* d_input = d_x;
    if (i > 0) {
      const size_t input_size = static_cast<size_t>(step.rows() * layer.inputs);
      input = step.Buffer(layers_[i - 1].output, input_size);
      d_input = step.Buffer(layers_[i - 1].d_output, input_size);
    }
    float* const d_kernel = step.gradient(layer.kernel);
    step.ops().BiasBackward(layer.relu ? output : nullptr, static_cast<size_t>(step.rows()),
                            static_cast<size_t>(layer.outputs), d_output,
                            step.gradient(layer.bias));
    if (i == 0 && x.sparse != nullptr) {
      const size_t outputs = static_cast<size_t>(layer.outputs);
      step.ops().SparseTransposedTimesDense(*x.sparse, d_output, outputs,
                                            step.value_count(layer.kernel) / outputs, d_kernel);
    } else if (i == 0 && d_x == nullptr) {
      KernelGradient(step, x, d_output);
    } else {
      const DenseShape shape{step.rows(), layer.inputs, layer.outputs,
                             i == 0 ? x.stride : layer.inputs};
      step.ops().DenseBackward(shape, input, step.values(layer.kernel), d_output, d_input,
                               i == 0 ? d_x_columns : layer.inputs, d_kernel);
    }
    step.GradientDone(layer.kernel);
    step.GradientDone(layer.bias);
    output = input;
    d_output = d_input;
  }
}

}  // namespace cairn
