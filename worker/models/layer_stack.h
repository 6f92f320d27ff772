// A stack of fully connected layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/models/part_list.h"
#include "worker/models/step_view.h"
#include "worker/ops/sparse.h"

namespace cairn {

// `widths` with `last` at the end: the outputs of hidden layers and of the last one.
inline std::vector<int64_t> WithLast(std::vector<int64_t> widths, int64_t last) {
  widths.push_back(last);
  return widths;
}

// Layers PREFIX0, PREFIX1, … with kernel and bias, relu between them. Thread safety: immutable
// after construction; calls on distinct steps may run in parallel.
class LayerStack {
 public:
  // `widths` are the outputs of the layers; relu follows every layer but the last, and with
  // `relu_last` also the last.
  LayerStack(PartList* list, const std::string& prefix, int64_t inputs,
             absl::Span<const int64_t> widths, bool relu_last, const InitializerConfig& kernels);

  // Dense input [rows, inputs], rows `stride` floats apart; or sparse input, for which the first
  // layer's kernel may be used by rows. In the step's memory.
  struct Input {
    const float* dense = nullptr;
    int64_t stride = 0;
    bool arrives = false;  // `dense` is StepView::dense()
    const CsrView* sparse = nullptr;
  };

  // y [rows, last width]; the caller's memory.
  void Forward(StepView& step, const Input& x, float* y) const;
  // Call after Forward of the same step, with d_y [rows, last width], which is overwritten.
  // Computes the gradients of the stack's variables. `y` is Forward's output, read only if
  // `relu_last`. d_x [rows, d_x_columns], rows x.stride apart, may be null.
  void Backward(StepView& step, const Input& x, const float* y, float* d_y, float* d_x,
                int64_t d_x_columns) const;

  size_t first_kernel() const { return layers_.front().kernel; }

 private:
  struct Layer {
    size_t kernel, bias;
    size_t output, d_output;  // buffer numbers; the last layer does not use them
    int64_t inputs, outputs;
    bool relu;
  };
  void KernelGradient(StepView& step, const Input& x, const float* d_output) const;

  std::vector<Layer> layers_;
  std::vector<size_t> biases_;  // of all layers, as ZeroGradients takes them
};

}  // namespace cairn
