#include "worker/strategy/strategy.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/thrown.h"
#include "glog/logging.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/replica_meeting.h"
#include "worker/strategy/replica_threads.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

// How long a replica waits for the others in a merge call or collective. Replica functions of one
// step take about as long as each other, so what takes this long is stuck.
constexpr absl::Duration kMeetingTimeout = absl::Minutes(10);

absl::Status NoFunction(absl::string_view method) {
  return absl::InvalidArgumentError(
      absl::StrCat(method, ": found no function; give one that can be called"));
}

bool HasDistributed(const Value& value) {
  if (value.is_distributed()) return true;
  if (value.is_sequence()) {
    return std::any_of(value.items().begin(), value.items().end(), HasDistributed);
  }
  return value.kind() == Value::Kind::kDict &&
         std::any_of(value.dict().begin(), value.dict().end(),
                     [](const auto& item) { return HasDistributed(item.second); });
}

}  // namespace

Scope& Scope::operator=(Scope&& other) noexcept {
  CHECK(strategy_ == nullptr) << "a scope that is open cannot be assigned to";
  strategy_ = std::exchange(other.strategy_, nullptr);
  modes_ = other.modes_;
  devices_ = other.devices_;
  creators_ = other.creators_;
  return *this;
}

Scope::~Scope() {
  const absl::Status status = Exit();
  LOG_IF(ERROR, !status.ok()) << status;
}

absl::Status Scope::Exit() {
  if (strategy_ == nullptr) return absl::OkStatus();
  ContextStack& stack = ContextStack::OfThisThread();
  const std::string name = strategy_->name();
  const auto still_open = [&name](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " nesting error: the scope of ", name, " is left while ", what,
                     " entered inside it is still open; leave the inner one first"));
  };
  if (stack.modes.size() > modes_ + 1) return still_open("a strategy's scope");
  if (stack.creators.size() > creators_) return still_open("a VariableCreatorScope");
  if (strategy_->DefaultDevice().has_value() && stack.devices.size() > devices_) {
    return still_open("a DeviceScope");
  }
  if (strategy_->DefaultDevice().has_value()) stack.devices.pop_back();
  stack.modes.pop_back();
  strategy_ = nullptr;
  return absl::OkStatus();
}

Strategy::Strategy(std::vector<Device> worker_devices)
    : worker_devices_(std::move(worker_devices)), threads_(std::make_unique<ReplicaThreads>()) {
  CHECK(!worker_devices_.empty()) << "a strategy needs a device";
}

Strategy::~Strategy() = default;

absl::Status Strategy::CheckCrossReplica(absl::string_view method) const {
  const ContextMode* mode = ContextStack::OfThisThread().top();
  if (mode == nullptr) return absl::OkStatus();
  if (mode->strategy != this) {
    return absl::FailedPreconditionError(
        absl::StrCat(name(), "::", method, " called where ", mode->strategy->name(),
                     mode->strategy->name() == name() ? " (another object)" : "",
                     " is current: different strategies cannot be mixed; leave its scope first"));
  }
  if (mode->replica == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name(), "::", method, " called in a replica function (replica ",
                   mode->replica->replica_id_in_sync_group(),
                   "): it requires cross-replica context; use GetReplicaContext()->MergeCall()"));
}

absl::StatusOr<Scope> Strategy::EnterScope() {
  if (is_default()) return Scope(nullptr);
  RETURN_IF_ERROR(CheckCrossReplica("EnterScope"));
  ContextStack& stack = ContextStack::OfThisThread();
  Scope scope(this);
  scope.modes_ = stack.modes.size();
  if (const std::optional<Device> device = DefaultDevice()) stack.devices.push_back(*device);
  scope.devices_ = stack.devices.size();
  scope.creators_ = stack.creators.size();
  stack.modes.push_back({this, nullptr});
  return scope;
}

absl::StatusOr<Value> Strategy::Run(const ReplicaFn& fn, absl::Span<const Value> args) {
  if (fn == nullptr) return NoFunction("Run");
  if (is_default()) {
    ContextStack& stack = ContextStack::OfThisThread();
    ++stack.default_runs;
    absl::StatusOr<Value> result = CatchThrown("the replica function", [&] { return fn(args); });
    --stack.default_runs;
    return result;
  }
  RETURN_IF_ERROR(CheckCrossReplica("Run"));
  if (local_replicas() > 1) return RunReplicas(fn, args);
  Value::Sequence own;
  for (const Value& arg : args) {
    ASSIGN_OR_RETURN(Value value, SelectReplica(arg, 0));
    own.push_back(std::move(value));
  }
  const PushedMode mode(
      this, std::make_shared<ReplicaContext>(this, nullptr, 0, worker_index(), worker_devices_[0]));
  const DeviceScope device(worker_devices_[0]);
  return CatchThrown("the replica function", [&] { return fn(own); });
}

absl::StatusOr<Value> Strategy::RunReplicas(const ReplicaFn& fn, absl::Span<const Value> args) {
  const auto count = static_cast<size_t>(local_replicas());
  std::vector<Value::Sequence> own(count);
  for (size_t i = 0; i < count; ++i) {
    for (const Value& arg : args) {
      ASSIGN_OR_RETURN(Value value, SelectReplica(arg, static_cast<int32_t>(i)));
      own[i].push_back(std::move(value));
    }
  }
  const PushedMode cross(this, nullptr);
  ReplicaMeeting meeting(local_replicas(), kMeetingTimeout);
  const std::vector<VariableCreatorScope::Creator> creators = ContextStack::OfThisThread().creators;
  const std::optional<int32_t> worker = CurrentWorker();
  std::vector<absl::StatusOr<Value>> results(count, Value());
  for (size_t i = 0; i < count; ++i) {
    threads_->Start([&, i] {
      const auto local = static_cast<int32_t>(i);
      {
        const PushedMode mode(
            this, std::make_shared<ReplicaContext>(this, &meeting, local,
                                                   worker_index() * local_replicas() + local,
                                                   worker_devices_[i]));
        const DeviceScope device(worker_devices_[i]);
        const WorkerScope of_worker(worker);
        ContextStack::OfThisThread().creators = creators;
        results[i] = CatchThrown(absl::StrCat("the function of replica ", local),
                                 [&] { return fn(own[i]); });
        ContextStack::OfThisThread().creators.clear();
      }
      meeting.Finish(local);
    });
  }
  meeting.Serve();
  // A replica that fails makes the others' meeting fail; what it said itself comes first.
  const absl::Status meeting_failure = meeting.failure();
  for (const absl::StatusOr<Value>& result : results) {
    if (!result.ok() && result.status() != meeting_failure) return result.status();
  }
  for (const absl::StatusOr<Value>& result : results) RETURN_IF_ERROR(result.status());
  std::vector<Value> values;
  values.reserve(count);
  for (absl::StatusOr<Value>& result : results) values.push_back(*std::move(result));
  return Regroup(values);
}

absl::StatusOr<std::vector<Value>> Strategy::LocalResults(const Value& value) const {
  Value expanded = value;
  if (value.is_variable() && value.variable()->strategy() == this && local_replicas() > 1) {
    Value::Sequence copies;
    for (const VariablePtr& copy : value.variable()->components()) copies.emplace_back(copy);
    if (copies.size() == 1) return copies;
    expanded = Value::PerReplica(std::move(copies));
  }
  std::vector<Value> results;
  for (int32_t i = 0; i < local_replicas(); ++i) {
    ASSIGN_OR_RETURN(Value own, SelectReplica(expanded, i));
    results.push_back(std::move(own));
  }
  // What has no distributed value in it is one result, not one for each replica.
  if (!HasDistributed(expanded)) results.resize(1);
  return results;
}

absl::StatusOr<Value> Strategy::DistributeValuesFromFunction(
    const std::function<absl::StatusOr<Value>(const ValueContext&)>& fn) {
  RETURN_IF_ERROR(CheckCrossReplica("DistributeValuesFromFunction"));
  std::optional<PushedMode> cross;
  if (!is_default()) cross.emplace(this, nullptr);
  Value::Sequence values;
  for (int32_t i = 0; i < local_replicas(); ++i) {
    ASSIGN_OR_RETURN(Value value,
                     fn({worker_index() * local_replicas() + i, num_replicas_in_sync()}));
    values.push_back(std::move(value));
  }
  if (values.size() == 1) return std::move(values[0]);
  return Value::PerReplica(std::move(values));
}

absl::StatusOr<Value> Strategy::Update(const VariablePtr& variable, const UpdateFn& fn,
                                       absl::Span<const Value> args) {
  if (fn == nullptr) return NoFunction("Update");
  if (variable == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name(), "::Update: the variable is null"));
  }
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  const bool in_run = replica != nullptr && replica->strategy() == this &&
                      (!is_default() || ContextStack::OfThisThread().default_runs > 0);
  if (!in_run) {
    RETURN_IF_ERROR(CheckCrossReplica("Update"));
    std::optional<PushedMode> cross;
    if (!is_default()) cross.emplace(this, nullptr);
    return UpdateCopies(variable, fn, args);
  }
  return replica->MergeCall(
      [&variable, &fn](Strategy& strategy, absl::Span<const Value> merged) {
        return strategy.UpdateCopies(variable, fn, merged);
      },
      args);
}

absl::StatusOr<Value> Strategy::UpdateCopies(const VariablePtr& variable, const UpdateFn& fn,
                                             absl::Span<const Value> args) {
  if (!is_default() && variable->strategy() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(name(), "::Update of \"", variable->name(),
                     "\", a variable of no strategy; create it in the scope of one"));
  }
  const std::vector<VariablePtr> copies = variable->components();
  std::vector<Value> results;
  for (size_t i = 0; i < copies.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    Value::Sequence own;
    for (const Value& arg : args) {
      ASSIGN_OR_RETURN(Value value, SelectReplica(arg, id));
      own.push_back(std::move(value));
    }
    const PushedUpdate update(id);
    const DeviceScope device(copies[i]->device());
    ASSIGN_OR_RETURN(Value result, fn(copies[i], own));
    results.push_back(std::move(result));
  }
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
    const PushedUpdate update(static_cast<int32_t>(i));
    const DeviceScope device(devices[i]);
    ASSIGN_OR_RETURN(Value result, fn(args));
    results.push_back(std::move(result));
  }
  if (results.empty()) return Value();
  return Regroup(results);
}

bool Strategy::VariableCreatedInScope(const VariablePtr& variable) const {
  return variable->strategy() == this;
}

}  // namespace cairn
