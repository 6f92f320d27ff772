// Strategy's reductions and gathers, with the implementation for strategies of one process.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/reduce_values.h"
#include "worker/strategy/strategy.h"

namespace cairn {
namespace {

// Replaces a variable, and variables that are components, by their values.
absl::StatusOr<Value> ReadVariables(const Value& value) {
  if (value.is_variable()) return value.ToTensor();
  if (!value.is_distributed()) return value;
  Value::Sequence components;
  for (const Value& component : value.items()) {
    ASSIGN_OR_RETURN(components.emplace_back(), ReadVariables(component));
  }
  return value.kind() == Value::Kind::kPerReplica ? Value::PerReplica(std::move(components))
                                                  : Value::Mirrored(std::move(components));
}

// The components of `value` (Strategy::Components), with variables read.
absl::StatusOr<Value> ReadComponents(const Strategy& strategy, absl::string_view method,
                                     const Value& value) {
  ASSIGN_OR_RETURN(const Value components, strategy.Components(method, value));
  return ReadVariables(components);
}

// Whether the other workers reduce together with this one where they are given such a value: they
// do with each value, and each value in a structure, except the mean of equal copies. Decided
// before the value is checked, so that workers that refuse it decide as those that take it.
bool Communicates(const Strategy& strategy, ReduceOp op, const Value& value) {
  const auto of_item = [&](const Value& item) { return Communicates(strategy, op, item); };
  if (value.is_none()) return false;
  if (value.is_sequence()) return std::ranges::any_of(value.items(), of_item);
  if (value.kind() == Value::Kind::kDict) {
    return std::ranges::any_of(value.dict(),
                               [&](const auto& entry) { return of_item(entry.second); });
  }
  if (op != ReduceOp::kMean) return true;
  if (!value.is_variable()) return value.kind() != Value::Kind::kMirrored;
  const Variable* const variable = value.variable().get();
  return variable == nullptr || variable->strategy() != &strategy ||
         variable->synchronization() == VariableSynchronization::kOnRead;
}

// Returns `result`; an error is also given to the other workers, if they `communicate` next.
template <typename Result>
Result ForAll(Strategy& strategy, bool communicate, Result result) {
  if (!result.ok() && communicate) strategy.RefuseCollective(result.status());
  return result;
}

// The components of a value to reduce. kInvalidArgument: those of ReadComponents, and an `op` that
// is none of the enumerators.
absl::StatusOr<Value> ComponentsToReduce(const Strategy& strategy, absl::string_view method,
                                         ReduceOp op, const Value& value) {
  RETURN_IF_ERROR(CheckReduceOp(absl::StrCat(strategy.name(), "::", method), op));
  return ReadComponents(strategy, method, value);
}

// A list, tuple or dict, or none, which counts as an empty structure.
bool IsStructureOrNone(const Value& value) {
  return value.is_none() || value.is_sequence() || value.kind() == Value::Kind::kDict;
}

// Calls `fn` with each item of a structure and returns a structure of the results.
absl::StatusOr<Value> MapLeaves(const Value& value,
                                absl::FunctionRef<absl::StatusOr<Value>(const Value&)> fn) {
  if (value.is_none()) return value;
  if (value.is_sequence()) {
    Value::Sequence items;
    for (const Value& item : value.items()) {
      ASSIGN_OR_RETURN(items.emplace_back(), fn(item));
    }
    return value.kind() == Value::Kind::kList ? Value::List(std::move(items))
                                              : Value::Tuple(std::move(items));
  }
  Value::Dict items;
  for (const auto& [key, item] : value.dict()) {
    ASSIGN_OR_RETURN(items[key], fn(item));
  }
  return Value::OfDict(std::move(items));
}

bool IsHostZero(const Value& value) {
  if (value.is_host_number()) return value.number() == 0;
  if (value.kind() != Value::Kind::kArray) return false;
  const std::vector<double> numbers = value.array().ToDoubles();
  return std::ranges::all_of(numbers, [](double number) { return number == 0; });
}

// Each replica's tensor of a value that is reduced along axes.
absl::StatusOr<std::vector<Tensor>> TensorsOf(const Value& value, int32_t replicas) {
  ASSIGN_OR_RETURN(const Value::Sequence each, EachReplica(value, replicas));
  std::vector<Tensor> tensors;
  for (const Value& own : each) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), own.ToTensor());
  }
  return tensors;
}

// Each replica's tensor, summed along `axes`, and the number of elements in each of its sums, as
// float64.
absl::Status LocalSums(const Value& value, int32_t replicas, absl::Span<const int64_t> axes,
                       Value::Sequence* sums, Value::Sequence* counts) {
  ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, TensorsOf(value, replicas));
  for (const Tensor& tensor : tensors) {
    if (tensor.is_text()) {
      return InvalidArgument("replica ", sums->size(), " gave ", tensor.TypeText(),
                             ", and texts have no sum");
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> checked, CheckAxes(axes, tensor.rank()));
    int64_t count = 1;
    for (const int64_t axis : checked) count *= tensor.shape()[static_cast<size_t>(axis)];
    ASSIGN_OR_RETURN(sums->emplace_back(), SumAxes(tensor, checked));
    counts->emplace_back(Tensor::Scalar<double>(static_cast<double>(count)));
  }
  return absl::OkStatus();
}

absl::Status NotDistributed(const Value& value, ReduceOp op) {
  return InvalidArgument(value.TypeText(), ", which is not distributed, cannot be reduced with ",
                         ReduceOpName(op),
                         ": no replica owns it; return it from the replica function, or use MEAN");
}

Value OneOrMirrored(std::vector<Value> copies) {
  if (copies.size() == 1) return std::move(copies[0]);
  return Value::Mirrored(std::move(copies));
}

}  // namespace

absl::StatusOr<std::vector<Device>> Destinations::Devices() const {
  switch (value_.kind()) {
    case Value::Kind::kNone: return std::vector<Device>{device_};
    case Value::Kind::kTensor: return std::vector<Device>{value_.tensor().device()};
    case Value::Kind::kSlices: return std::vector<Device>{value_.slices().values.device()};
    case Value::Kind::kVariable: {
      RETURN_IF_ERROR(CheckVariable("destinations", value_.variable()));
      std::vector<Device> devices;
      for (const VariablePtr& copy : value_.variable()->components()) {
        devices.push_back(copy->device());
      }
      return devices;
    }
    case Value::Kind::kPerReplica:
    case Value::Kind::kMirrored: {
      std::vector<Device> devices;
      for (const Value& item : value_.items()) {
        ASSIGN_OR_RETURN(const Tensor tensor, item.ToTensor());
        devices.push_back(tensor.device());
      }
      if (devices.empty()) break;
      return devices;
    }
    default: break;
  }
  return InvalidArgument("destinations are ", value_.TypeText(),
                         "; allowed are a device, a variable, a tensor or a "
                         "distributed value of tensors");
}

absl::StatusOr<Value> Strategy::Components(absl::string_view method, const Value& value) const {
  RETURN_IF_ERROR(CheckComponents(method, value));
  if (!value.is_variable()) return value;
  RETURN_IF_ERROR(CheckVariable(method, value.variable()));
  const std::vector<VariablePtr> copies = value.variable()->components();
  if (value.variable()->strategy() != this || copies.size() != worker_devices_.size()) return value;
  Value::Sequence components(copies.begin(), copies.end());
  return value.variable()->synchronization() == VariableSynchronization::kOnRead
             ? Value::PerReplica(std::move(components))
             : Value::Mirrored(std::move(components));
}

absl::StatusOr<Value::Sequence> Strategy::OwnComponents(absl::string_view method,
                                                        absl::Span<const Value> of_replicas) const {
  Value::Sequence own;
  for (const Value& value : of_replicas) {
    ASSIGN_OR_RETURN(const Value components, Components(method, value));
    ASSIGN_OR_RETURN(own.emplace_back(),
                     SelectReplica(components, static_cast<int32_t>(own.size())));
  }
  return own;
}

absl::StatusOr<Value> Strategy::Reduce(ReduceOp op, const Value& value, const Axes& axes) {
  RETURN_IF_ERROR(CheckCrossReplica("Reduce"));
  if (IsStructureOrNone(value)) {
    return MapLeaves(value, [&](const Value& leaf) { return Reduce(op, leaf, axes); });
  }
  ASSIGN_OR_RETURN(const Value read,
                   ForAll(*this, axes.has_value() || Communicates(*this, op, value),
                          ComponentsToReduce(*this, "Reduce", op, value)));
  if (axes.has_value()) return ReduceAxes(op, read, *axes);
  if (num_replicas_in_sync() == 1) {
    ASSIGN_OR_RETURN(const Value own, SelectReplica(read, 0));
    if (own.kind() == Value::Kind::kSlices) return own;
    return own.ToTensor();
  }
  if (read.kind() == Value::Kind::kPerReplica) {
    ASSIGN_OR_RETURN(std::vector<Value> sums, ReduceOnto(op, read.items(), {{CurrentDevice()}}));
    return std::move(sums[0]);
  }
  return ReducePlain(op, read);
}

absl::StatusOr<Value> Strategy::ReducePlain(ReduceOp op, const Value& value) {
  if (op == ReduceOp::kMean || num_replicas_in_sync() == 1 || IsHostZero(value)) {
    if (value.kind() == Value::Kind::kSlices) return value;
    ASSIGN_OR_RETURN(Tensor tensor, value.ToTensor());
    return Value(std::move(tensor));
  }
  return NotDistributed(value, op);
}

absl::StatusOr<Value> Strategy::ReduceAxes(ReduceOp op, const Value& value,
                                           absl::Span<const int64_t> axes) {
  Value::Sequence sums, counts;
  const absl::Status summed = Annotate(LocalSums(value, local_replicas(), axes, &sums, &counts),
                                       absl::StrCat(name(), "::Reduce"));
  if (!summed.ok()) {
    RefuseCollective(summed);
    return summed;
  }
  const std::vector<Device> here = {CurrentDevice()};
  if (op == ReduceOp::kSum) {
    ASSIGN_OR_RETURN(std::vector<Value> total, ReduceOnto(op, sums, here));
    return std::move(total[0]);
  }
  // The counts come first, and as a mean, so that workers that sum notice that this one does not.
  ASSIGN_OR_RETURN(const std::vector<Value> counted, ReduceOnto(op, counts, here));
  ASSIGN_OR_RETURN(const Tensor count, HostTensor(counted[0].tensor()));
  const int64_t total = std::llround(count.values<double>()[0] * num_replicas_in_sync());
  ASSIGN_OR_RETURN(const std::vector<Value> sum, ReduceOnto(ReduceOp::kSum, sums, here));
  return MeanOf(sum[0], total);
}

absl::StatusOr<Value> Strategy::Gather(const Value& value, int64_t axis) {
  RETURN_IF_ERROR(CheckCrossReplica("Gather"));
  ASSIGN_OR_RETURN(const Value read, ForAll(*this, true, ReadComponents(*this, "Gather", value)));
  // What no replica owns is whole already, unless each worker has its own.
  if (!read.is_distributed() && read.kind() != Value::Kind::kSlices &&
      local_replicas() == num_replicas_in_sync()) {
    ASSIGN_OR_RETURN(Tensor whole, read.ToTensor());
    return Value(std::move(whole));
  }
  ASSIGN_OR_RETURN(const Value::Sequence locals,
                   EachReplica(read, read.is_distributed() ? local_replicas() : 1));
  ASSIGN_OR_RETURN(Tensor whole, GatherAll(locals, axis, {}));
  return Value(std::move(whole));
}

absl::StatusOr<Value> Strategy::ReduceTo(ReduceOp op, const Value& value,
                                         const Destinations& destinations) {
  RETURN_IF_ERROR(CheckCrossReplica("ReduceTo"));
  const bool communicates = Communicates(*this, op, value);
  ASSIGN_OR_RETURN(const std::vector<Device> devices,
                   ForAll(*this, communicates, destinations.Devices()));
  if (IsStructureOrNone(value)) {
    return MapLeaves(value, [&](const Value& leaf) { return ReduceTo(op, leaf, destinations); });
  }
  ASSIGN_OR_RETURN(const Value read,
                   ForAll(*this, communicates, ComponentsToReduce(*this, "ReduceTo", op, value)));
  Value::Sequence results;
  if (read.kind() == Value::Kind::kPerReplica) {
    ASSIGN_OR_RETURN(results, ReduceOnto(op, read.items(), devices));
  } else {
    ASSIGN_OR_RETURN(const Value reduced, ReducePlain(op, read));
    return BroadcastTo(reduced, destinations);
  }
  return OneOrMirrored(std::move(results));
}

absl::StatusOr<std::vector<Value>> Strategy::BatchReduceTo(
    ReduceOp op, absl::Span<const std::pair<Value, Destinations>> values) {
  RETURN_IF_ERROR(CheckCrossReplica("BatchReduceTo"));
  const bool communicates = std::ranges::any_of(
      values, [&](const auto& pair) { return Communicates(*this, op, pair.first); });
  // All arguments are checked before the first reduction, which a worker that refuses them fails.
  Value::Sequence reads;
  std::vector<std::vector<Device>> devices;
  for (const auto& [value, destinations] : values) {
    ASSIGN_OR_RETURN(
        reads.emplace_back(),
        ForAll(*this, communicates, ComponentsToReduce(*this, "BatchReduceTo", op, value)));
    ASSIGN_OR_RETURN(devices.emplace_back(), ForAll(*this, communicates, destinations.Devices()));
  }
  std::vector<Value> results(values.size());
  // All distributed values are reduced together.
  std::vector<Value::Sequence> locals;
  std::vector<size_t> places, plain;
  for (size_t i = 0; i < values.size(); ++i) {
    if (reads[i].kind() == Value::Kind::kPerReplica) {
      locals.emplace_back(reads[i].items().begin(), reads[i].items().end());
      places.push_back(i);
      continue;
    }
    if (IsStructureOrNone(reads[i])) {
      ASSIGN_OR_RETURN(results[i], ReduceTo(op, reads[i], values[i].second));
      continue;
    }
    ASSIGN_OR_RETURN(results[i], ReducePlain(op, reads[i]));
    plain.push_back(i);
  }
  ASSIGN_OR_RETURN(const std::vector<Value> reduced, ReduceAll(op, locals, {}));
  for (size_t i = 0; i < reduced.size(); ++i) {
    ASSIGN_OR_RETURN(std::vector<Value> copies, SpreadOver(reduced[i], devices[places[i]]));
    results[places[i]] = OneOrMirrored(std::move(copies));
  }
  for (const size_t i : plain) {
    ASSIGN_OR_RETURN(results[i], BroadcastTo(results[i], values[i].second));
  }
  return results;
}

absl::StatusOr<Value> Strategy::BroadcastTo(const Value& value, const Destinations& destinations) {
  RETURN_IF_ERROR(CheckCrossReplica("BroadcastTo"));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, destinations.Devices());
  // The only component of a distributed value is that value.
  if (num_replicas_in_sync() == 1 && value.is_distributed()) {
    ASSIGN_OR_RETURN(const Value own, SelectReplica(value, 0));
    return BroadcastTo(own, destinations);
  }
  if (value.kind() == Value::Kind::kSlices) {
    ASSIGN_OR_RETURN(std::vector<Value> slices, SpreadOver(value, devices));
    return OneOrMirrored(std::move(slices));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, value.ToTensor());
  Value::Sequence copies;
  for (const Device device : devices) {
    ASSIGN_OR_RETURN(copies.emplace_back(), CopyTensor(tensor, device));
  }
  return OneOrMirrored(std::move(copies));
}

// Within one process nothing is communicated, so the options do not matter.
absl::StatusOr<std::vector<Value>> Strategy::ReduceAll(ReduceOp op,
                                                       absl::Span<const Value::Sequence> locals,
                                                       const CommunicationOptions& /*options*/) {
  std::vector<Value> results;
  results.reserve(locals.size());
  for (const Value::Sequence& values : locals) {
    ASSIGN_OR_RETURN(Value sum, SumValues(values));
    ASSIGN_OR_RETURN(results.emplace_back(),
                     OfReplicas(op, std::move(sum), static_cast<int64_t>(values.size())));
  }
  return results;
}

absl::StatusOr<std::vector<Value>> Strategy::ReduceOnto(ReduceOp op, absl::Span<const Value> locals,
                                                        absl::Span<const Device> devices) {
  const Value::Sequence values(locals.begin(), locals.end());
  ASSIGN_OR_RETURN(const std::vector<Value> reduced, ReduceAll(op, {&values, 1}, {}));
  return SpreadOver(reduced[0], devices);
}

absl::StatusOr<Tensor> Strategy::GatherAll(absl::Span<const Value> locals, int64_t axis,
                                           const CommunicationOptions& /*options*/) {
  std::vector<Tensor> tensors;
  for (const Value& local : locals) {
    if (local.kind() == Value::Kind::kSlices) {
      return absl::UnimplementedError(
          "gather does not support IndexedSlices; gather their indices and values");
    }
    ASSIGN_OR_RETURN(const Tensor tensor, local.ToTensor());
    if (tensor.is_text()) {
      return InvalidArgument("Gather: replica ", tensors.size(), " gave ", tensor.TypeText(),
                             "; texts cannot be gathered: take them with LocalResults");
    }
    tensors.push_back(tensor);
  }
  return ConcatTensors(tensors, axis);
}

}  // namespace cairn
