#include "worker/ops/tensor_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/errors.h"
#include "common/optimizer/clip.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/ops/device_tensors.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

bool IsDouble(const Tensor& tensor) { return tensor.dtype() == DType::kFloat64; }

void ClipOneByNorm(double limit, Tensor* tensor) {
  if (IsDouble(*tensor)) return ClipByNorm(tensor->mutable_values<double>(), limit);
  ClipByNorm(tensor->mutable_values<float>(), static_cast<float>(limit));
}

void ClipOneByValue(double limit, Tensor* tensor) {
  if (IsDouble(*tensor)) return ClipByValue(tensor->mutable_values<double>(), -limit, limit);
  const auto bound = static_cast<float>(limit);
  ClipByValue(tensor->mutable_values<float>(), -bound, bound);
}

void ClipTogether(double limit, absl::Span<TensorGradient> gradients) {
  std::vector<absl::Span<float>> floats;
  std::vector<absl::Span<double>> doubles;
  for (TensorGradient& gradient : gradients) {
    if (IsDouble(gradient.values)) {
      doubles.push_back(gradient.values.mutable_values<double>());
    } else {
      floats.push_back(gradient.values.mutable_values<float>());
    }
  }
  if (doubles.empty()) {
    ClipByGlobalNorm(floats, static_cast<float>(limit));
    return;
  }
  const std::vector<absl::Span<const float>> read(floats.begin(), floats.end());
  double norm = GlobalNorm(read);
  for (const absl::Span<double> tensor : doubles) norm = std::hypot(norm, L2Norm(tensor));
  // norm - norm is 0, or NaN if the norm is not finite.
  const double scale = limit * std::min(1 / norm, 1 / limit) + (norm - norm);
  for (const absl::Span<double> tensor : doubles) {
    for (double& x : tensor) x *= scale;
  }
  for (const absl::Span<float> tensor : floats) {
    for (float& x : tensor) x *= static_cast<float>(scale);
  }
}

bool IsAscending(absl::Span<const int64_t> rows) {
  return std::ranges::adjacent_find(rows, std::greater_equal<>()) == rows.end();
}

// `order[i]` is the position in `rows` of the i-th smallest row; equal rows are adjacent.
template <typename T>
void AddInOrder(absl::Span<const int64_t> rows, absl::Span<const size_t> order, const T* from,
                size_t width, T* to) {
  for (size_t i = 0; i < order.size(); ++i) {
    const T* const row = from + order[i] * width;
    if (i > 0 && rows[order[i]] == rows[order[i - 1]]) {
      T* const sum = to - width;
      for (size_t k = 0; k < width; ++k) sum[k] += row[k];
    } else {
      to = std::copy_n(row, width, to);
    }
  }
}

absl::Status CheckUpdate(const Optimizer& optimizer, const TensorGradient& gradient,
                         const Tensor& value, absl::Span<Tensor* const> slots) {
  const auto wrong = [&](const auto&... text) {
    return InvalidArgument("update by optimizer '", optimizer.config().type, "' of ",
                           value.TypeText(), ": ", text...);
  };
  if (value.is_text() || (value.dtype() != DType::kFloat32 && value.dtype() != DType::kFloat64)) {
    return wrong("optimizers move float32 and float64");
  }
  if (slots.size() != optimizer.slots().size()) {
    return wrong("found ", slots.size(), " slots, expected ", optimizer.slots().size());
  }
  for (const Tensor* slot : slots) {
    if (slot->dtype() != value.dtype() || slot->shape() != value.shape()) {
      return wrong("found a slot that is ", slot->TypeText());
    }
  }
  Shape shape = value.shape();
  if (gradient.rows.has_value()) {
    if (shape.empty()) return wrong("found a gradient of rows; a scalar has none");
    const int64_t count = std::exchange(shape[0], gradient.rows->elements());
    const auto rows = gradient.rows->values<int64_t>();
    if (!IsAscending(rows)) return wrong("the gradient's rows are not in ascending order");
    if (!rows.empty() && (rows.front() < 0 || rows.back() >= count)) {
      return wrong("found a gradient of rows ", rows.front(), " to ", rows.back());
    }
  }
  if (gradient.values.dtype() != value.dtype() || gradient.values.shape() != shape) {
    return wrong("found a gradient that is ", gradient.values.TypeText(), ", expected ",
                 DTypeName(value.dtype()), " ", ShapeText(shape));
  }
  return absl::OkStatus();
}

template <typename T>
void UpdateOnHost(const Optimizer& optimizer, const UpdateStep& step,
                  const TensorGradient& gradient, Tensor* value, absl::Span<Tensor* const> slots) {
  std::array<T*, Optimizer::kMaxSlots> at{};
  const auto slots_at = [&](size_t element) {
    for (size_t s = 0; s < slots.size(); ++s) {
      at[s] = slots[s]->mutable_values<T>().data() + element;
    }
    return at.data();
  };
  T* const to = value->mutable_values<T>().data();
  const auto count = static_cast<size_t>(value->elements());
  const T* from = gradient.values.values<T>().data();
  if (!gradient.rows.has_value()) {
    optimizer.Apply(step, to, slots_at(0), from, count);
    return;
  }
  const auto width = static_cast<size_t>(RowWidth(value->shape()));
  size_t next = 0;  // the first element that is not updated yet
  for (const int64_t row : gradient.rows->values<int64_t>()) {
    const size_t first = static_cast<size_t>(row) * width;
    optimizer.ApplyZero(step, to + next, slots_at(next), first - next);
    optimizer.Apply(step, to + first, slots_at(first), from, width);
    next = first + width;
    from += width;
  }
  optimizer.ApplyZero(step, to + next, slots_at(next), count - next);
}

// One variable's part of an update, with all arrays in the memory of its GPU.
struct OnGpu {
  Tensor* value = nullptr;
  std::array<void*, Optimizer::kMaxSlots> slots{};
  Tensor gradient;
  std::optional<Tensor> rows;  // nullopt: the gradient is whole

  VariableArrays arrays() const {
    return {value->mutable_data(), slots.data(), gradient.data(),
            static_cast<size_t>(value->elements())};
  }
};

absl::StatusOr<OnGpu> MoveToGpu(const Optimizer& optimizer, const TensorUpdate& update) {
  const TensorGradient& gradient = update.gradient;
  const Device gpu = update.value->device();
  OnGpu moved{.value = update.value, .slots = {}, .gradient = {}, .rows = {}};
  for (size_t s = 0; s < update.slots.size(); ++s) {
    moved.slots[s] = update.slots[s]->mutable_data();
  }
  ASSIGN_OR_RETURN(moved.gradient, TensorOn(gpu, gradient.values));
  if (!gradient.rows.has_value()) return moved;
  if (optimizer.ZeroGradientIsIdentity()) {
    ASSIGN_OR_RETURN(moved.rows, TensorOn(gpu, *gradient.rows));
    return moved;
  }
  ASSIGN_OR_RETURN(Tensor whole, FullTensor(update.value->dtype(), update.value->shape(), 0, gpu));
  RETURN_IF_ERROR(ApplyRows(ElementOp::kSet, *gradient.rows, moved.gradient, &whole));
  moved.gradient = std::move(whole);
  return moved;
}

// Updates variables with whole gradients of one dtype in one call.
void QueueUpdates(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const OnGpu> updates, DeviceQueue& queue) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    std::vector<VariableArrays> whole;
    for (const OnGpu& update : updates) {
      if (update.value->dtype() != dtype) continue;
      if (!update.rows.has_value()) {
        whole.push_back(update.arrays());
        continue;
      }
      queue.ApplyOptimizerToRows(optimizer, step, dtype, update.arrays(),
                                 static_cast<const int64_t*>(update.rows->data()),
                                 static_cast<size_t>(update.rows->elements()),
                                 static_cast<size_t>(RowWidth(update.value->shape())));
    }
    if (!whole.empty()) queue.ApplyOptimizer(optimizer, step, dtype, whole);
  }
}

}  // namespace

absl::Status ClipGradients(const OptimizerConfig& config, absl::Span<TensorGradient> gradients) {
  const auto clipped = [&config](const TensorGradient& gradient) {
    return config.global_clipnorm > 0 || config.clipnorm > 0 ||
           (config.clipvalue > 0 && gradient.rows.has_value());
  };
  // Norms are computed in host memory.
  std::vector<Device> devices;
  for (TensorGradient& gradient : gradients) {
    devices.push_back(gradient.values.device());
    if (!clipped(gradient)) continue;
    const Device host = gradient.values.device().is_cpu() ? gradient.values.device() : Cpu(0);
    ASSIGN_OR_RETURN(gradient.values, CopyTensor(gradient.values, host));
  }
  if (config.global_clipnorm > 0) ClipTogether(config.global_clipnorm, gradients);
  for (TensorGradient& gradient : gradients) {
    if (config.clipnorm > 0) ClipOneByNorm(config.clipnorm, &gradient.values);
    const bool of_rows = gradient.rows.has_value();
    if (config.clipvalue > 0 && of_rows) ClipOneByValue(config.clipvalue, &gradient.values);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].values.device() == devices[i]) continue;
    ASSIGN_OR_RETURN(gradients[i].values, CopyTensor(gradients[i].values, devices[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorGradient> WithDistinctRows(const TensorGradient& gradient) {
  if (!gradient.rows.has_value()) return gradient;
  const auto rows = gradient.rows->values<int64_t>();
  if (IsAscending(rows)) return gradient;
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&rows](size_t a, size_t b) { return rows[a] < rows[b]; });
  std::vector<int64_t> distinct(rows.begin(), rows.end());
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const Tensor& values = gradient.values;
  Shape shape = values.shape();
  shape[0] = static_cast<int64_t>(distinct.size());
  if (!values.device().is_cpu()) {
    std::vector<int64_t> places(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      places[i] = std::lower_bound(distinct.begin(), distinct.end(), rows[i]) - distinct.begin();
    }
    ASSIGN_OR_RETURN(Tensor sums, FullTensor(values.dtype(), shape, 0, values.device()));
    RETURN_IF_ERROR(ApplyRows(ElementOp::kAdd, Tensor::Vector<int64_t>(places), values, &sums));
    return TensorGradient{Tensor::Vector<int64_t>(distinct), std::move(sums)};
  }
  const auto width = static_cast<size_t>(RowWidth(shape));
  Tensor sums = Tensor::Uninitialized(values.dtype(), shape, values.device());
  if (IsDouble(values)) {
    AddInOrder(rows, order, values.values<double>().data(), width,
               sums.mutable_values<double>().data());
  } else {
    AddInOrder(rows, order, values.values<float>().data(), width,
               sums.mutable_values<float>().data());
  }
  return TensorGradient{Tensor::Vector<int64_t>(distinct), std::move(sums)};
}

absl::Status UpdateTensors(const Optimizer& optimizer, const UpdateStep& step,
                           absl::Span<const TensorUpdate> updates) {
  for (const TensorUpdate& update : updates) {
    RETURN_IF_ERROR(CheckUpdate(optimizer, update.gradient, *update.value, update.slots));
  }
  absl::flat_hash_map<Device, std::vector<OnGpu>> on_gpus;
  for (const TensorUpdate& update : updates) {
    if (!update.value->device().is_cpu()) {
      ASSIGN_OR_RETURN(OnGpu moved, MoveToGpu(optimizer, update));
      on_gpus[update.value->device()].push_back(std::move(moved));
      continue;
    }
    ASSIGN_OR_RETURN(const Tensor from, HostTensor(update.gradient.values));
    const TensorGradient here{update.gradient.rows, from};
    if (IsDouble(*update.value)) {
      UpdateOnHost<double>(optimizer, step, here, update.value, update.slots);
    } else {
      UpdateOnHost<float>(optimizer, step, here, update.value, update.slots);
    }
  }
  for (const auto& [device, moved] : on_gpus) {
    ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> gpu, DeviceTensors::Of(device));
    RETURN_IF_ERROR(
        gpu->Compute([&](DeviceQueue& queue) { QueueUpdates(optimizer, step, moved, queue); }));
  }
  return absl::OkStatus();
}

absl::Status UpdateTensor(const Optimizer& optimizer, const UpdateStep& step,
                          const TensorGradient& gradient, Tensor* value,
                          absl::Span<Tensor* const> slots) {
  const TensorUpdate update{gradient, value, slots};
  return UpdateTensors(optimizer, step, {&update, 1});
}

}  // namespace cairn
