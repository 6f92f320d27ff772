// The view of a step that models compute with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/input/batch.h"
#include "worker/models/model.h"
#include "worker/models/resident_variables.h"
#include "worker/ops/ops.h"

namespace cairn {

// The batch, the variables' values and gradients, and the model's buffers, in the memory that ops()
// compute on. Models access a step only through it, so they are the same on every device. Thread
// safety: none.
class StepView {
 public:
  // Pointers are null for parts that the batch does not have.
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
  // The dense columns like input().dense, for ops that begin before all rows are there: they may
  // read the rows that AwaitDense has returned.
  virtual const float* dense() = 0;
  // Makes later ops wait for the next group of rows. `first` is the group's first row: 0, then what
  // the call before returned. Returns the row after the group.
  virtual int64_t AwaitDense(int64_t first) = 0;

  int64_t rows() const { return batch_.rows; }
  int64_t entries() const { return static_cast<int64_t>(batch_.columns.size()); }
  // How variable `v` is used; for Part::kRows and kKeys, the number of rows.
  Part part(size_t v) const { return state_.uses[v].part; }
  size_t id_count(size_t v) const { return state_.uses[v].ids.size(); }
  // As PlanKeys found it.
  absl::Span<const size_t> distinct() const { return state_.distinct; }
  size_t value_count(size_t v) const {
    return state_.resident != nullptr ? state_.resident->floats(v) : state_.uses[v].values.size();
  }

  // In the layout of VariableUse. The ops overwrite every gradient.
  virtual const float* values(size_t v) = 0;
  virtual float* gradient(size_t v) = 0;
  // `floats` of unspecified content, 64-byte aligned. Calls with the same or a smaller size return
  // the same memory until the step ends.
  virtual float* Buffer(size_t buffer, size_t floats) = 0;

  // The order in which a device adds the terms of sums by input().positions [key columns, rows()],
  // for tables with `distinct` rows each and equally many key columns; an empty order if the device
  // needs none. A step has one order, so all its calls must have equal arguments.
  virtual SumOrder OrderOfSums(absl::Span<const size_t> distinct) = 0;

  // Call before ops that add to these variables' gradients (BiasBackward), and before any op that
  // writes the gradient of a variable between the first and the last of them, which may be zeroed
  // too. `variables` ascend. The CPU's ops overwrite gradients, so its steps zero none.
  virtual void ZeroGradients(absl::Span<const size_t> variables) = 0;
  // Call once for every variable, after all ops that write its gradient: the gradient may then
  // leave the device in parallel with the rest of the step.
  virtual void GradientDone(size_t v) = 0;
  // In how many parts to compute the gradient of `v`, which is the step's last large one, so that
  // the first parts leave the device beside the next ones.
  virtual int64_t GradientParts(size_t v) = 0;
  // Like GradientDone, for the first `floats` of the gradient. GradientDone must follow.
  virtual void GradientPartDone(size_t v, size_t floats) = 0;
  // Returns the host address that holds x after End.
  virtual const float* Fetch(const float* x, size_t count) = 0;
  // Waits until all ops are done and the gradients are in the StepState. Errors are the device's,
  // such as a lack of memory.
  virtual absl::Status End() = 0;

 protected:
  const Batch& batch_;
  const StepState& state_;
};

// A step in the memory of `batch` and `state`, with CpuOps.
class HostStep final : public StepView {
 public:
  HostStep(const Batch& batch, StepState* state);

  Ops& ops() override { return CpuOps(); }
  bool on_host() const override { return true; }
  const Input& input() override { return input_; }
  const float* dense() override { return input_.dense; }
  int64_t AwaitDense(int64_t) override { return rows(); }
  const float* values(size_t v) override { return own_.uses[v].values.data(); }
  float* gradient(size_t v) override { return own_.uses[v].gradient.data(); }
  float* Buffer(size_t buffer, size_t floats) override;
  SumOrder OrderOfSums(absl::Span<const size_t>) override { return {}; }
  void ZeroGradients(absl::Span<const size_t>) override {}
  void GradientDone(size_t) override {}
  int64_t GradientParts(size_t) override { return 1; }
  void GradientPartDone(size_t, size_t) override {}
  const float* Fetch(const float* x, size_t) override { return x; }
  absl::Status End() override { return absl::OkStatus(); }

 private:
  StepState& own_;
  const Input input_;
};

}  // namespace cairn
