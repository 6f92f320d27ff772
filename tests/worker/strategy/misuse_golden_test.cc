// Every record of `misuse` in contexts.json: calls at wrong places, by the record's name.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/strategy/golden_strategies.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn::test {
namespace {

using nlohmann::json;

static_assert(!std::is_copy_constructible_v<MirroredStrategy>, "copy_strategy is refused by types");

const Value kOne = Tensor::Scalar<float>(1);

// The objects that the records' Python code names: two Mirrored strategies of two replicas, and
// their variables.
class Misuse {
 public:
  Misuse()
      : one_(MirroredStrategy::Create({Cpu(0), Cpu(1)}).value()),
        other_(MirroredStrategy::Create({Cpu(0), Cpu(1)}).value()),
        values_(Value::PerReplica({Tensor::Scalar<float>(1), Tensor::Scalar<float>(2)})) {
    variable_ = MadeBy(*one_);
    foreign_ = MadeBy(*other_);
    plain_ = CreateVariable({.initial_value = Tensor::Scalar<float>(1)}).value();
    (void)one_->Run([this](absl::Span<const Value>) -> absl::StatusOr<Value> {
      if (GetReplicaContext()->replica_id_in_sync_group() == 0) kept_ = GetReplicaContext();
      return Value();
    });
  }

  using Call = std::function<absl::Status()>;
  std::map<std::string, Call> CrossReplicaCalls();
  std::map<std::string, Call> ScopeCalls();
  std::map<std::string, Call> ReplicaCalls();
  std::map<std::string, Call> ValueCalls();
  std::map<std::string, Call> DeviceCalls();

 private:
  static VariablePtr MadeBy(Strategy& strategy) {
    const Scope scope = strategy.EnterScope().value();
    return CreateVariable({.initial_value = Tensor::Scalar<float>(1),
                           .aggregation = VariableAggregation::kMean})
        .value();
  }

  // Calls from one replica function, in both replicas.
  absl::Status InRun(const Call& call) { return InRunOf(*one_, call); }
  static absl::Status InRunOf(Strategy& strategy, const Call& call) {
    return strategy
        .Run([&call](absl::Span<const Value>) -> absl::StatusOr<Value> {
          const absl::Status status = call();
          if (!status.ok()) return status;
          return Value();
        })
        .status();
  }
  static absl::Status Inside(Strategy& strategy, const Call& call) {
    const absl::StatusOr<Scope> scope = strategy.EnterScope();
    if (!scope.ok()) return scope.status();
    return call();
  }
  absl::Status Merged(const Call& call) {
    return InRun([&call] {
      return GetReplicaContext()
          ->MergeCall([&call](Strategy&, absl::Span<const Value>) -> absl::StatusOr<Value> {
            const absl::Status status = call();
            if (!status.ok()) return status;
            return Value();
          })
          .status();
    });
  }
  absl::Status KeptMerge() {
    return kept_
        ->MergeCall(
            [](Strategy&, absl::Span<const Value>) -> absl::StatusOr<Value> { return Value(1); })
        .status();
  }
  absl::Status Update(const VariablePtr& variable) {
    return one_
        ->Update(variable,
                 [](const VariablePtr& copy, absl::Span<const Value>) -> absl::StatusOr<Value> {
                   const absl::Status status = copy->Assign(2.0);
                   if (!status.ok()) return status;
                   return Value();
                 })
        .status();
  }
  absl::Status Reduce() { return one_->Reduce(ReduceOp::kSum, values_, {}).status(); }
  absl::Status ReduceTo() { return one_->ReduceTo(ReduceOp::kSum, values_, Cpu(0)).status(); }
  absl::Status Run() {
    return InRun([] { return absl::OkStatus(); });
  }
  absl::Status CreateBeside(const VariablePtr& beside) {
    return one_
        ->CreateVariableBeside(beside,
                               {.name = "beside", .initial_value = Tensor::Scalar<float>(1)})
        .status();
  }

  std::unique_ptr<MirroredStrategy> one_;
  std::unique_ptr<MirroredStrategy> other_;
  Value values_;
  VariablePtr variable_;
  VariablePtr foreign_;
  VariablePtr plain_;
  std::shared_ptr<ReplicaContext> kept_;  // of a finished Run
};

std::map<std::string, Misuse::Call> Misuse::CrossReplicaCalls() {
  const Call ok = [] { return absl::OkStatus(); };
  return {
      {"reduce_in_run",
       [this] {
         return InRun([this] { return one_->Reduce(ReduceOp::kSum, kOne, {}).status(); });
       }},
      {"reduce_to_in_run",
       [this] {
         return InRun([this] { return one_->ReduceTo(ReduceOp::kSum, kOne, Cpu(0)).status(); });
       }},
      {"update_in_run", [this] { return InRun([this] { return Update(variable_); }); }},
      {"run_in_run", [this] { return InRun([this] { return Run(); }); }},
      {"scope_in_run", [this, ok] { return InRun([this, ok] { return Inside(*one_, ok); }); }},
      {"reduce_outside", [this] { return Reduce(); }},
      {"reduce_to_outside", [this] { return ReduceTo(); }},
      {"batch_reduce_to_outside",
       [this] {
         const std::vector<std::pair<Value, Destinations>> pairs = {{values_, Cpu(0)}};
         return one_->BatchReduceTo(ReduceOp::kSum, pairs).status();
       }},
      {"broadcast_to_outside", [this] { return one_->BroadcastTo(kOne, Cpu(0)).status(); }},
      {"gather_outside",
       [this] {
         return one_
             ->Gather(Value::PerReplica({Tensor::Vector<float>({1}), Tensor::Vector<float>({2})}),
                      0)
             .status();
       }},
      {"update_outside", [this] { return Update(variable_); }},
      {"assign_outside", [this] { return variable_->Assign(2.0); }},
      {"read_outside", [this] { return variable_->Read().status(); }},
      {"run_outside", [this] { return Run(); }},
      {"update_non_slot_outside",
       [this] {
         return one_
             ->UpdateNonSlot(
                 one_->worker_devices(),
                 [](absl::Span<const Value>) -> absl::StatusOr<Value> { return Value(); })
             .status();
       }},
      {"update_plain_variable",
       [this] { return Inside(*one_, [this] { return Update(plain_); }); }},
      {"update_foreign_variable",
       [this] { return Inside(*one_, [this] { return Update(foreign_); }); }},
  };
}

std::map<std::string, Misuse::Call> Misuse::ScopeCalls() {
  const Call ok = [] { return absl::OkStatus(); };
  const auto in_other = [this](const Call& call) {
    return [this, call] { return Inside(*other_, call); };
  };
  return {
      {"reduce_in_other_scope", in_other([this] { return Reduce(); })},
      {"reduce_to_in_other_scope", in_other([this] { return ReduceTo(); })},
      {"run_in_other_scope", in_other([this] { return Run(); })},
      {"assign_in_other_scope", in_other([this] { return variable_->Assign(2.0); })},
      {"read_in_other_scope", in_other([this] { return variable_->Read().status(); })},
      {"scope_in_other_scope", in_other([this, ok] { return Inside(*one_, ok); })},
      {"scope_in_same_scope",
       [this, ok] { return Inside(*one_, [this, ok] { return Inside(*one_, ok); }); }},
      {"scope_in_merge_call",
       [this, ok] { return Merged([this, ok] { return Inside(*one_, ok); }); }},
      {"other_scope_in_merge_call",
       [this, ok] { return Merged([this, ok] { return Inside(*other_, ok); }); }},
      {"set_strategy_in_scope",
       [this] { return Inside(*one_, [this] { return SetStrategy(other_.get()); }); }},
      {"set_strategy_in_run", [this] { return InRun([this] { return SetStrategy(one_.get()); }); }},
      {"device_scope_left_open",
       [] {
         OneDeviceStrategy strategy(Cpu(0));
         Scope scope = strategy.EnterScope().value();
         const DeviceScope open(Cpu(1));
         return scope.Exit();
       }},
      {"device_scope_left_open_without_default_device",
       [this] {
         Scope scope = one_->EnterScope().value();
         const DeviceScope open(Cpu(1));
         return scope.Exit();
       }},
      {"creator_scope_left_open",
       [this] {
         Scope scope = one_->EnterScope().value();
         const VariableCreatorScope open(
             [](const VariableCreatorScope::Next& next, const VariableOptions& options) {
               return next(options);
             });
         return scope.Exit();
       }},
      {"colocate_in_scope",
       [this] { return Inside(*one_, [this] { return CreateBeside(variable_); }); }},
      {"colocate_outside", [this] { return CreateBeside(variable_); }},
      {"colocate_in_run", [this] { return InRun([this] { return CreateBeside(variable_); }); }},
      {"create_variable_outside",
       [] { return CreateVariable({.initial_value = Tensor::Scalar<float>(1)}).status(); }},
      {"colocate_with_foreign_variable",
       [this] { return Inside(*one_, [this] { return CreateBeside(foreign_); }); }},
      {"colocate_with_plain_variable",
       [this] { return Inside(*one_, [this] { return CreateBeside(plain_); }); }},
  };
}

std::map<std::string, Misuse::Call> Misuse::ReplicaCalls() {
  return {
      {"kept_context_merge_call", [this] { return KeptMerge(); }},
      {"kept_context_all_reduce",
       [this] { return kept_->AllReduce(ReduceOp::kSum, kOne).status(); }},
      {"kept_context_in_scope", [this] { return Inside(*one_, [this] { return KeptMerge(); }); }},
      {"kept_context_in_run", [this] { return InRun([this] { return KeptMerge(); }); }},
      {"kept_context_in_other_run",
       [this] { return InRunOf(*other_, [this] { return KeptMerge(); }); }},
      {"args_list",
       [this] {
         return one_
             ->Run([](absl::Span<const Value> args) -> absl::StatusOr<Value> { return args[0]; },
                   {5})
             .status();
       }},
      {"unequal_merge_calls",
       [this] {
         return InRun([] {
           if (GetReplicaContext()->replica_id_in_sync_group() == 1) return absl::OkStatus();
           return GetReplicaContext()
               ->MergeCall([](Strategy&, absl::Span<const Value>) -> absl::StatusOr<Value> {
                 return Value();
               })
               .status();
         });
       }},
      {"replica_function_fails",
       [this] { return InRun([] { return absl::InvalidArgumentError("a chosen message"); }); }},
      {"merge_function_fails",
       [this] { return Merged([] { return absl::InvalidArgumentError("a chosen message"); }); }},
      {"names_differ",
       [this] {
         return InRun([] {
           const int id = GetReplicaContext()->replica_id_in_sync_group();
           return CreateVariable(
                      {.name = absl::StrCat("v", id), .initial_value = Tensor::Scalar<float>(1)})
               .status();
         });
       }},
  };
}

std::map<std::string, Misuse::Call> Misuse::ValueCalls() {
  return {
      {"per_replica_to_tensor", [this] { return values_.ToTensor().status(); }},
      {"per_replica_to_tensor_in_scope",
       [this] { return Inside(*one_, [this] { return values_.ToTensor().status(); }); }},
      {"per_replica_to_tensor_in_run",
       [this] { return InRun([this] { return values_.ToTensor().status(); }); }},
      // A cast or an addition first needs a tensor.
      {"per_replica_cast_in_scope",
       [this] { return Inside(*one_, [this] { return values_.ToTensor().status(); }); }},
      {"per_replica_plus_number_in_scope",
       [this] { return Inside(*one_, [this] { return values_.ToTensor().status(); }); }},
      {"per_replica_identity_in_scope",
       [this] {
         return Inside(*one_, [this] {
           const Value copy = values_;
           return copy.is_distributed() ? absl::OkStatus() : absl::UnknownError("changed");
         });
       }},
  };
}

std::map<std::string, Misuse::Call> Misuse::DeviceCalls() {
  const auto create = [](std::vector<std::string> devices) {
    return [devices] { return MirroredStrategy::Create(devices).status(); };
  };
  return {
      {"duplicate_devices", create({"CPU:0", "CPU:0"})},
      {"remote_device_list", create({"/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"})},
      {"local_and_remote_devices", create({"/cpu:0", "/job:worker/task:1/cpu:0"})},
  };
}

// Records that C++ cannot express, or that have nothing to refuse.
const std::map<std::string, std::string>& NotApplicable() {
  static const auto* const reasons = new std::map<std::string, std::string>{
      {"args_not_a_list", "arguments are a span of values by type"},
      {"args_tensor", "arguments are a span of values by type"},
      {"merge_call_in_lifted_function", "there are no graph functions"},
      {"merge_call_in_nested_function", "there are no graph functions"},
      {"merge_call_in_nested_function_eager", "there are no graph functions"},
      {"merge_call_in_loop", "there are no graph functions"},
      {"variable_scope_left_open", "TensorFlow 1's variable scopes are not carried over"},
      {"copy_strategy", "refused by the type (static_assert above)"},
      {"deepcopy_strategy", "strategies are not copied in any way"},
      {"default_worker_devices", "the default strategy's device is cpu:0"},
  };
  return *reasons;
}

TEST(ContextsGolden, MisuseIsRefused) {
  Misuse misuse;
  std::map<std::string, Misuse::Call> calls = misuse.CrossReplicaCalls();
  calls.merge(misuse.ScopeCalls());
  calls.merge(misuse.ReplicaCalls());
  calls.merge(misuse.ValueCalls());
  calls.merge(misuse.DeviceCalls());
  ForEachGolden("contexts.json", "misuse", [&](const json& record) {
    SCOPED_TRACE(record.dump());
    const std::string call = record.at("call");
    if (NotApplicable().count(call)) return;
    if (calls.count(call) == 0) throw UnknownRecord("no call '" + call + "'");
    const absl::Status status = calls.at(call)();
    if (record.contains("error")) {
      EXPECT_TRUE(RefusedAs(status, record));
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
  });
}

}  // namespace
}  // namespace cairn::test
