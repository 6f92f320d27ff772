#include "worker/strategy/multi_worker_mirrored_strategy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/hash.h"
#include "common/status.h"
#include "worker/collective/batch_all_reduce.h"
#include "worker/collective/gather_slices.h"
#include "worker/collective/gather_values.h"
#include "worker/collective/gloo_group.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/reduce_values.h"

namespace cairn {
namespace {

using Implementation = CommunicationImplementation;

constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);

MutableBuffer BufferOf(Tensor& tensor) {
  return {tensor.dtype(), tensor.mutable_data(), tensor.elements()};
}
ConstBuffer BufferOf(const Tensor& tensor) {
  return {tensor.dtype(), tensor.data(), tensor.elements()};
}

// Copies slices to host memory; their rows become int64.
absl::StatusOr<IndexedSlices> HostSlices(const IndexedSlices& slices) {
  IndexedSlices host;
  ASSIGN_OR_RETURN(const Tensor rows, HostTensor(slices.indices));
  ASSIGN_OR_RETURN(host.indices, CastTensor(rows, DType::kInt64));
  ASSIGN_OR_RETURN(host.values, HostTensor(slices.values));
  return host;
}

// A tensor (without indices) or slices in host memory, as they are sent. kInvalidArgument: slices
// that have no row for each index, or a value that is no tensor.
absl::StatusOr<IndexedSlices> Sendable(const Value& value) {
  if (value.kind() != Value::Kind::kSlices) {
    ASSIGN_OR_RETURN(const Tensor tensor, value.ToTensor());
    IndexedSlices alone;
    ASSIGN_OR_RETURN(alone.values, HostTensor(tensor));
    return alone;
  }
  const auto& [indices, values] = value.slices();
  if (indices.is_text() || indices.rank() != 1 || values.is_text() || values.rank() < 1 ||
      values.shape()[0] != indices.elements()) {
    return InvalidArgument("IndexedSlices to reduce or broadcast: found ", values.TypeText(),
                           " for rows ", indices.TypeText(), "; give one row for each index");
  }
  return HostSlices(value.slices());
}

// Copies the values to sum over the workers to host memory. Errors as Sendable's.
absl::StatusOr<std::vector<Value>> HostCopies(absl::Span<const Value> values) {
  std::vector<Value> copies;
  for (const Value& value : values) {
    if (value.kind() != Value::Kind::kSlices) {
      ASSIGN_OR_RETURN(copies.emplace_back(), CopyTensor(value.tensor(), Cpu(0)));
      continue;
    }
    ASSIGN_OR_RETURN(copies.emplace_back(), Sendable(value));
  }
  return copies;
}

// A digest of the shapes of tensors, and of the rows of slices, that are reduced together.
uint32_t ShapesDigest(absl::Span<const Value> values) {
  uint64_t digest = 0;
  const auto add = [&digest](uint64_t word) { digest = MixBits(digest ^ word); };
  for (const Value& value : values) {
    const bool of_rows = value.kind() == Value::Kind::kSlices;
    const Shape& shape = of_rows ? value.slices().values.shape() : value.tensor().shape();
    add(shape.size());
    for (size_t i = of_rows ? 1 : 0; i < shape.size(); ++i) add(static_cast<uint64_t>(shape[i]));
  }
  return static_cast<uint32_t>(digest);
}

// A worker's description of its tensor for the others, before a gather or broadcast: `first`, then
// its dtype, rank and extents.
std::vector<int64_t> HeaderOf(int64_t first, const Tensor& tensor) {
  std::vector<int64_t> header = {first, static_cast<int64_t>(tensor.dtype()), tensor.rank()};
  header.insert(header.end(), tensor.shape().begin(), tensor.shape().end());
  return header;
}

// Shapes of all workers' tensors, from the concatenated headers, which begin with the axis. Same
// verdict on every worker. kInvalidArgument: the axes differ, or the tensors cannot be concatenated
// along theirs.
absl::StatusOr<std::vector<Shape>> ShapesOf(absl::Span<const int64_t> headers) {
  std::vector<Shape> shapes;
  const int64_t axis = headers[0];
  int64_t dtype = 0;
  while (!headers.empty()) {
    if (headers[0] != axis) {
      return InvalidArgument("worker 0 gathers along axis ", axis, ", worker ", shapes.size(),
                             " along axis ", headers[0], "; give one axis on every worker");
    }
    const auto rank = static_cast<size_t>(headers[2]);
    shapes.emplace_back(headers.begin() + 3, headers.begin() + 3 + static_cast<ptrdiff_t>(rank));
    if (shapes.size() == 1) dtype = headers[1];
    Shape first = shapes[0];
    Shape other = shapes.back();
    const auto at =
        static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(first.size()) : axis);
    const bool same_rank = first.size() == other.size() && at < first.size();
    if (same_rank) first[at] = other[at] = 0;
    if (!same_rank || first != other || headers[1] != dtype) {
      return InvalidArgument("Shape mismatch: worker 0 gathers ", ShapeText(shapes[0]), ", worker ",
                             shapes.size() - 1, " ", ShapeText(shapes.back()), " along axis ", axis,
                             "; ranks, dtypes and the other extents must be equal");
    }
    headers.remove_prefix(3 + rank);
  }
  return shapes;
}

// Joins all workers' tensors of `shapes`, given their concatenated elements.
absl::StatusOr<Tensor> Joined(DType dtype, const std::vector<Shape>& shapes,
                              const std::shared_ptr<std::vector<char>>& elements, int64_t axis) {
  std::vector<Tensor> parts;
  char* at = elements->data();
  for (const Shape& shape : shapes) {
    parts.push_back(Tensor::Wrap(dtype, shape, Cpu(0), elements, at));
    at += parts.back().bytes();
  }
  return ConcatTensors(parts, axis);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(std::vector<Device> devices,
                                                         CommunicationOptions communication,
                                                         std::unique_ptr<CollectiveGroup> group)
    : MirroredStrategy(std::move(devices)),
      communication_(communication),
      group_(std::move(group)) {}

absl::StatusOr<std::unique_ptr<MultiWorkerMirroredStrategy>> MultiWorkerMirroredStrategy::Create(
    const MultiWorkerMirroredOptions& options) {
  RETURN_IF_ERROR(options.communication.Validate());
  RETURN_IF_ERROR(CheckDevices("MultiWorkerMirroredStrategy", options.devices));
  const GlooOptions gloo = {.rank = options.worker_index,
                            .addresses = options.workers,
                            .rendezvous_address = options.rendezvous_address};
  ASSIGN_OR_RETURN(std::unique_ptr<CollectiveGroup> group,
                   ConnectGloo(gloo, Deadline::In(options.connect_timeout)));
  std::unique_ptr<MultiWorkerMirroredStrategy> strategy(
      new MultiWorkerMirroredStrategy(options.devices, options.communication, std::move(group)));
  RETURN_IF_ERROR(strategy->CheckDeviceCounts());
  if (strategy->workers() == 1 && options.communication.implementation != Implementation::kNccl) {
    return strategy;
  }
  absl::MutexLock lock(&strategy->mutex_);
  absl::StatusOr<std::unique_ptr<GpuRanks>> gpus =
      JoinWorkers({.devices = options.devices,
                   .implementation = options.communication.implementation,
                   .peers = {.workers = strategy->group_.get(),
                             .connect_timeout = options.connect_timeout,
                             .timeout = options.communication.timeout.value_or(kCallTimeout)},
                   .join = options.join});
  if (!gpus.ok()) return Annotate(gpus.status(), "MultiWorkerMirroredStrategy");
  if (*gpus != nullptr) {
    strategy->gpus_ = std::make_unique<GpuAllReduce>(
        options.devices, options.communication.bytes_per_pack, *std::move(gpus));
  }
  return strategy;
}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() {
  absl::MutexLock lock(&mutex_);
  const absl::Status refused = group_->open_refusal();
  if (failure_.ok() && refused.ok()) {
    group_->Barrier(Deadline::In(kLeaveTimeout)).IgnoreError();
  } else if (workers() > 1) {
    group_->Abort(Annotate(failure_.ok() ? refused : failure_,
                           absl::StrCat("worker ", worker_index(), " leaves, for its last ",
                                        failure_.ok() ? "call was refused" : "Run failed")));
  }
}

void MultiWorkerMirroredStrategy::RunEnded(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  failure_ = status;
}

Deadline MultiWorkerMirroredStrategy::CallDeadline(const CommunicationOptions& options) const {
  return Deadline::In(communication_.Merge(options).timeout.value_or(kCallTimeout));
}

absl::Status MultiWorkerMirroredStrategy::CheckDeviceCounts() {
  std::vector<int64_t> counts(static_cast<size_t>(workers()));
  const int64_t own = local_replicas();
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(group_->AllGather({DType::kInt64, &own, 1},
                                      {DType::kInt64, counts.data(), workers()}, CallDeadline({})));
  }
  if (std::ranges::count(counts, own) == workers()) return absl::OkStatus();
  return InvalidArgument("MultiWorkerMirroredStrategy: the workers have ",
                         absl::StrJoin(counts, ", "), " devices; every worker must have as many");
}

absl::Status MultiWorkerMirroredStrategy::CheckCall(const CommunicationOptions& options) const {
  RETURN_IF_ERROR(options.Validate());
  if (options.implementation != Implementation::kNccl || gpus_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "MultiWorkerMirroredStrategy: a call asks for implementation NCCL, and the strategy's sums "
      "go "
      "between CPUs: use AUTO or RING");
}

absl::StatusOr<Value> MultiWorkerMirroredStrategy::SumSlices(const IndexedSlices& slices,
                                                             const CallPurpose& purpose,
                                                             Deadline deadline) {
  const int64_t width = RowWidth(slices.values.shape());
  ASSIGN_OR_RETURN(GatheredSlices gathered,
                   GatherSlices(*group_, ReduceOp::kSum, BufferOf(slices.indices),
                                BufferOf(slices.values), width, deadline, purpose));
  Shape shape = slices.values.shape();
  shape[0] = static_cast<int64_t>(gathered.ids.size());
  Tensor values = Tensor::Uninitialized(slices.values.dtype(), std::move(shape));
  std::copy(gathered.rows.begin(), gathered.rows.end(), static_cast<char*>(values.mutable_data()));
  return Value(IndexedSlices{Tensor::Vector<int64_t>(gathered.ids), std::move(values)});
}

absl::StatusOr<std::vector<Value>> MultiWorkerMirroredStrategy::SumOverWorkers(
    ReduceOp op, absl::StatusOr<std::vector<Value>> locals, const CommunicationOptions& options) {
  const CommunicationOptions merged = communication_.Merge(options);
  if (locals.ok()) locals = HostCopies(*locals);
  absl::MutexLock lock(&mutex_);
  if (!locals.ok()) {
    // No worker must wait for one that cannot take part.
    group_->Refuse(locals.status(), CallDeadline(options));
    return locals.status();
  }
  const CallPurpose purpose = {.reduction = op, .shapes = ShapesDigest(*locals)};
  std::vector<Tensor> sums;
  std::vector<MutableBuffer> buffers;
  for (const Value& local : *locals) {
    if (local.kind() != Value::Kind::kSlices) sums.push_back(local.tensor());
  }
  for (Tensor& sum : sums) buffers.push_back(BufferOf(sum));
  const absl::Duration each = merged.timeout.value_or(kCallTimeout);
  RETURN_IF_ERROR(BatchAllReduce(*group_, ReduceOp::kSum, buffers, merged,
                                 Deadline::In(each * static_cast<int64_t>(buffers.size())),
                                 purpose));
  std::vector<Value> results;
  auto sum = sums.begin();
  for (const Value& local : *locals) {
    if (local.kind() != Value::Kind::kSlices) {
      results.emplace_back(std::move(*sum++));
      continue;
    }
    ASSIGN_OR_RETURN(results.emplace_back(),
                     SumSlices(local.slices(), purpose, CallDeadline(options)));
  }
  failure_ = absl::OkStatus();
  return results;
}

// Exchanges the number of values and a digest of the shape of each, or -1 for a value that is not
// on this worker's GPUs.
absl::StatusOr<std::vector<bool>> MultiWorkerMirroredStrategy::OnGpus(
    ReduceOp op, absl::Span<const Value::Sequence> locals, const CommunicationOptions& options) {
  std::vector<bool> on_gpus(locals.size());
  if (gpus_ == nullptr || communication_.Merge(options).implementation == Implementation::kRing) {
    return on_gpus;
  }
  std::vector<int64_t> own = {static_cast<int64_t>(locals.size())}, all;
  for (const Value::Sequence& values : locals) {
    own.push_back(gpus_->CanReduce(values) ? int64_t{ShapesDigest({values[0]})} : -1);
  }
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(GatherValues(*group_, own, &all, CallDeadline(options), {.reduction = op}));
  on_gpus.assign(locals.size(), true);
  size_t at = 0;
  for (int worker = 0; worker < workers(); ++worker) {
    bool same = all[at] == all[0];
    for (size_t v = 0; same && v < locals.size(); ++v) {
      const int64_t first = all[v + 1], other = all[at + v + 1];
      on_gpus[v] = on_gpus[v] && other >= 0;
      same = first < 0 || other < 0 || first == other;
    }
    if (!same) {
      return InvalidArgument("MultiWorkerMirroredStrategy: worker 0 (", group_->peer(0),
                             ") and worker ", worker, " (", group_->peer(worker),
                             ") reduce different numbers or shapes of values in one call");
    }
    at += static_cast<size_t>(all[at]) + 1;
  }
  return on_gpus;
}

absl::StatusOr<std::vector<Value>> MultiWorkerMirroredStrategy::ReduceAll(
    ReduceOp op, absl::Span<const Value::Sequence> locals, const CommunicationOptions& options) {
  if (const absl::Status allowed = CheckCall(options); !allowed.ok()) {
    RefuseCollective(allowed);
    return allowed;
  }
  ASSIGN_OR_RETURN(const std::vector<bool> on_gpus, OnGpus(op, locals, options));
  const auto by_nccl = [&](ReplicaValues values) {
    absl::MutexLock lock(&mutex_);
    return gpus_->Reduce(op, values);
  };
  const auto by_gloo = [&](ReplicaValues others) -> absl::StatusOr<std::vector<Value>> {
    ASSIGN_OR_RETURN(
        std::vector<Value> sums,
        SumOverWorkers(op, Strategy::ReduceAll(ReduceOp::kSum, others, options), options));
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t count = static_cast<int64_t>(others[i].size()) * workers();
      ASSIGN_OR_RETURN(sums[i], OfReplicas(op, std::move(sums[i]), count));
    }
    return sums;
  };
  return ReduceApart(locals, on_gpus, by_nccl, by_gloo);
}

absl::StatusOr<Value> MultiWorkerMirroredStrategy::ReducePlain(ReduceOp op, const Value& value) {
  if (value.kind() == Value::Kind::kMirrored || workers() == 1) {
    absl::StatusOr<Value> reduced = MirroredStrategy::ReducePlain(op, value);
    if (!reduced.ok()) RefuseCollective(reduced.status());
    return reduced;
  }
  absl::StatusOr<std::vector<Value>> local = std::vector<Value>();
  if (value.kind() == Value::Kind::kSlices) {
    local->push_back(value);
  } else if (absl::StatusOr<Tensor> tensor = value.ToTensor(); tensor.ok() && tensor->is_text()) {
    local = InvalidArgument("found ", tensor->TypeText(), ", and texts have no sum");
  } else if (tensor.ok()) {
    local->emplace_back(*std::move(tensor));
  } else {
    local = tensor.status();
  }
  ASSIGN_OR_RETURN(std::vector<Value> sums, SumOverWorkers(op, std::move(local), {}));
  return OfReplicas(op, std::move(sums[0]), workers());
}

absl::StatusOr<Tensor> MultiWorkerMirroredStrategy::FirstValue(const Tensor& initial) {
  absl::StatusOr<Tensor> first = CopyTensor(initial, Cpu(0));
  if (!first.ok()) {
    RefuseCollective(first.status());
    return first;
  }
  absl::MutexLock lock(&mutex_);
  const CallPurpose purpose = {.shapes = ShapesDigest({*first})};
  RETURN_IF_ERROR(Annotate(group_->Broadcast(0, BufferOf(*first), CallDeadline({}), purpose),
                           "initial value of a variable"));
  return first;
}

void MultiWorkerMirroredStrategy::RefuseCollective(const absl::Status& why) {
  if (workers() == 1) return;
  absl::MutexLock lock(&mutex_);
  group_->Refuse(why, CallDeadline({}));
}

// The first worker sends a header, by which the others know what follows.
absl::StatusOr<Value> MultiWorkerMirroredStrategy::BroadcastFirst(const Value& value) {
  if (workers() == 1) return SelectReplica(value, 0);
  absl::StatusOr<IndexedSlices> first = IndexedSlices();
  std::vector<int64_t> header, sent;
  if (worker_index() == 0) {
    const absl::StatusOr<Value> own = SelectReplica(value, 0);
    const bool of_rows = own.ok() && own->kind() == Value::Kind::kSlices;
    first = own.ok() ? Sendable(*own) : absl::StatusOr<IndexedSlices>(own.status());
    if (!first.ok()) {
      RefuseCollective(first.status());
      return first.status();
    }
    header = HeaderOf(of_rows ? 1 : 0, first->values);
  }
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Annotate(GatherValues(*group_, header, &sent, CallDeadline({})),
                           "value of the first replica"));
  const bool of_rows = sent[0] != 0;
  if (worker_index() != 0) {
    const Shape shape(sent.begin() + 3, sent.end());
    if (of_rows) first->indices = Tensor::Uninitialized(DType::kInt64, {shape[0]});
    first->values = Tensor::Uninitialized(static_cast<DType>(sent[1]), shape);
  }
  const auto broadcast = [this](Tensor& part) {
    return Annotate(group_->Broadcast(0, BufferOf(part), CallDeadline({})),
                    "value of the first replica");
  };
  if (of_rows) RETURN_IF_ERROR(broadcast(first->indices));
  RETURN_IF_ERROR(broadcast(first->values));
  if (of_rows) return Value(*std::move(first));
  return Value(std::move(first->values));
}

absl::StatusOr<Tensor> MultiWorkerMirroredStrategy::GatherAll(absl::Span<const Value> locals,
                                                              int64_t axis,
                                                              const CommunicationOptions& options) {
  const absl::Status allowed = CheckCall(options);
  absl::StatusOr<Tensor> own = allowed.ok() ? MirroredStrategy::GatherAll(locals, axis, options)
                                            : absl::StatusOr<Tensor>(allowed);
  if (own.ok()) own = HostTensor(*own);
  if (!own.ok()) {
    RefuseCollective(own.status());
    return own.status();
  }
  const Deadline deadline = CallDeadline(options);
  absl::MutexLock lock(&mutex_);
  std::vector<int64_t> headers;
  RETURN_IF_ERROR(GatherValues(*group_, HeaderOf(axis, *own), &headers, deadline));
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ShapesOf(headers));
  const auto elements = std::make_shared<std::vector<char>>();
  const DType dtype = own->dtype();
  const auto place = [&elements,
                      dtype](absl::Span<const int64_t> counts) -> absl::StatusOr<MutableBuffer> {
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    elements->resize(static_cast<size_t>(total) * DTypeBytes(dtype));
    return MutableBuffer{dtype, elements->data(), total};
  };
  RETURN_IF_ERROR(group_->AllGatherV(BufferOf(*own), place, deadline));
  return Joined(dtype, shapes, elements, axis);
}

absl::StatusOr<bool> MultiWorkerMirroredStrategy::AnyHasData(bool local) {
  int64_t count = local ? 1 : 0;
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Annotate(
      group_->AllReduce(ReduceOp::kSum, MutableBuffer{DType::kInt64, &count, 1}, CallDeadline({})),
      "agreement on the end of the data"));
  return count > 0;
}

InputStrategy MultiWorkerMirroredStrategy::input_strategy() {
  InputStrategy input = MirroredStrategy::input_strategy();
  input.per_replica = InputStrategy::PerReplica::kRefused;
  input.agree = [handle = handle()](bool local) -> absl::StatusOr<bool> {
    if (auto* const own = static_cast<MultiWorkerMirroredStrategy*>(handle.get())) {
      return own->AnyHasData(local);
    }
    return absl::FailedPreconditionError(
        "a distributed dataset is read after its strategy was destroyed; keep the strategy longer");
  };
  return input;
}

absl::Status MultiWorkerMirroredStrategy::Barrier() {
  absl::MutexLock lock(&mutex_);
  return group_->Barrier(CallDeadline({}));
}

}  // namespace cairn
