// Fully connected layers on top of each other.
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

// Layers PREFIX0, PREFIX1, … with kernel and bias, relu between them.
// Thread safety: immutable once made; calls on distinct steps may run at once.
class LayerStack {
 public:
  // `widths` are the outputs of the layers; relu follows each but the last, and that too where
  // `relu_last`.
  LayerStack(PartList* list, const std::string& prefix, int64_t inputs,
             absl::Span<const int64_t> widths, bool relu_last, const InitializerConfig& kernels);

  // Input [rows, inputs], rows `stride` apart; or sparse, where the kernel of the first layer may
  // be there by rows. In the step's memory.
  struct Input {
    const float* dense = nullptr;
    int64_t stride = 0;
    const CsrView* sparse = nullptr;
  };

  // y [rows, last width], memory of the caller.
  void Forward(StepView& step, const Input& x, float* y) const;
  // After Forward of the same step, from d_y [rows, last width], which is overwritten. Fills the
  // gradients of the stack's variables. `y` is what Forward left; read only where `relu_last`.
  // d_x [rows, d_x_columns], rows x.stride apart, may be null.
  void Backward(StepView& step, const Input& x, const float* y, float* d_y, float* d_x,
                int64_t d_x_columns) const;

  size_t first_kernel() const { return layers_.front().kernel; }

 private:
  struct Layer {
    size_t kernel, bias;
    size_t output, d_output;  // buffers; unused by the last layer
    int64_t inputs, outputs;
    bool relu;
  };
  std::vector<Layer> layers_;
};

}  // namespace cairn
