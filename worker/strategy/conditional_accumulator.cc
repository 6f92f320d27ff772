#include "worker/strategy/conditional_accumulator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"

namespace cairn {

int64_t AccumulatorBase::count() const {
  absl::MutexLock lock(&mutex_);
  return count_;
}

void AccumulatorBase::SetStep(int64_t step) {
  absl::MutexLock lock(&mutex_);
  step_ = step;
}

bool AccumulatorBase::Counts(int64_t local_step) {
  if (local_step < step_) return false;
  ++count_;
  came_.SignalAll();
  return true;
}

absl::Status AccumulatorBase::Await(int64_t required, Deadline deadline) {
  if (required < 1) {
    return InvalidArgument("Take of ", required, " gradients; at least 1 must be asked for");
  }
  while (count_ < required) {
    if (deadline.Expired()) {
      return DeadlineExceeded("waited for ", required, " gradients of step ", step_, "; ", count_,
                              " have arrived");
    }
    came_.WaitUntil(&mutex_, deadline);
  }
  return absl::OkStatus();
}

int64_t AccumulatorBase::EndStep() {
  ++step_;
  return std::exchange(count_, 0);
}

ConditionalAccumulator::ConditionalAccumulator(DType dtype, Shape shape)
    : sum_(Tensor::Zeros(dtype, std::move(shape))) {}

absl::Status ConditionalAccumulator::Apply(int64_t local_step, const Tensor& gradient) {
  absl::MutexLock lock(&mutex_);
  if (gradient.is_text() || gradient.dtype() != sum_.dtype() || gradient.shape() != sum_.shape()) {
    return InvalidArgument("gradient is ", gradient.TypeText(), "; the accumulator takes ",
                           sum_.TypeText());
  }
  if (!Counts(local_step)) return absl::OkStatus();
  return ApplyElements(ElementOp::kAdd, gradient, &sum_);
}

absl::StatusOr<Tensor> ConditionalAccumulator::Take(int64_t required, Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Await(required, deadline));
  const Tensor sum = std::exchange(sum_, Tensor::Zeros(sum_.dtype(), sum_.shape(), sum_.device()));
  return DivideTensor(sum, static_cast<double>(EndStep()));
}

SparseConditionalAccumulator::SparseConditionalAccumulator(Shape row_shape)
    : row_shape_(std::move(row_shape)) {}

absl::Status SparseConditionalAccumulator::Apply(int64_t local_step,
                                                 const IndexedSlices& gradient) {
  Shape wanted = row_shape_;
  wanted.insert(wanted.begin(), gradient.indices.elements());
  const Tensor& values = gradient.values;
  if (gradient.indices.is_text() || gradient.indices.dtype() != DType::kInt64 ||
      gradient.indices.rank() != 1 || values.is_text() || values.dtype() != DType::kFloat32 ||
      values.shape() != wanted) {
    return InvalidArgument("gradient has rows ", gradient.indices.TypeText(), " and values ",
                           values.TypeText(), "; expected int64 [n] and float32 ",
                           ShapeText(wanted));
  }
  ASSIGN_OR_RETURN(const Tensor indices, HostTensor(gradient.indices));
  ASSIGN_OR_RETURN(const Tensor rows, HostTensor(values));
  absl::MutexLock lock(&mutex_);
  if (!Counts(local_step)) return absl::OkStatus();
  const float* from = rows.values<float>().data();
  const auto width = static_cast<size_t>(RowWidth(wanted));
  std::set<int64_t> seen;
  for (const int64_t index : indices.values<int64_t>()) {
    Row& row = rows_[index];
    row.sum.resize(width);
    for (size_t i = 0; i < width; ++i) row.sum[i] += from[i];
    from += width;
    if (seen.insert(index).second) ++row.gradients;
  }
  return absl::OkStatus();
}

absl::StatusOr<IndexedSlices> SparseConditionalAccumulator::Take(int64_t required,
                                                                 Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Await(required, deadline));
  EndStep();
  const std::map<int64_t, Row> rows = std::exchange(rows_, {});
  std::vector<int64_t> indices;
  std::vector<float> values;
  for (const auto& [index, row] : rows) {
    indices.push_back(index);
    for (const float sum : row.sum) values.push_back(sum / static_cast<float>(row.gradients));
  }
  Shape shape = row_shape_;
  shape.insert(shape.begin(), static_cast<int64_t>(indices.size()));
  return IndexedSlices{Tensor::Vector<int64_t>(indices), Tensor::Of<float>(shape, values)};
}

}  // namespace cairn
