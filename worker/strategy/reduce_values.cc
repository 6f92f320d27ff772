#include "worker/strategy/reduce_values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

bool IsSlices(const Value& value) { return value.kind() == Value::Kind::kSlices; }

absl::StatusOr<Tensor> Mean(const Tensor& total, int64_t count) {
  Tensor sum = total;
  if (!IsFloating(total.dtype())) {
    ASSIGN_OR_RETURN(sum, CastTensor(total, DType::kFloat64));
  }
  if (count != 0) return DivideTensor(sum, static_cast<double>(count));
  return FullTensor(sum.dtype(), sum.shape(), std::nan(""), sum.device());
}

absl::StatusOr<Value> ConcatSlices(absl::Span<const Value> values) {
  std::vector<Tensor> indices;
  std::vector<Tensor> rows;
  for (const Value& value : values) {
    const Tensor& own = value.slices().values;
    if (own.rank() < 1 || own.shape()[0] != value.slices().indices.elements()) {
      return InvalidArgument("replica ", rows.size(), " gave ", own.TypeText(), " for ",
                             value.slices().indices.elements(), " rows");
    }
    indices.push_back(value.slices().indices);
    rows.push_back(own);
  }
  IndexedSlices all;
  ASSIGN_OR_RETURN(all.indices, ConcatTensors(indices, 0));
  ASSIGN_OR_RETURN(all.values, ConcatTensors(rows, 0));
  return Value(std::move(all));
}

}  // namespace

absl::Status CheckReduceOp(absl::string_view method, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) return absl::OkStatus();
  return InvalidArgument(method, ": found reduce op ", static_cast<int>(op),
                         "; allowed: SUM, MEAN");
}

absl::StatusOr<Value> SumValues(absl::Span<const Value> values) {
  if (values.empty()) {
    return absl::InvalidArgumentError("found no values to reduce; give one for each local replica");
  }
  const auto slices = static_cast<size_t>(std::ranges::count_if(values, IsSlices));
  if (slices == values.size()) return ConcatSlices(values);
  if (slices != 0) {
    return absl::InvalidArgumentError(
        "some replicas gave a tensor and some IndexedSlices; all must give one kind");
  }
  std::vector<Tensor> tensors;
  for (const Value& value : values) {
    ASSIGN_OR_RETURN(Tensor tensor, value.ToTensor());
    if (tensor.is_text()) {
      return InvalidArgument("replica ", tensors.size(), " gave ", tensor.TypeText(),
                             ", and texts have no sum; take them with LocalResults");
    }
    if (!tensors.empty() &&
        (tensor.dtype() != tensors[0].dtype() || tensor.shape() != tensors[0].shape())) {
      return InvalidArgument("replica 0 gave ", tensors[0].TypeText(), ", replica ", tensors.size(),
                             " gave ", tensor.TypeText(), "; all must give one dtype and shape");
    }
    tensors.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(Tensor sum, AddTensors(tensors));
  return Value(std::move(sum));
}

absl::StatusOr<Value> MeanOf(const Value& sum, int64_t count) {
  if (!IsSlices(sum)) {
    ASSIGN_OR_RETURN(Tensor mean, Mean(sum.tensor(), count));
    return Value(std::move(mean));
  }
  ASSIGN_OR_RETURN(Tensor mean, Mean(sum.slices().values, count));
  return Value(IndexedSlices{sum.slices().indices, std::move(mean)});
}

absl::StatusOr<Value> OfReplicas(ReduceOp op, Value sum, int64_t count) {
  if (op == ReduceOp::kSum || count == 1) return sum;
  return MeanOf(sum, count);
}

absl::StatusOr<std::vector<Value>> SpreadMirrored(absl::Span<const Value> components,
                                                  absl::Span<const Device> devices) {
  std::vector<Value> spread;
  std::vector<bool> given(components.size());
  for (const Device device : devices) {
    size_t at = 0;
    while (at < components.size() && (given[at] || components[at].tensor().device() != device))
      ++at;
    if (at < components.size()) {
      given[at] = true;
      spread.push_back(components[at]);
      continue;
    }
    ASSIGN_OR_RETURN(spread.emplace_back(), CopyTensor(components[0].tensor(), device));
  }
  return spread;
}

absl::StatusOr<std::vector<Value>> SpreadOver(const Value& value,
                                              absl::Span<const Device> devices) {
  if (value.kind() == Value::Kind::kMirrored) return SpreadMirrored(value.items(), devices);
  const Tensor& memory = IsSlices(value) ? value.slices().values : value.tensor();
  std::vector<Value> spread;
  bool given = false;
  for (const Device device : devices) {
    if (!given && memory.device() == device) {
      given = true;
      spread.push_back(value);
      continue;
    }
    ASSIGN_OR_RETURN(Tensor copy, CopyTensor(memory, device));
    if (IsSlices(value)) {
      ASSIGN_OR_RETURN(Tensor indices, CopyTensor(value.slices().indices, device));
      spread.emplace_back(IndexedSlices{std::move(indices), std::move(copy)});
    } else {
      spread.emplace_back(std::move(copy));
    }
  }
  return spread;
}

absl::StatusOr<std::vector<Value>> ReduceApart(ReplicaValues locals,
                                               const std::vector<bool>& chosen,
                                               ReduceFn reduce_chosen, ReduceFn reduce_others) {
  std::vector<Value::Sequence> first, second;
  for (size_t v = 0; v < locals.size(); ++v) (chosen[v] ? first : second).push_back(locals[v]);
  std::vector<Value> of_first;
  if (!first.empty()) {
    ASSIGN_OR_RETURN(of_first, reduce_chosen(first));
  }
  ASSIGN_OR_RETURN(std::vector<Value> of_second, reduce_others(second));
  std::vector<Value> results;
  auto one = of_first.begin(), other = of_second.begin();
  for (const bool is_first : chosen) results.push_back(std::move(is_first ? *one++ : *other++));
  return results;
}

}  // namespace cairn
