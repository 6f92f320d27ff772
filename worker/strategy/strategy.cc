#include "worker/strategy/strategy.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/replica_barrier.h"
#include "worker/strategy/replica_threads.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

// Limit of a replica's wait for the others in a merge call or collective. Replica functions of a
// step take about equally long, so a replica that is this late is stuck.
constexpr absl::Duration kBarrierTimeout = absl::Minutes(10);

// The error that a Run with these results returns. A replica that fails makes the others'
// rendezvous fail with `of_barrier`; its own error takes precedence.
absl::Status FirstError(absl::Span<const absl::StatusOr<Value>> results,
                        const absl::Status& of_barrier) {
  absl::Status first;
  for (const absl::StatusOr<Value>& result : results) {
    if (!result.ok() && result.status() != of_barrier) return result.status();
    first.Update(result.status());
  }
  return first;
}

absl::Status NoFunction(absl::string_view method) {
  return InvalidArgument(method, ": found no function; give one that can be called");
}

}  // namespace

Scope& Scope::operator=(Scope&& other) noexcept {
  if (this == &other) return *this;
  const Scope ended = std::move(*this);
  entry_ = std::move(other.entry_);
  devices_ = other.devices_;
  creators_ = other.creators_;
  return *this;
}

Scope::~Scope() {
  const absl::Status status = Exit();
  LOG_IF(ERROR, !status.ok()) << status;
  // The entering thread drops the entry.
  if (entry_ != nullptr) entry_->left = true;
}

absl::Status Scope::Exit() {
  if (entry_ == nullptr) return absl::OkStatus();
  ContextStack& stack = ContextStack::OfThisThread();
  const Strategy* const strategy = entry_->strategy.get();
  if (strategy == nullptr || entry_->left) {
    const bool destroyed = strategy == nullptr;
    entry_ = nullptr;
    return FailedPrecondition(
        "the scope of a strategy was over before it was left: ",
        destroyed ? "the strategy was destroyed" : "the function that entered it had returned",
        "; leave a scope before that");
  }
  const std::string name = strategy->name();
  const auto own = std::ranges::find(stack.modes, entry_, &ContextMode::scope);
  if (own == stack.modes.end()) {
    return FailedPrecondition(
        "the scope of ", name,
        " was entered in another thread, or outside the function that leaves it; "
        "leave it where it was entered");
  }
  const auto still_open = [&name](absl::string_view what) {
    return FailedPrecondition(what, " nesting error: the scope of ", name, " is left while ", what,
                              " entered inside it is still open; leave the inner one first");
  };
  if (own + 1 != stack.modes.end()) return still_open("a strategy's scope");
  if (stack.creators.size() > creators_) return still_open("a VariableCreatorScope");
  if (strategy->DefaultDevice().has_value() && stack.devices.size() > devices_) {
    return still_open("a DeviceScope");
  }
  entry_->left = true;
  entry_ = nullptr;
  return absl::OkStatus();
}

StrategyHandle::StrategyHandle(Strategy* strategy) {
  if (strategy != nullptr) *this = strategy->handle();
}

absl::Status CheckDevices(absl::string_view who, absl::Span<const Device> devices) {
  if (devices.empty()) return InvalidArgument(who, ": no device given; name at least one");
  std::set<Device> seen;
  for (const Device device : devices) {
    if (device.index < 0) {
      return InvalidArgument(who, ": there is no device ", device.text(), "; devices count from 0");
    }
    if (!seen.insert(device).second) {
      return InvalidArgument(who, ": device ", device.text(), " is given twice; name each once");
    }
  }
  return absl::OkStatus();
}

Strategy::Strategy(std::vector<Device> worker_devices)
    : worker_devices_(std::move(worker_devices)), threads_(std::make_unique<ReplicaThreads>()) {
  CHECK(!worker_devices_.empty()) << "a strategy needs a device";
  handle_.strategy_ = std::make_shared<std::atomic<Strategy*>>(this);
}

Strategy::~Strategy() { *handle_.strategy_ = nullptr; }

absl::Status Strategy::CheckCrossReplica(absl::string_view method) const {
  const ContextMode* mode = ContextStack::OfThisThread().top();
  if (mode == nullptr) {
    // Checked here because constructors (OneDeviceStrategy's) cannot return errors.
    return worker_devices_[0].index < 0 ? CheckDevices(name(), worker_devices_) : absl::OkStatus();
  }
  if (mode->strategy != this) {
    return FailedPrecondition(
        name(), "::", method, " called where ", mode->strategy->name(),
        mode->strategy->name() == name() ? " (another object)" : "",
        " is current: different strategies cannot be mixed; leave its scope first");
  }
  if (mode->replica == nullptr) return absl::OkStatus();
  return FailedPrecondition(
      name(), "::", method, " called in a replica function (replica ",
      mode->replica->replica_id_in_sync_group(),
      "): it requires cross-replica context; use GetReplicaContext()->MergeCall()");
}

absl::Status Strategy::CheckComponents(absl::string_view method, const Value& value) const {
  if (value.kind() == Value::Kind::kDict) {
    for (const auto& [key, item] : value.dict()) RETURN_IF_ERROR(CheckComponents(method, item));
    return absl::OkStatus();
  }
  if (value.is_sequence()) {
    for (const Value& item : value.items()) RETURN_IF_ERROR(CheckComponents(method, item));
    return absl::OkStatus();
  }
  if (!value.is_distributed() || value.items().size() == worker_devices_.size()) {
    return absl::OkStatus();
  }
  return InvalidArgument(name(), "::", method, ": ", value.TypeText(), " has ",
                         value.items().size(), " components, the strategy ", local_replicas(),
                         " local replicas; give one component for each");
}

absl::StatusOr<Scope> Strategy::EnterScope() {
  Scope scope;
  if (is_default()) return scope;
  RETURN_IF_ERROR(CheckCrossReplica("EnterScope"));
  ContextStack& stack = ContextStack::OfThisThread();
  scope.entry_ = stack.Enter(*this);
  scope.devices_ = stack.devices.size();
  scope.creators_ = stack.creators.size();
  return scope;
}

absl::StatusOr<Value> Strategy::Run(const ReplicaFn& fn, absl::Span<const Value> args) {
  if (fn == nullptr) return NoFunction("Run");
  if (is_default()) {
    ContextStack& stack = ContextStack::OfThisThread();
    ++stack.default_runs;
    absl::StatusOr<Value> result = fn.Call("the replica function", args);
    --stack.default_runs;
    return result;
  }
  RETURN_IF_ERROR(CheckCrossReplica("Run"));
  for (const Value& arg : args) RETURN_IF_ERROR(CheckComponents("Run", arg));
  absl::StatusOr<Value> result = local_replicas() > 1 ? RunReplicas(fn, args) : RunOne(fn, args);
  RunEnded(result.status());
  return result;
}

absl::StatusOr<Value> Strategy::RunOne(const ReplicaFn& fn, absl::Span<const Value> args) {
  ASSIGN_OR_RETURN(const Value::Sequence own, SelectReplicas(args, 0));
  const PushedMode mode(
      this, std::make_shared<ReplicaContext>(this, nullptr, 0, worker_index(), worker_devices_[0]));
  const DeviceScope device(worker_devices_[0]);
  return fn.Call("the replica function", own);
}

absl::StatusOr<Value> Strategy::RunReplicas(const ReplicaFn& fn, absl::Span<const Value> args) {
  const auto count = static_cast<size_t>(local_replicas());
  std::vector<Value::Sequence> own(count);
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(own[i], SelectReplicas(args, static_cast<int32_t>(i)));
  }
  const PushedMode cross(this, nullptr);
  ReplicaBarrier barrier(local_replicas(), kBarrierTimeout);
  const auto creators = ContextStack::OfThisThread().creators;
  const std::optional<int32_t> worker = CurrentWorker();
  const CancellationToken cancellation = CurrentCancellation();
  std::vector<absl::StatusOr<Value>> results(count, Value());
  for (size_t i = 0; i < count; ++i) {
    const auto local = static_cast<int32_t>(i);
    const absl::Status started = threads_->Start([&, i, local] {
      {
        const PushedMode mode(
            this, std::make_shared<ReplicaContext>(this, &barrier, local,
                                                   worker_index() * local_replicas() + local,
                                                   worker_devices_[i]));
        const DeviceScope device(worker_devices_[i]);
        const WorkerScope of_worker(worker, cancellation);
        ContextStack::OfThisThread().creators = creators;
        results[i] = fn.Call(absl::StrCat("the function of replica ", local), own[i]);
        ContextStack::OfThisThread().creators.clear();
      }
      barrier.Finish(local);
    });
    if (!started.ok()) {
      results[i] = started;
      barrier.Finish(local);
    }
  }
  barrier.Serve();
  const absl::Status status = FirstError(results, barrier.failure());
  if (barrier.missed_other_workers()) {
    RefuseCollective(status.ok() ? barrier.failure() : status);
  }
  RETURN_IF_ERROR(status);
  std::vector<Value> values;
  values.reserve(count);
  for (absl::StatusOr<Value>& result : results) values.push_back(*std::move(result));
  return Regroup(values);
}

absl::StatusOr<std::vector<Value>> Strategy::LocalResults(const Value& value) const {
  RETURN_IF_ERROR(CheckComponents("LocalResults", value));
  const auto copies_of = [this](const Value& leaf) -> absl::StatusOr<Value> {
    if (!leaf.is_variable()) return leaf;
    RETURN_IF_ERROR(CheckVariable("LocalResults", leaf.variable()));
    const std::vector<VariablePtr> copies = leaf.variable()->components();
    const bool for_each = copies.size() == worker_devices_.size();
    if (leaf.variable()->strategy() != this || !for_each) return leaf;
    return Value::PerReplica({copies.begin(), copies.end()});
  };
  ASSIGN_OR_RETURN(const Value expanded, WithLeaves(value, copies_of));
  // A number, tensor, … is one result. A structure gives one result for each replica.
  const bool of_each =
      expanded.is_distributed() || expanded.is_sequence() || expanded.kind() == Value::Kind::kDict;
  if (!of_each) return std::vector<Value>{expanded};
  return EachReplica(expanded, local_replicas());
}

absl::StatusOr<Value> Strategy::DistributeValuesFromFunction(
    const ValueFunction<const ValueContext&>& fn) {
  if (fn == nullptr) return NoFunction("DistributeValuesFromFunction");
  RETURN_IF_ERROR(CheckCrossReplica("DistributeValuesFromFunction"));
  std::optional<PushedMode> cross;
  if (!is_default()) cross.emplace(this, nullptr);
  Value::Sequence values;
  for (int32_t i = 0; i < local_replicas(); ++i) {
    ASSIGN_OR_RETURN(values.emplace_back(),
                     fn.Call("the function of DistributeValuesFromFunction",
                             {worker_index() * local_replicas() + i, num_replicas_in_sync()}));
  }
  if (values.size() == 1) return std::move(values[0]);
  return RegroupAsPerReplica(values);
}

absl::StatusOr<Value> Strategy::Update(const VariablePtr& variable, const UpdateFn& fn,
                                       absl::Span<const Value> args) {
  if (fn == nullptr) return NoFunction("Update");
  RETURN_IF_ERROR(CheckVariable("Update", variable));
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  const bool in_run = replica != nullptr && replica->strategy() == this &&
                      (!is_default() || ContextStack::OfThisThread().default_runs > 0);
  if (!in_run) {
    RETURN_IF_ERROR(CheckCrossReplica("Update"));
    std::optional<PushedMode> cross;
    if (!is_default()) cross.emplace(this, nullptr);
    return UpdateCopies(variable, fn, args);
  }
  return MergeCallFor(
      *replica,
      {.what = absl::StrCat("Update of variable \"", variable->name(), "\""),
       .subject = variable.get()},
      [&variable, &fn](Strategy& strategy, absl::Span<const Value> merged) {
        return strategy.UpdateCopies(variable, fn, merged);
      },
      args);
}

absl::StatusOr<Value> Strategy::UpdateCopies(const VariablePtr& variable, const UpdateFn& fn,
                                             absl::Span<const Value> args) {
  if (!is_default() && variable->strategy() == nullptr) {
    return InvalidArgument(name(), "::Update of \"", variable->name(),
                           "\", a variable of no strategy; create it in the scope of one");
  }
  if (!is_default()) {
    for (const Value& arg : args) RETURN_IF_ERROR(CheckComponents("Update", arg));
  }
  const std::vector<VariablePtr> copies = variable->components();
  std::vector<Value> results;
  const auto update_all = [&]() -> absl::Status {
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      ASSIGN_OR_RETURN(const Value::Sequence own, SelectReplicas(args, id));
      const PushedUpdate update(id);
      const DeviceScope device(copies[i]->device());
      ASSIGN_OR_RETURN(results.emplace_back(), fn.Call("the function of Update", copies[i], own));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(variable->UpdateTogether(update_all));
  if (results.empty()) return Value();
  return Regroup(results);
}

absl::StatusOr<Value> Strategy::UpdateNonSlot(absl::Span<const Device> devices, const ReplicaFn& fn,
                                              absl::Span<const Value> args) {
  if (fn == nullptr) return NoFunction("UpdateNonSlot");
  RETURN_IF_ERROR(CheckCrossReplica("UpdateNonSlot"));
  std::optional<PushedMode> cross;
  if (!is_default()) cross.emplace(this, nullptr);
  std::vector<Value> results;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    ASSIGN_OR_RETURN(const Value::Sequence own, SelectReplicas(args, id));
    const PushedUpdate update(id);
    const DeviceScope device(devices[i]);
    ASSIGN_OR_RETURN(results.emplace_back(), fn.Call("the function of UpdateNonSlot", own));
  }
  if (results.empty()) return Value();
  return Regroup(results);
}

bool Strategy::VariableCreatedInScope(const VariablePtr& variable) const {
  return variable != nullptr && variable->strategy() == this;
}

}  // namespace cairn
