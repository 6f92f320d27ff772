// Averages the gradients that several threads contribute to a step:
// tf.compat.v1.ConditionalAccumulator and its sparse counterpart. Between processes, `consistency:
// sync` of the parameter servers does this.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "common/tensor.h"
#include "worker/strategy/value.h"

namespace cairn {

// State that both accumulators share: the current step and the number of gradients received for it.
class AccumulatorBase {
 public:
  // Number of gradients received since the last Take.
  int64_t count() const;
  // Sets the current step; gradients of earlier steps are dropped from now on. The step may also
  // decrease.
  void SetStep(int64_t step);

 protected:
  // Whether a gradient of `local_step` is recent enough to count. If so, increments count().
  bool Counts(int64_t local_step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for `required` gradients. kInvalidArgument: `required` is less than 1. kDeadlineExceeded:
  // the message says how many gradients have arrived.
  absl::Status Await(int64_t required, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next step. Returns the number of gradients received for the finished one.
  int64_t EndStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;

 private:
  MonotonicCondVar came_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Thread safety: every method may be called from several threads at once.
class ConditionalAccumulator : public AccumulatorBase {
 public:
  // Accepts gradients of `dtype`, a floating-point type, and `shape`.
  ConditionalAccumulator(DType dtype, Shape shape);

  // Adds a gradient. A gradient of an earlier step is dropped without an error. kInvalidArgument:
  // wrong dtype or shape.
  absl::Status Apply(int64_t local_step, const Tensor& gradient);
  // Waits for at least `required` gradients, returns the mean of all received gradients, and starts
  // the next step.
  absl::StatusOr<Tensor> Take(int64_t required, Deadline deadline);

 private:
  Tensor sum_ ABSL_GUARDED_BY(mutex_);
};

// Thread safety: every method may be called from several threads at once.
class SparseConditionalAccumulator : public AccumulatorBase {
 public:
  // Accepts slices whose rows are float32 of `row_shape`.
  explicit SparseConditionalAccumulator(Shape row_shape);

  // Like ConditionalAccumulator::Apply. Rows may be in any order; repeated rows are summed first.
  absl::Status Apply(int64_t local_step, const IndexedSlices& gradient);
  // For each row, the mean over the gradients that contain the row; rows in ascending order.
  absl::StatusOr<IndexedSlices> Take(int64_t required, Deadline deadline);

 private:
  struct Row {
    std::vector<float> sum;
    int64_t gradients = 0;
  };
  const Shape row_shape_;
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
