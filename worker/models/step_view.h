// A step as models compute it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "worker/input/batch.h"
#include "worker/models/model.h"
#include "worker/ops/ops.h"

namespace cairn {

// The batch, the variables' values and gradients and the model's buffers, in the memory that ops()
// compute on. Models see nothing else of a step, so that they are the same on every device.
// Thread safety: none.
class StepView {
 public:
  // Pointers of the batch are null where it has nothing of the kind.
  struct Input {
    const float* labels = nullptr;
    const float* dense = nullptr;
    const int64_t* row_offsets = nullptr;
    const int32_t* columns = nullptr;
    const float* values = nullptr;  // of entries
    const int32_t* positions = nullptr;
  };

  StepView(const Batch& batch, const StepState& state) : batch_(batch), state_(state) {}
  virtual ~StepView() = default;
  StepView(const StepView&) = delete;
  StepView& operator=(const StepView&) = delete;

  virtual Ops& ops() = 0;
  virtual bool on_host() const = 0;
  virtual const Input& input() = 0;

  int64_t rows() const { return batch_.rows; }
  int64_t entries() const { return static_cast<int64_t>(batch_.columns.size()); }
  // How variable `v` is used; of Part::kRows and kKeys, how many.
  Part part(size_t v) const { return state_.uses[v].part; }
  size_t id_count(size_t v) const { return state_.uses[v].ids.size(); }
  size_t value_count(size_t v) const { return state_.uses[v].values.size(); }

  // As VariableUse has them. The ops write every gradient, whatever it held.
  virtual const float* values(size_t v) = 0;
  virtual float* gradient(size_t v) = 0;
  // `floats` of unspecified content, 64-byte aligned. Calls with the same or a smaller size return
  // the same memory until the step ends.
  virtual float* Buffer(size_t buffer, size_t floats) = 0;

  // All ops that write the gradient have been called, so that it may leave the device beside the
  // rest of the step. Called once for every variable.
  virtual void GradientDone(size_t v) = 0;
  // Where x will be in host memory after End.
  virtual const float* Fetch(const float* x, size_t count) = 0;
  // Waits until all ops are done and gradients are in the StepState. Errors are the device's; some
  // memory could not be had, say.
  virtual absl::Status End() = 0;

 protected:
  const Batch& batch_;
  const StepState& state_;
};

// In the memory of `batch` and `state`, with CpuOps.
class HostStep final : public StepView {
 public:
  HostStep(const Batch& batch, StepState* state);

  Ops& ops() override { return CpuOps(); }
  bool on_host() const override { return true; }
  const Input& input() override { return input_; }
  const float* values(size_t v) override { return own_.uses[v].values.data(); }
  float* gradient(size_t v) override { return own_.uses[v].gradient.data(); }
  float* Buffer(size_t buffer, size_t floats) override;
  void GradientDone(size_t) override {}
  const float* Fetch(const float* x, size_t) override { return x; }
  absl::Status End() override { return absl::OkStatus(); }

 private:
  StepState& own_;
  const Input input_;
};

}  // namespace cairn
