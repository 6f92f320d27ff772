#include "worker/strategy/distributed_variable.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/reduce_values.h"

namespace cairn {
namespace {

// Whether this thread is in UpdateTogether.
thread_local bool updates_together = false;

std::string Called(absl::string_view method, absl::string_view variable) {
  return absl::StrCat(method, " of variable \"", variable, "\"");
}

CallName NameOf(absl::string_view method, const Variable& variable) {
  return {
      .what = Called(method, variable.name()), .subject = &variable, .with_other_workers = true};
}

// Turns the replicas' values in `value` into one value.
absl::StatusOr<Value> Aggregate(Strategy& strategy, VariableAggregation aggregation,
                                const Value& value, absl::Span<const Device> devices) {
  if (aggregation == VariableAggregation::kOnlyFirstReplica) return strategy.BroadcastFirst(value);
  const ReduceOp op = aggregation == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean;
  ASSIGN_OR_RETURN(std::vector<Value> copies, strategy.ReduceOnto(op, value.items(), devices));
  if (copies.size() == 1) return std::move(copies[0]);
  return Value::Mirrored(std::move(copies));
}

// What this worker's replicas write: PerReplica of tensors of the variable's dtype, which are to be
// aggregated, or one value that all replicas of all workers share.
absl::StatusOr<Value> PartOfWorker(Strategy& strategy, const Variable& variable,
                                   const Value& value) {
  const std::string method = Called("write", variable.name());
  ASSIGN_OR_RETURN(Value written, strategy.Components(method, value));
  const bool mirrored = written.kind() == Value::Kind::kMirrored;
  const int32_t replicas = strategy.local_replicas();
  if (written.kind() != Value::Kind::kPerReplica) {
    // One replica in all: its value is the sum.
    if (strategy.num_replicas_in_sync() == 1) return written;
    if (variable.aggregation() == VariableAggregation::kSum && (replicas > 1 || mirrored)) {
      return InvalidArgument("a write to variable \"", variable.name(),
                             "\" (aggregation SUM) in a replica function: ", value.TypeText(),
                             " is the same value on every replica, so no replica owns it and it "
                             "cannot be reduced with SUM; make a tensor in each replica");
    }
    if (strategy.workers() == 1 || mirrored) return written;
    // The replicas of other workers may have other values: this one counts for each local replica.
    written = Value::PerReplica(Value::Sequence(static_cast<size_t>(replicas), written));
  }
  // Host numbers that differ between replicas are first converted to the variable's dtype.
  ASSIGN_OR_RETURN(const Value::Sequence each, strategy.OwnComponents(method, written.items()));
  Value::Sequence typed;
  for (const Value& item : each) {
    ASSIGN_OR_RETURN(typed.emplace_back(), TensorFor(variable, item));
  }
  return Value::PerReplica(std::move(typed));
}

bool OnlyLastWins(ScatterOp op) {
  return op == ScatterOp::kMin || op == ScatterOp::kMax || op == ScatterOp::kUpdate;
}

}  // namespace

absl::StatusOr<Place> PlaceOf(Variable& variable, absl::string_view method) {
  RETURN_IF_ERROR(Annotate(variable.CheckUsable(), method));
  const Strategy* const strategy = variable.strategy();
  const ContextMode* mode = ContextStack::OfThisThread().top();
  if (mode != nullptr && mode->strategy != strategy) {
    return FailedPrecondition(Called(method, variable.name()), ", a variable of ", strategy->name(),
                              ", where another strategy, ", mode->strategy->name(),
                              ", is current: different strategies cannot be mixed");
  }
  if (const std::optional<int32_t> id = UpdateReplicaId()) {
    const size_t copies = variable.components().size();
    if (copies == 1) return Place{.kind = Place::Kind::kUpdate};
    if (static_cast<size_t>(*id) < copies) {
      return Place{.kind = Place::Kind::kUpdate, .copy = *id};
    }
    return FailedPrecondition(Called(method, variable.name()), ", which has ", copies,
                              " copies, in update ", *id,
                              " (they count from 0): update devices or variables with as many "
                              "copies as it has, or use the variable outside the update");
  }
  if (mode == nullptr || mode->replica == nullptr) return Place{};
  return Place{.kind = Place::Kind::kReplica,
               .copy = mode->replica->local_replica(),
               .context = mode->replica};
}

absl::StatusOr<Value> AggregateWrite(Strategy& strategy, const Variable& variable,
                                     const Value& value, absl::Span<const Device> devices) {
  const absl::StatusOr<Value> part = PartOfWorker(strategy, variable, value);
  if (!part.ok()) {
    strategy.RefuseCollective(part.status());
    return part.status();
  }
  if (part->kind() != Value::Kind::kPerReplica) return part;
  if (variable.aggregation() == VariableAggregation::kMean && !IsFloating(variable.dtype())) {
    return InvalidArgument("variable \"", variable.name(), "\" is ", DTypeName(variable.dtype()),
                           "; integers have no integer mean; use aggregation SUM");
  }
  return Aggregate(strategy, variable.aggregation(), *part, devices);
}

MirroredVariable::MirroredVariable(VariableTraits traits, std::vector<VariablePtr> copies)
    : VariableBase(std::move(traits)), copies_(std::move(copies)) {}

absl::StatusOr<Tensor> MirroredVariable::Read() {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, "read"));
  return copies_[static_cast<size_t>(place.copy)]->Read();
}

absl::Status MirroredVariable::WriteAll(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Value given,
                   strategy()->Components(Called(AssignOpName(op), name()), value));
  ASSIGN_OR_RETURN(const Value::Sequence parts,
                   EachReplica(given, static_cast<int32_t>(copies_.size())));
  std::vector<Tensor> own;
  for (const Value& part : parts) {
    ASSIGN_OR_RETURN(own.emplace_back(), TensorFor(*this, part));
  }
  return WriteTogether([&]() -> absl::Status {
    for (size_t i = 0; i < copies_.size(); ++i) RETURN_IF_ERROR(copies_[i]->Write(op, own[i]));
    return absl::OkStatus();
  });
}

absl::Status MirroredVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, AssignOpName(op)));
  const bool own_copy = aggregation() == VariableAggregation::kNone;
  if (place.kind == Place::Kind::kCross) return WriteAll(op, value);
  if (place.kind == Place::Kind::kUpdate || own_copy) {
    RETURN_IF_ERROR(strategy()->Components(Called(AssignOpName(op), name()), value).status());
    ASSIGN_OR_RETURN(const Value own, SelectReplica(value, place.copy));
    return copies_[static_cast<size_t>(place.copy)]->Write(op, own);
  }
  std::vector<Device> devices;
  for (const VariablePtr& copy : copies_) devices.push_back(copy->device());
  const auto write = [this, op, &devices](Strategy& strategy,
                                          absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    ASSIGN_OR_RETURN(const Value aggregated, AggregateWrite(strategy, *this, merged[0], devices));
    RETURN_IF_ERROR(WriteAll(op, aggregated));
    return Value();
  };
  return MergeCallFor(*place.context, NameOf(AssignOpName(op), *this), write, {value}).status();
}

absl::Status MirroredVariable::WriteTogether(absl::FunctionRef<absl::Status()> fn) {
  if (updates_together) return fn();
  absl::MutexLock lock(&writes_);
  return fn();
}

absl::Status MirroredVariable::UpdateTogether(absl::FunctionRef<absl::Status()> fn) {
  if (updates_together) return fn();
  absl::MutexLock lock(&writes_);
  updates_together = true;
  const absl::Cleanup ended = [] { updates_together = false; };
  return fn();
}

absl::Status MirroredVariable::ScatterAll(ScatterOp op, const IndexedSlices& slices) {
  return WriteTogether([&]() -> absl::Status {
    for (const VariablePtr& copy : copies_) RETURN_IF_ERROR(copy->Scatter(op, slices));
    return absl::OkStatus();
  });
}

absl::Status MirroredVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, ScatterOpName(op)));
  const bool reduces =
      aggregation() == VariableAggregation::kSum || aggregation() == VariableAggregation::kMean;
  if (place.kind == Place::Kind::kUpdate) {
    return copies_[static_cast<size_t>(place.copy)]->Scatter(op, slices);
  }
  if (OnlyLastWins(op) && reduces) {
    return Unimplemented(Called(ScatterOpName(op), name()), " is not supported with aggregation ",
                         AggregationName(aggregation()),
                         "; it is with NONE and ONLY_FIRST_REPLICA");
  }
  if (place.kind == Place::Kind::kCross) return ScatterAll(op, slices);
  if (aggregation() == VariableAggregation::kNone) {
    return copies_[static_cast<size_t>(place.copy)]->Scatter(op, slices);
  }
  return ScatterInReplica(place, op, slices);
}

absl::Status MirroredVariable::ScatterInReplica(const Place& place, ScatterOp op,
                                                const IndexedSlices& slices) {
  const auto scatter = [this, op](Strategy& strategy,
                                  absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    ASSIGN_OR_RETURN(Value::Sequence locals, EachReplica(merged[0], strategy.local_replicas()));
    ASSIGN_OR_RETURN(const Value all,
                     Aggregate(strategy, aggregation(), Value::PerReplica(std::move(locals)),
                               {copies_[0]->device()}));
    RETURN_IF_ERROR(ScatterAll(op, all.slices()));
    return Value();
  };
  return MergeCallFor(*place.context, NameOf(ScatterOpName(op), *this), scatter, {slices}).status();
}

SyncOnReadVariable::SyncOnReadVariable(VariableTraits traits, std::vector<VariablePtr> copies)
    : VariableBase(std::move(traits)), copies_(std::move(copies)) {}

absl::StatusOr<Tensor> SyncOnReadVariable::Read() {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, "read"));
  if (place.kind != Place::Kind::kCross) return copies_[static_cast<size_t>(place.copy)]->Read();
  if (aggregation() == VariableAggregation::kNone) {
    return InvalidArgument(Called("read", name()),
                           " in cross-replica context: synchronization ON_READ "
                           "with aggregation NONE has a value on each replica "
                           "but no common value; read it in a replica function");
  }
  // As in TensorFlow, the worker's own first copy: no other worker need read.
  if (aggregation() == VariableAggregation::kOnlyFirstReplica) return copies_[0]->Read();
  Value::Sequence values;
  {
    absl::MutexLock lock(&writes_);
    for (const VariablePtr& copy : copies_) {
      ASSIGN_OR_RETURN(values.emplace_back(), copy->Read());
    }
  }
  ASSIGN_OR_RETURN(const Value one,
                   Aggregate(*strategy(), aggregation(), Value::PerReplica(std::move(values)),
                             {copies_[0]->device()}));
  return one.ToTensor();
}

absl::Status SyncOnReadVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, AssignOpName(op)));
  if (place.kind != Place::Kind::kCross) {
    RETURN_IF_ERROR(strategy()->Components(Called(AssignOpName(op), name()), value).status());
    ASSIGN_OR_RETURN(const Value own, SelectReplica(value, place.copy));
    return copies_[static_cast<size_t>(place.copy)]->Write(op, own);
  }
  if (value.kind() == Value::Kind::kPerReplica) {
    return InvalidArgument(Called(AssignOpName(op), name()),
                           " (ON_READ) in cross-replica context takes "
                           "one value for all replicas, found ",
                           value.TypeText(), "; write it in a replica function");
  }
  const bool sums = aggregation() == VariableAggregation::kSum;
  if (sums && op != AssignOp::kAssign) {
    return InvalidArgument(Called(AssignOpName(op), name()),
                           " is not supported in cross-replica context with "
                           "synchronization ON_READ and aggregation SUM; assign the "
                           "sum, or write in a replica function");
  }
  ASSIGN_OR_RETURN(Tensor tensor, TensorFor(*this, value));
  // Divided so that the sum over all replicas equals the written value.
  if (sums) {
    ASSIGN_OR_RETURN(tensor, DivideTensor(tensor, strategy()->num_replicas_in_sync()));
  }
  absl::MutexLock lock(&writes_);
  for (const VariablePtr& copy : copies_) RETURN_IF_ERROR(copy->Write(op, tensor));
  return absl::OkStatus();
}

absl::Status SyncOnReadVariable::Scatter(ScatterOp op, const IndexedSlices& /*slices*/) {
  return Unimplemented(Called(ScatterOpName(op), name()),
                       " is not supported with synchronization ON_READ; use ON_WRITE");
}

AggregatingVariable::AggregatingVariable(VariableTraits traits, VariablePtr copy)
    : VariableBase(std::move(traits)), copy_(std::move(copy)) {}

absl::StatusOr<Tensor> AggregatingVariable::Read() {
  RETURN_IF_ERROR(PlaceOf(*this, "read").status());
  return copy_->Read();
}

absl::StatusOr<Tensor> AggregatingVariable::ReadRows(absl::Span<const int64_t> rows) {
  RETURN_IF_ERROR(PlaceOf(*this, "read").status());
  return copy_->ReadRows(rows);
}

absl::Status AggregatingVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, AssignOpName(op)));
  if (place.kind != Place::Kind::kReplica) {
    RETURN_IF_ERROR(strategy()->Components(Called(AssignOpName(op), name()), value).status());
    ASSIGN_OR_RETURN(const Value one, SelectReplica(value, 0));
    return copy_->Write(op, one);
  }
  if (aggregation() == VariableAggregation::kNone) {
    return InvalidArgument(
        Called(AssignOpName(op), name()),
        " in a replica function: every replica writes the one copy, so it must be created with an "
        "aggregation (SUM, MEAN or ONLY_FIRST_REPLICA)");
  }
  const auto write = [this, op](Strategy& strategy,
                                absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    ASSIGN_OR_RETURN(const Value aggregated,
                     AggregateWrite(strategy, *this, merged[0], {copy_->device()}));
    ASSIGN_OR_RETURN(const Value one, SelectReplica(aggregated, 0));
    RETURN_IF_ERROR(copy_->Write(op, one));
    return Value();
  };
  return MergeCallFor(*place.context, NameOf(AssignOpName(op), *this), write, {value}).status();
}

absl::Status AggregatingVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(*this, ScatterOpName(op)));
  if (place.kind != Place::Kind::kReplica) return copy_->Scatter(op, slices);
  // The copy gets every replica's slices, one after the other, with any aggregation: in one call,
  // which writes all of them or none.
  const auto scatter = [this, op](Strategy& strategy,
                                  absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    ASSIGN_OR_RETURN(const Value::Sequence each, EachReplica(merged[0], strategy.local_replicas()));
    const absl::StatusOr<Value> all = SumValues(each);
    RETURN_IF_ERROR(Annotate(all.status(), Called(ScatterOpName(op), name())));
    RETURN_IF_ERROR(copy_->Scatter(op, all->slices()));
    return Value();
  };
  return MergeCallFor(*place.context, NameOf(ScatterOpName(op), *this), scatter, {slices}).status();
}

}  // namespace cairn
