// Means of gradients that several threads bring for a step: tf.compat.v1.ConditionalAccumulator and
// its sparse counterpart. Between processes, consistency: sync of the parameter servers is that.
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

// What both kinds have: a step, and how many gradients have come for it.
class AccumulatorBase {
 public:
  // Gradients that have come since the last Take.
  int64_t count() const;
  // Gradients of earlier steps are dropped from now on. Also backward.
  void SetStep(int64_t step);

 protected:
  // Whether a gradient of `local_step` counts; then it does.
  bool Counts(int64_t local_step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for `required` gradients. kInvalidArgument: fewer than 1. kDeadlineExceeded: says how
  // many have come.
  absl::Status Await(int64_t required, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next step begins; returns how many gradients came for this one.
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
  // For gradients of a floating dtype and this shape.
  ConditionalAccumulator(DType dtype, Shape shape);

  // Adds a gradient, unless it is of a step before the current one: then it is dropped, without an
  // error. kInvalidArgument: another dtype or shape.
  absl::Status Apply(int64_t local_step, const Tensor& gradient);
  // Waits until at least `required` gradients have come, returns the mean of all that have, and
  // begins the next step.
  absl::StatusOr<Tensor> Take(int64_t required, Deadline deadline);

 private:
  Tensor sum_ ABSL_GUARDED_BY(mutex_);
};

// Thread safety: every method may be called from several threads at once.
class SparseConditionalAccumulator : public AccumulatorBase {
 public:
  // For float32 rows of this shape.
  explicit SparseConditionalAccumulator(Shape row_shape);

  // As above. Rows may come in any order and repeat, which adds them up first.
  absl::Status Apply(int64_t local_step, const IndexedSlices& gradient);
  // Of each row the mean over the gradients that had it, by ascending row.
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
