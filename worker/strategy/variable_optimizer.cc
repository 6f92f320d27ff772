#include "worker/strategy/variable_optimizer.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/distributed_variable.h"
#include "worker/strategy/plain_variable.h"

namespace cairn {
namespace {

absl::Status Wrong(const Variable& variable, absl::string_view what) {
  return InvalidArgument("optimizer of variable \"", variable.name(), "\": ", what);
}

// The strategy of all `variables`; the default strategy for variables without one.
// kInvalidArgument: a variable is null, or they belong to several strategies.
absl::StatusOr<Strategy*> StrategyOf(absl::Span<const VariablePtr> variables) {
  Strategy* found = nullptr;
  for (const VariablePtr& variable : variables) {
    RETURN_IF_ERROR(CheckVariable("optimizer", variable));
    Strategy* const own =
        variable->strategy() != nullptr ? variable->strategy() : &DefaultStrategy();
    if (found != nullptr && found != own) {
      return Wrong(*variable,
                   absl::StrCat("it is of ", own->name(), ", others are of ", found->name(),
                                found->name() == own->name() ? " (another object)" : "",
                                "; give an optimizer the variables of one strategy"));
    }
    found = own;
  }
  if (found != nullptr) return found;
  return absl::InvalidArgumentError("optimizer: found no variable, and so no gradient");
}

using MergedFn = absl::FunctionRef<absl::Status(bool in_replicas, absl::Span<const Value> merged)>;

// Calls `fn` once for all replicas, in cross-replica context of `strategy`: with the replicas'
// arguments regrouped, or, outside replica functions, with `args` unchanged.
absl::Status CallMerged(Strategy& strategy, const CallName& call, absl::Span<const Value> args,
                        MergedFn fn) {
  if (strategy.is_default()) {
    if (!HasStrategy()) return fn(/*in_replicas=*/false, args);
    return FailedPrecondition(call.what, " to variables of no strategy where ",
                              GetStrategy().name(),
                              " is current; create them in its scope, or leave it");
  }
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  if (replica == nullptr || replica->strategy() != &strategy) {
    RETURN_IF_ERROR(strategy.CheckCrossReplica(call.what));
    const PushedMode cross(&strategy, nullptr);
    return fn(/*in_replicas=*/false, args);
  }
  const auto merge = [&fn](Strategy& /*strategy*/,
                           absl::Span<const Value> merged) -> absl::StatusOr<Value> {
    RETURN_IF_ERROR(fn(/*in_replicas=*/true, merged));
    return Value();
  };
  return MergeCallFor(*replica, call, merge, args).status();
}

Value ListOf(absl::Span<const VariablePtr> variables) {
  return Value::List({variables.begin(), variables.end()});
}

// The tensors of a variable. kInvalidArgument: a kind of variable that optimizers do not update.
absl::StatusOr<std::vector<PlainVariable*>> CopiesOf(Variable& variable) {
  if (variable.strategy() != nullptr && variable.strategy()->name() == "ParameterServerStrategy") {
    return Wrong(variable,
                 "it is on parameter servers, which run its optimizer; use "
                 "ParameterServerStrategy::ApplyGradients");
  }
  if (variable.synchronization() == VariableSynchronization::kOnRead) {
    return Wrong(variable,
                 "it is ON_READ: each replica writes its own copy, and no gradient applies to "
                 "all; make it ON_WRITE, the default");
  }
  if (variable.dtype() != DType::kFloat32 && variable.dtype() != DType::kFloat64) {
    return Wrong(variable, absl::StrCat("it is ", DTypeName(variable.dtype()),
                                        "; optimizers move float32 and float64"));
  }
  std::vector<PlainVariable*> copies;
  for (const VariablePtr& component : variable.components()) {
    auto* const copy = dynamic_cast<PlainVariable*>(component.get());
    if (copy == nullptr) {
      return Wrong(variable, "it is not one tensor, or one on each device; give its parts");
    }
    copies.push_back(copy);
  }
  return copies;
}

absl::Status CheckVariables(absl::Span<const VariablePtr> variables) {
  std::set<const Variable*> seen;
  for (const VariablePtr& variable : variables) {
    RETURN_IF_ERROR(CopiesOf(*variable).status());
    if (!seen.insert(variable.get()).second) {
      return Wrong(*variable, "it is given twice; add its gradients up");
    }
  }
  return absl::OkStatus();
}

absl::Status WrongGradient(const Variable& variable, const Value& found, const Shape& expected) {
  return InvalidArgument("gradient of variable \"", variable.name(), "\": found ", found.TypeText(),
                         ", expected ", DTypeName(variable.dtype()), " ", ShapeText(expected));
}

// Returns a gradient as a tensor or as slices with int64 indices, of the variable's dtype.
absl::StatusOr<Value> CheckedGradient(const Variable& variable, const Value& value) {
  if (value.kind() != Value::Kind::kSlices) {
    ASSIGN_OR_RETURN(Tensor tensor, TensorFor(variable, value, "gradient of"));
    return Value(std::move(tensor));
  }
  const IndexedSlices& slices = value.slices();
  IndexedSlices checked{.indices = {}, .values = slices.values};
  ASSIGN_OR_RETURN(
      checked.indices,
      RowNumbers(absl::StrCat("gradient of variable \"", variable.name(), "\""), slices.indices));
  RETURN_IF_ERROR(CheckRows(variable, checked.indices.values<int64_t>()));
  Shape shape = variable.shape();
  shape[0] = checked.indices.elements();
  if (slices.values.is_text() || slices.values.dtype() != variable.dtype() ||
      slices.values.shape() != shape) {
    return WrongGradient(variable, slices.values, shape);
  }
  return Value(std::move(checked));
}

TensorGradient TensorGradientOf(const Value& value) {
  if (value.kind() == Value::Kind::kSlices) {
    return {.rows = value.slices().indices, .values = value.slices().values};
  }
  return {.rows = std::nullopt, .values = value.tensor()};
}

// The replicas' gradients of one variable, all of one kind. Empty: no replica has a gradient.
absl::StatusOr<Value::Sequence> CheckedGradients(const Variable& variable,
                                                 absl::Span<const Value> of_replicas) {
  Value::Sequence checked;
  for (const Value& value : of_replicas) {
    if (value.is_none()) continue;
    ASSIGN_OR_RETURN(Value own, CheckedGradient(variable, value));
    if (!checked.empty() && checked[0].kind() != own.kind()) {
      return Wrong(variable,
                   "some replicas gave a tensor and some IndexedSlices as its gradient; all must "
                   "give one kind");
    }
    checked.push_back(std::move(own));
  }
  if (checked.empty() || checked.size() == of_replicas.size()) return checked;
  return Wrong(variable, "some replicas gave a gradient and some none; all must give one");
}

// Whether a call with these arguments sums gradients of all workers. Decided before the arguments
// are checked, so that other workers, which may have passed the check, decide the same.
bool SumsOverWorkers(const Strategy& strategy, bool in_replicas, absl::Span<const Value> merged) {
  const Value& skip = merged[2];
  if (!skip.is_distributed() && skip.integer() != 0) return false;
  if (in_replicas) return true;
  const absl::Span<const Value> gradients = merged[1].items();
  return std::ranges::any_of(gradients, [&strategy](const Value& gradient) {
    const absl::StatusOr<Value> components = strategy.Components("ApplyGradients", gradient);
    return (components.ok() ? *components : gradient).kind() == Value::Kind::kPerReplica;
  });
}

// Makes a variable beside `variable`, on its devices.
absl::StatusOr<VariablePtr> MakeBeside(Strategy& strategy, const VariablePtr& variable,
                                       const VariableOptions& options) {
  if (!strategy.is_default()) return strategy.CreateVariableBeside(variable, options);
  const DeviceScope device(variable->device());
  return CreateVariable(options);
}

// Locks all `variables` in order and calls `fn` with their tensors.
absl::Status ChangeAll(absl::Span<PlainVariable* const> variables, std::vector<Tensor*>* tensors,
                       absl::FunctionRef<absl::Status()> fn) {
  if (tensors->size() == variables.size()) return fn();
  return variables[tensors->size()]->Change([&](Tensor* tensor) {
    tensors->push_back(tensor);
    return ChangeAll(variables, tensors, fn);
  });
}

// Calls `fn` while no other thread writes to the copies of any of `variables`, which are in order.
absl::Status WriteAllTogether(absl::Span<const std::shared_ptr<MirroredVariable>> variables,
                              absl::FunctionRef<absl::Status()> fn) {
  if (variables.empty()) return fn();
  return variables[0]->WriteTogether([&] { return WriteAllTogether(variables.subspan(1), fn); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<VariableOptimizer>> VariableOptimizer::Create(
    const OptimizerConfig& config, std::string name) {
  ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer, Optimizer::Create(config));
  OptimizerConfig without_clipvalue = config;
  without_clipvalue.clipvalue = 0;
  ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> of_rows, Optimizer::Create(without_clipvalue));
  if (name.empty()) name = config.type;
  return std::unique_ptr<VariableOptimizer>(
      new VariableOptimizer(std::move(name), std::move(optimizer), std::move(of_rows)));
}

absl::Status VariableOptimizer::Build(absl::Span<const VariablePtr> variables) {
  ASSIGN_OR_RETURN(Strategy* const strategy, StrategyOf(variables));
  return CallMerged(*strategy, {.what = "Build"}, {ListOf(variables)},
                    [this, strategy](bool /*in_replicas*/, absl::Span<const Value> merged) {
                      const auto all = SameVariables(merged[0]);
                      const absl::Status allowed = all.ok() ? CheckVariables(*all) : all.status();
                      absl::MutexLock lock(&mutex_);
                      if (allowed.ok()) return BuildLocked(*strategy, *all);
                      // The other workers make the update count.
                      if (iterations_ == nullptr) strategy->RefuseCollective(allowed);
                      return allowed;
                    });
}

absl::Status VariableOptimizer::BuildLocked(Strategy& strategy,
                                            absl::Span<const VariablePtr> variables) {
  const Strategy* const own = strategy_.get();
  if (strategy_.is_destroyed() || (own != nullptr && own != &strategy)) {
    return Wrong(*variables[0],
                 absl::StrCat("it is of ", strategy.name(), ", the optimizer's are of ",
                              own == nullptr ? "a strategy that was destroyed" : own->name(),
                              "; make one for each"));
  }
  for (const VariablePtr& variable : variables) {
    if (iterations_ == nullptr) {
      ASSIGN_OR_RETURN(iterations_,
                       MakeBeside(strategy, variable,
                                  {.name = absl::StrCat(name_, "/iteration"),
                                   .initial_value = Tensor::Zeros(DType::kInt64, {}),
                                   .trainable = false,
                                   .aggregation = VariableAggregation::kOnlyFirstReplica}));
      strategy_ = strategy.handle();
    }
    if (entry_of_.contains(variable.get())) continue;
    Entry entry{.variable = variable, .slots = {}};
    const std::string prefix =
        absl::StrCat(name_, "/", absl::StrReplaceAll(variable->name(), {{"/", "_"}}), "_");
    for (const SlotSpec& slot : optimizer_->slots()) {
      Tensor initial = Tensor::Full(variable->dtype(), variable->shape(), slot.initial_value);
      ASSIGN_OR_RETURN(VariablePtr made, MakeBeside(strategy, variable,
                                                    {.name = absl::StrCat(prefix, slot.name),
                                                     .initial_value = std::move(initial),
                                                     .trainable = false,
                                                     .aggregation = variable->aggregation()}));
      ASSIGN_OR_RETURN(const auto copies, CopiesOf(*made));
      if (copies.size() != variable->components().size()) {
        return Wrong(*made, absl::StrCat("it has ", copies.size(), " copies, \"", variable->name(),
                                         "\", whose slot it is, ", variable->components().size()));
      }
      entry.slots.push_back(std::move(made));
    }
    entry_of_[variable.get()] = entries_.size();
    entries_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status VariableOptimizer::ApplyGradients(absl::Span<const GradientAndVariable> gradients,
                                               const ApplyGradientsOptions& options) {
  std::vector<VariablePtr> variables;
  Value::Sequence values;
  for (const GradientAndVariable& pair : gradients) {
    variables.push_back(pair.variable);
    values.push_back(pair.gradient);
  }
  ASSIGN_OR_RETURN(Strategy* const strategy, StrategyOf(variables));
  return CallMerged(
      *strategy, {.what = "ApplyGradients", .with_other_workers = !options.skip_aggregation},
      {ListOf(variables), Value::List(std::move(values)), options.skip_aggregation ? 1 : 0},
      [this, strategy](bool in_replicas, absl::Span<const Value> merged) {
        return ApplyMerged(*strategy, in_replicas, merged);
      });
}

absl::Status VariableOptimizer::ApplyMerged(Strategy& strategy, bool in_replicas,
                                            absl::Span<const Value> merged) {
  if (UpdateReplicaId().has_value()) {
    return FailedPrecondition(
        "optimizer '", name_,
        "': ApplyGradients in an update function, which "
        "runs once for each copy; call it outside of Update and UpdateNonSlot");
  }
  Sums sums;
  const absl::Status collected = Collect(strategy, in_replicas, merged, &sums);
  if (!collected.ok()) {
    absl::MutexLock lock(&mutex_);
    // The other workers sum gradients, or make the update count.
    if (SumsOverWorkers(strategy, in_replicas, merged) || iterations_ == nullptr) {
      strategy.RefuseCollective(collected);
    }
    return collected;
  }
  if (!sums.locals.empty()) {
    ASSIGN_OR_RETURN(const std::vector<Value> reduced,
                     strategy.ReduceAll(ReduceOp::kSum, sums.locals, {}));
    for (size_t i = 0; i < reduced.size(); ++i) {
      std::vector<TensorGradient>& of_copies = sums.updates[sums.places[i]].of_copies;
      if (reduced[i].kind() != Value::Kind::kMirrored) {
        of_copies.push_back(TensorGradientOf(reduced[i]));
        continue;
      }
      for (const Value& copy : reduced[i].items()) of_copies.push_back(TensorGradientOf(copy));
    }
  }
  RETURN_IF_ERROR(Clip(absl::MakeSpan(sums.updates)));
  std::vector<VariablePtr> moved;
  for (const Update& update : sums.updates) moved.push_back(update.variable);
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(BuildLocked(strategy, moved));
  if (!sums.left_out.empty() && !std::exchange(warned_, true)) {
    LOG(WARNING) << "optimizer '" << name_ << "': no gradient for "
                 << absl::StrJoin(sums.left_out, ", ") << ": not updated (logged once)";
  }
  return UpdateLocked(sums.updates);
}

absl::Status VariableOptimizer::Collect(Strategy& strategy, bool in_replicas,
                                        absl::Span<const Value> merged, Sums* sums) {
  ASSIGN_OR_RETURN(const std::vector<VariablePtr> variables, SameVariables(merged[0]));
  RETURN_IF_ERROR(CheckVariables(variables));
  if (merged[2].is_distributed()) {
    return absl::InvalidArgumentError(
        "optimizer: some replicas gave skip_aggregation and some did not; all must give one");
  }
  const bool skip = merged[2].integer() != 0;
  const int32_t replicas = strategy.local_replicas();
  for (size_t v = 0; v < variables.size(); ++v) {
    const VariablePtr& variable = variables[v];
    // A variable as a gradient counts as its copies.
    ASSIGN_OR_RETURN(const Value gradient,
                     strategy.Components("ApplyGradients", merged[1].items()[v]));
    const bool adds = !skip && (in_replicas || gradient.kind() == Value::Kind::kPerReplica);
    const auto copies =
        static_cast<int32_t>(skip && gradient.is_distributed() ? variable->components().size() : 1);
    ASSIGN_OR_RETURN(Value::Sequence each, EachReplica(gradient, adds ? replicas : copies));
    if (adds) {
      ASSIGN_OR_RETURN(each, strategy.OwnComponents("ApplyGradients", each));
    }
    ASSIGN_OR_RETURN(Value::Sequence checked, CheckedGradients(*variable, each));
    if (checked.empty()) {
      sums->left_out.push_back(variable->name());
      continue;
    }
    Update& update = sums->updates.emplace_back(Update{.variable = variable, .of_copies = {}});
    if (adds && strategy.num_replicas_in_sync() > 1) {
      sums->places.push_back(sums->updates.size() - 1);
      sums->locals.push_back(std::move(checked));
      continue;
    }
    for (const Value& value : checked) update.of_copies.push_back(TensorGradientOf(value));
  }
  if (!sums->updates.empty()) return absl::OkStatus();
  return Wrong(*variables[0], "neither it nor any other variable has a gradient");
}

absl::Status VariableOptimizer::Clip(absl::Span<Update> updates) const {
  size_t columns = 1;
  for (const Update& update : updates) columns = std::max(columns, update.of_copies.size());
  for (size_t c = 0; c < columns; ++c) {
    std::vector<TensorGradient> together;
    for (Update& update : updates) {
      if (update.of_copies.size() == 1) update.of_copies.resize(columns, update.of_copies[0]);
      together.push_back(update.of_copies[c]);
    }
    RETURN_IF_ERROR(ClipGradients(config(), absl::MakeSpan(together)));
    for (size_t u = 0; u < updates.size(); ++u) {
      ASSIGN_OR_RETURN(updates[u].of_copies[c], WithDistinctRows(together[u]));
    }
  }
  return absl::OkStatus();
}

absl::Status VariableOptimizer::UpdateLocked(absl::Span<const Update> updates) {
  ASSIGN_OR_RETURN(const int64_t done, IterationsLocked());
  // One copy of a variable, with its slots.
  struct Part {
    std::vector<PlainVariable*> changed;
    const TensorGradient* gradient;
  };
  std::vector<Part> parts;
  std::vector<PlainVariable*> all;
  // Without their locks, the update could fall between two copies of a write by another thread.
  std::vector<std::shared_ptr<MirroredVariable>> mirrored;
  const auto add_mirrored = [&mirrored](Variable& variable) {
    auto whole = std::dynamic_pointer_cast<MirroredVariable>(variable.container());
    if (whole != nullptr) mirrored.push_back(std::move(whole));
  };
  for (const Update& update : updates) {
    const Entry& entry = entries_[entry_of_.at(update.variable.get())];
    ASSIGN_OR_RETURN(const std::vector<PlainVariable*> own, CopiesOf(*entry.variable));
    add_mirrored(*entry.variable);
    const size_t first = parts.size();
    for (size_t c = 0; c < own.size(); ++c) {
      parts.push_back({{own[c]}, &update.of_copies[update.of_copies.size() == 1 ? 0 : c]});
    }
    for (const VariablePtr& slot : entry.slots) {
      ASSIGN_OR_RETURN(const std::vector<PlainVariable*> of_slot, CopiesOf(*slot));
      for (size_t c = 0; c < own.size(); ++c) parts[first + c].changed.push_back(of_slot[c]);
      add_mirrored(*slot);
    }
  }
  for (const Part& part : parts) all.insert(all.end(), part.changed.begin(), part.changed.end());
  // All optimizers lock variables in one order, so that no cycle of waits can form.
  std::ranges::sort(all, std::less<>());
  std::ranges::sort(mirrored);
  mirrored.erase(std::ranges::unique(mirrored).begin(), mirrored.end());
  std::vector<Tensor*> tensors;
  const auto update = [&] {
    absl::flat_hash_map<const PlainVariable*, Tensor*> tensor_of;
    for (size_t i = 0; i < all.size(); ++i) tensor_of[all[i]] = tensors[i];
    std::vector<std::vector<Tensor*>> slots(parts.size());
    std::vector<TensorUpdate> whole, of_rows;
    for (size_t p = 0; p < parts.size(); ++p) {
      const std::vector<PlainVariable*>& changed = parts[p].changed;
      for (size_t s = 1; s < changed.size(); ++s) slots[p].push_back(tensor_of.at(changed[s]));
      const TensorGradient& gradient = *parts[p].gradient;
      (gradient.rows.has_value() ? of_rows : whole)
          .push_back({gradient, tensor_of.at(changed[0]), slots[p]});
    }
    RETURN_IF_ERROR(UpdateTensors(*optimizer_, optimizer_->Begin(done), whole));
    return UpdateTensors(*optimizer_of_rows_, optimizer_of_rows_->Begin(done), of_rows);
  };
  RETURN_IF_ERROR(WriteAllTogether(mirrored, [&] { return ChangeAll(all, &tensors, update); }));
  return iterations_->Assign(Tensor::Scalar<int64_t>(done + 1));
}

absl::StatusOr<int64_t> VariableOptimizer::IterationsLocked() const {
  if (iterations_ == nullptr) return 0;
  ASSIGN_OR_RETURN(const Tensor count, iterations_->components()[0]->Read());
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(count));
  return host.values<int64_t>()[0];
}

absl::StatusOr<int64_t> VariableOptimizer::iterations() const {
  absl::MutexLock lock(&mutex_);
  return IterationsLocked();
}

absl::StatusOr<double> VariableOptimizer::learning_rate() const {
  ASSIGN_OR_RETURN(const int64_t done, iterations());
  return optimizer_->Begin(done).learning_rate;
}

std::vector<VariablePtr> VariableOptimizer::variables() const {
  absl::MutexLock lock(&mutex_);
  std::vector<VariablePtr> all;
  if (iterations_ != nullptr) all.push_back(iterations_);
  for (const Entry& entry : entries_) {
    all.insert(all.end(), entry.slots.begin(), entry.slots.end());
  }
  return all;
}

}  // namespace cairn
