// Every public call of the strategies' headers with every kind of wrong argument (null variables
// and functions, functions that throw, unusable values, other numbers of replicas) at every kind of
// wrong place (scopes, replica functions, other threads, other strategies, after the strategy's
// destruction): each call returns an absl::Status, and the process continues.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/child_cases.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/conditional_accumulator.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/parameter_server_strategy.h"
#include "worker/strategy/registry.h"
#include "worker/strategy/sharded_variable.h"
#include "worker/strategy/variable_lookup.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

enum class FunctionKind { kGood, kNull, kThrows };
using MadeStrategy = std::shared_ptr<Strategy>;

// Arguments of a call.
struct Inputs {
  std::string name;
  Value value = Tensor::Vector<float>({1, 2});
  bool null_variable = false;
  FunctionKind function = FunctionKind::kGood;
  // What the inputs break: a call that uses a broken argument must fail.
  bool wrong_variable = false;
  bool wrong_function = false;
};

// One strategy and the objects that it made.
struct World {
  MadeStrategy strategy;
  VariablePtr variable;  // ON_WRITE, mean, float32 [2]
  VariablePtr on_read;   // ON_READ, sum
  std::unique_ptr<VariableOptimizer> optimizer;
  std::shared_ptr<ReplicaContext> kept;  // of a finished Run
};

VariablePtr Made(Strategy& strategy, const std::string& name,
                 VariableSynchronization synchronization, VariableAggregation aggregation) {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name,
                         .initial_value = Tensor::Vector<float>({1, 2}),
                         .synchronization = synchronization,
                         .aggregation = aggregation})
      .value();
}

// The variables' server of this process, which is a child: strategies that are made one after the
// other find the same variables.
std::shared_ptr<VariableHost> OwnHostOfVariables() {
  static EngineCluster servers(1, Durability::kOff);
  static const std::shared_ptr<PsClient> client =
      servers
          .Connect({.job = "job", .worker = 0, .task = "worker:0"}, /*in_process=*/true,
                   Deadline::In(absl::Seconds(30)))
          .value();
  return HostOnServers(client);
}

MadeStrategy MakeStrategy(const std::string& kind) {
  const std::vector<Device> devices = {Cpu(0), Cpu(1)};
  if (kind == "default") return {&GetStrategy(), [](Strategy*) {}};
  if (kind == "one_device") return std::make_shared<OneDeviceStrategy>(Cpu(0));
  if (kind == "central_storage") return CentralStorageStrategy::Create(devices).value();
  if (kind == "parameter_server") {
    return ParameterServerStrategy::Create(ClusterOf(1, 1), OwnHostOfVariables(),
                                           {.worker_devices = devices})
        .value();
  }
  if (kind == "multi_worker_mirrored") {
    static const auto server = ControlServer::Start(OwnAddress()).value();
    return MultiWorkerMirroredStrategy::Create({.workers = {NobodysAddress()},
                                                .devices = devices,
                                                .rendezvous_address = server->address()})
        .value();
  }
  return MirroredStrategy::Create(devices).value();
}

World MakeWorld(const std::string& kind) {
  World world;
  world.strategy = MakeStrategy(kind);
  world.variable =
      Made(*world.strategy, "v", VariableSynchronization::kAuto, VariableAggregation::kMean);
  const bool copies = kind == "mirrored" || kind == "multi_worker_mirrored";
  world.on_read = Made(*world.strategy, "on_read",
                       copies ? VariableSynchronization::kOnRead : VariableSynchronization::kAuto,
                       VariableAggregation::kSum);
  world.optimizer = VariableOptimizer::Create({.type = "adam"}).value();
  (void)world.optimizer->Build({world.variable});
  // One of the replicas, which run in threads of their own.
  (void)world.strategy->Run([&world] {
    auto context = GetReplicaContext();
    if (context->local_replica() == 0) world.kept = std::move(context);
  });
  return world;
}

struct Call {
  std::string name;
  std::function<absl::Status(World&, const Inputs&)> run;
  bool uses_variable = false;
  bool uses_function = false;
  bool on_strategy = false;  // must not be called after the strategy's destruction
};

template <typename Signature>
auto Function(const Inputs& inputs) {
  using Fn = std::function<Signature>;
  if (inputs.function == FunctionKind::kNull) return Fn();
  const bool throws = inputs.function == FunctionKind::kThrows;
  return Fn([throws](auto&&...) {
    if (throws) throw std::runtime_error("boom");
    return Value(1);
  });
}
auto ReplicaFunction(const Inputs& inputs) {
  return Function<absl::StatusOr<Value>(absl::Span<const Value>)>(inputs);
}
std::function<absl::StatusOr<Tensor>()> Initializer(const Inputs& inputs) {
  if (inputs.function == FunctionKind::kNull) return nullptr;
  return [throws = inputs.function == FunctionKind::kThrows]() -> absl::StatusOr<Tensor> {
    if (throws) throw std::runtime_error("boom");
    return Tensor::Vector<float>({1, 2});
  };
}

// The input's variable, or a valid one.
VariablePtr Own(const World& world, const Inputs& inputs) {
  return inputs.null_variable ? nullptr : world.variable;
}
Value Given(const World& world, const Inputs& inputs) {
  return inputs.null_variable
             ? Value(VariablePtr())
             : (inputs.name == "a variable" ? Value(world.variable) : inputs.value);
}
IndexedSlices SlicesOf(const Inputs& inputs) {
  if (inputs.value.kind() == Value::Kind::kSlices) return inputs.value.slices();
  return {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({1})};
}

#define CALL(text) [](World& w, const Inputs& in) -> absl::Status { return text; }
#define VALUE(text) [](World& w, const Inputs& in) -> absl::Status { return (text).status(); }

std::vector<Call> StrategyCalls() {
  return {
      {"EnterScope", VALUE(w.strategy->EnterScope()), false, false, true},
      {"Run", VALUE(w.strategy->Run(ReplicaFunction(in), {Given(w, in)})), false, true, true},
      {"Reduce", VALUE(w.strategy->Reduce(ReduceOp::kSum, Given(w, in), {})), true, false, true},
      {"Reduce", VALUE(w.strategy->Reduce(ReduceOp::kMean, Given(w, in), Axes({0}))), true, false,
       true},
      {"Gather", VALUE(w.strategy->Gather(Given(w, in), 0)), true, false, true},
      {"LocalResults", VALUE(w.strategy->LocalResults(Given(w, in))), true, false, true},
      {"DistributeValuesFromFunction",
       VALUE(w.strategy->DistributeValuesFromFunction(
           Function<absl::StatusOr<Value>(const ValueContext&)>(in))),
       false, true, true},
      {"DistributeDataset", VALUE(w.strategy->DistributeDataset(Dataset::FromNode(nullptr))), false,
       false, true},
      {"DistributeDatasetsFromFunction",
       [](World& w, const Inputs& in) {
         DatasetInputFunction function;
         if (in.function != FunctionKind::kNull) {
           function = [&in](const InputContext&) -> absl::StatusOr<Dataset> {
             if (in.function == FunctionKind::kThrows) throw std::runtime_error("boom");
             return Dataset::Range(4).Batch(2);
           };
         }
         return w.strategy->DistributeDatasetsFromFunction(function).status();
       },
       false, true, true},
      {"ReduceTo", VALUE(w.strategy->ReduceTo(ReduceOp::kSum, Given(w, in), Cpu(0))), true, false,
       true},
      {"ReduceTo", VALUE(w.strategy->ReduceTo(ReduceOp::kSum, 1.0, Destinations(Given(w, in)))),
       true, false, true},
      {"BatchReduceTo",
       [](World& w, const Inputs& in) {
         const std::vector<std::pair<Value, Destinations>> pairs = {{Given(w, in), Cpu(0)}};
         return w.strategy->BatchReduceTo(ReduceOp::kMean, pairs).status();
       },
       true, false, true},
      {"BroadcastTo", VALUE(w.strategy->BroadcastTo(Given(w, in), Cpu(0))), true, false, true},
      {"Update",
       VALUE(w.strategy->Update(
           Own(w, in),
           Function<absl::StatusOr<Value>(const VariablePtr&, absl::Span<const Value>)>(in),
           {Given(w, in)})),
       true, true, true},
      {"UpdateNonSlot", VALUE(w.strategy->UpdateNonSlot({{Cpu(0)}}, ReplicaFunction(in))), false,
       true, true},
      {"UpdateNonSlot",
       [](World& w, const Inputs& in) {
         const auto use = [&](absl::Span<const Value> args) {
           absl::Status status = w.on_read->Read().status();
           status.Update(w.variable->AssignAdd(args[0]));
           return status;
         };
         return w.strategy->UpdateNonSlot({{Cpu(0), Cpu(1), Cpu(2)}}, use, {Given(w, in)}).status();
       },
       true, false, true},
      {"CreateVariableBeside",
       VALUE(w.strategy->CreateVariableBeside(
           Own(w, in), {.name = "b", .initial_value = Tensor::Vector<float>({1})})),
       true, false, true},
      {"CheckCrossReplica", CALL(w.strategy->CheckCrossReplica("a test")), false, false, true},
      {"SetStrategy",
       [](World& w, const Inputs&) {
         const absl::Status set = SetStrategy(w.strategy.get());
         (void)SetStrategy(nullptr);
         return set;
       },
       false, false, true},
  };
}

// Calls of one kind of strategy, and of its variables.
std::vector<Call> KindCalls() {
  return {
      {"ApplyGradients",
       [](World& w, const Inputs& in) {
         auto* const served = dynamic_cast<ParameterServerStrategy*>(w.strategy.get());
         if (served == nullptr) return absl::UnimplementedError("has no servers");
         return served->ApplyGradients({{Own(w, in), Given(w, in)}});
       },
       true, false, true},
      {"Barrier",
       [](World& w, const Inputs&) {
         auto* const joint = dynamic_cast<MultiWorkerMirroredStrategy*>(w.strategy.get());
         return joint == nullptr ? absl::UnimplementedError("has no workers") : joint->Barrier();
       },
       false, false, true},
      {"VariableCreatedInScope",
       CALL(w.strategy->VariableCreatedInScope(Own(w, in)) ? absl::OkStatus()
                                                           : absl::NotFoundError("of another")),
       true, false, true},
      {"ServerOf", VALUE(ServerOf(Own(w, in))), true},
  };
}

std::vector<Call> VariableCalls() {
  return {
      {"CreateVariable", VALUE(CreateVariable({.name = "n", .initializer = Initializer(in)})),
       false, true},
      {"CreateVariable",
       [](World&, const Inputs& in) {
         VariableCreatorScope::Creator creator;
         if (in.function != FunctionKind::kNull) {
           creator = [&in](const VariableCreatorScope::Next& next, const VariableOptions& options) {
             if (in.function == FunctionKind::kThrows) throw std::runtime_error("boom");
             return next(options);
           };
         }
         const VariableCreatorScope scope(creator);
         return CreateVariable({.name = "c", .initial_value = Tensor::Vector<float>({1})}).status();
       },
       false, true},
      {"CheckVariable", CALL(CheckVariable("a test", Own(w, in))), true},
      {"CheckUsable", CALL(w.variable->CheckUsable())},
      {"Read", VALUE(w.variable->Read())},
      {"Read", VALUE(w.on_read->Read())},
      {"ReadRows", VALUE(w.variable->ReadRows({{0, -1, 7}}))},
      {"Write", CALL(w.variable->Write(AssignOp::kAdd, Given(w, in))), true},
      {"Write", CALL(w.on_read->Write(AssignOp::kAssign, Given(w, in))), true},
      {"Assign", CALL(w.variable->Assign(Given(w, in))), true},
      {"AssignAdd", CALL(w.variable->AssignAdd(Given(w, in))), true},
      {"AssignSub", CALL(w.variable->AssignSub(Given(w, in))), true},
      {"Scatter", CALL(w.variable->Scatter(ScatterOp::kAdd, SlicesOf(in)))},
      {"Scatter", CALL(w.on_read->Scatter(ScatterOp::kUpdate, SlicesOf(in)))},
      {"Create", VALUE(ShardedVariable::Create("s", {Own(w, in), w.variable})), true},
      {"Create", VALUE(ShardedVariable::Create("s", {}))},
      {"EmbeddingLookup", VALUE(EmbeddingLookup(*w.variable, {{0, 5}}))},
      {"EmbeddingLookupSparse", VALUE(EmbeddingLookupSparse(*w.variable, {}, {}))},
      {"Devices", VALUE(Destinations(Given(w, in)).Devices()), true},
      {"ToTensor", VALUE(Given(w, in).ToTensor()), true},
      {"OutsideEveryScope",
       [](World&, const Inputs& in) {
         return CatchExceptions("a test", [&in] {
           return OutsideEveryScope([&in]() -> absl::Status {
             if (in.function != FunctionKind::kGood) throw std::runtime_error("boom");
             return absl::OkStatus();
           });
         });
       },
       false, true},
  };
}

std::vector<Call> ContextCalls() {
  return {
      {"MergeCall",
       VALUE(GetReplicaContext() == nullptr
                 ? absl::StatusOr<Value>(absl::FailedPreconditionError("no context"))
                 : GetReplicaContext()->MergeCall(
                       Function<absl::StatusOr<Value>(Strategy&, absl::Span<const Value>)>(in),
                       {Given(w, in)})),
       false, true},
      {"MergeCall",
       VALUE(w.kept->MergeCall(
           Function<absl::StatusOr<Value>(Strategy&, absl::Span<const Value>)>(in), {})),
       false, true},
      {"AllReduce", VALUE(w.kept->AllReduce(ReduceOp::kSum, Given(w, in))), true},
      {"AllReduce",
       VALUE(GetReplicaContext() == nullptr
                 ? absl::StatusOr<Value>(absl::FailedPreconditionError("no context"))
                 : GetReplicaContext()->AllReduce(ReduceOp::kMean, Given(w, in),
                                                  {.timeout = absl::Seconds(20)})),
       true},
      {"AllReduceGradient", VALUE(w.kept->AllReduceGradient(ReduceOp::kSum, Given(w, in))), true},
      {"AllGather", VALUE(w.kept->AllGather(Given(w, in), 0)), true},
      {"AllGather",
       VALUE(GetReplicaContext() == nullptr
                 ? absl::StatusOr<Value>(absl::FailedPreconditionError("no context"))
                 : GetReplicaContext()->AllGather(Given(w, in), 5)),
       true},
      {"AllGatherGradient", VALUE(w.kept->AllGatherGradient(Given(w, in), 3, -1)), true},
      {"Build", CALL(w.optimizer->Build({Own(w, in)})), true},
      {"ApplyGradients", CALL(w.optimizer->ApplyGradients({{Given(w, in), Own(w, in)}})), true},
      {"iterations", VALUE(w.optimizer->iterations())},
      {"learning_rate", VALUE(w.optimizer->learning_rate())},
  };
}

std::vector<Inputs> AllInputs() {
  const Tensor text = Tensor::Texts({1}, {"a"});
  return {
      {.name = "good inputs"},
      {.name = "a null variable", .null_variable = true, .wrong_variable = true},
      {.name = "no function", .function = FunctionKind::kNull, .wrong_function = true},
      {.name = "a throwing function", .function = FunctionKind::kThrows, .wrong_function = true},
      {.name = "a variable"},
      {.name = "none", .value = Value()},
      {.name = "a text", .value = "text"},
      {.name = "a tensor of texts", .value = text},
      {.name = "an empty tensor", .value = Tensor()},
      {.name = "a host number", .value = 3},
      {.name = "an empty list", .value = Value::List({})},
      {.name = "a list of null variables", .value = Value::List({VariablePtr()})},
      {.name = "an empty PerReplica", .value = Value::PerReplica({})},
      {.name = "an empty Mirrored", .value = Value::Mirrored({})},
      {.name = "a PerReplica of three", .value = Value::PerReplica({1.0, 2.0, 3.0})},
      {.name = "a PerReplica of two kinds", .value = Value::PerReplica({1.0, "text"})},
      {.name = "slices of nothing", .value = IndexedSlices()},
      {.name = "slices outside",
       .value = IndexedSlices{Tensor::Vector<int64_t>({-1, 9}), Tensor::Vector<float>({1, 2})}},
  };
}

// The place of a call.
using Place = std::function<absl::Status(World&, const std::function<absl::Status()>&)>;
std::map<std::string, Place> Places() {
  using Fn = std::function<absl::Status()>;
  return {
      {"outside every scope", [](World&, const Fn& call) { return call(); }},
      {"in a scope",
       [](World& w, const Fn& call) {
         const Scope scope = w.strategy->EnterScope().value();
         return call();
       }},
      {"in a replica function",
       [](World& w, const Fn& call) {
         return w.strategy->Run([&call] { return call(); }).status();
       }},
      {"in a merge call",
       [](World& w, const Fn& call) {
         return w.strategy
             ->Run([&call] {
               return GetReplicaContext()->MergeCall(
                   [&call](Strategy&, absl::Span<const Value>) { return call(); });
             })
             .status();
       }},
      {"in an update",
       [](World& w, const Fn& call) {
         return w.strategy
             ->Update(w.variable,
                      [&call](const VariablePtr&, absl::Span<const Value>) { return call(); })
             .status();
       }},
      {"in another thread",
       [](World& w, const Fn& call) {
         const Scope scope = w.strategy->EnterScope().value();
         absl::Status result;
         std::thread([&] { result = call(); }).join();
         return result;
       }},
      {"in another strategy's scope",
       [](World&, const Fn& call) {
         const MadeStrategy other = MirroredStrategy::Create({Cpu(0)}).value();
         const Scope scope = other->EnterScope().value();
         return call();
       }},
  };
}

// The error in a call's result; empty: none.
std::string Judge(const Call& call, const Inputs& inputs, const absl::Status& status) {
  const bool must_fail = (call.uses_variable && inputs.wrong_variable) ||
                         (call.uses_function && inputs.wrong_function);
  if (must_fail && status.ok()) return "it returned OK";
  if (!status.ok() && status.message().empty()) return "its error has no message";
  return "";
}

std::vector<Call> AllCalls() {
  std::vector<Call> all = StrategyCalls();
  for (const std::vector<Call>& more : {KindCalls(), VariableCalls(), ContextCalls()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class EveryEntryPoint : public ::testing::TestWithParam<std::string> {
 protected:
  // The children make their files here, and end without removing them.
  void SetUp() override { ::setenv("TEST_TMPDIR", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("TEST_TMPDIR"); }

 private:
  const TempDir folder_;
};
// The default strategy is never destroyed.
class EveryEntryPointLater : public EveryEntryPoint {};

TEST_P(EveryEntryPoint, ReturnsAStatusForAnyArgumentAtAnyPlace) {
  std::vector<ChildCase> cases;
  for (const auto& [place, in_place] : Places()) {
    // Each of its cases connects a group; in the other places the calls are those of its base
    // class, MirroredStrategy.
    if (GetParam() == "multi_worker_mirrored" && place != "outside every scope" &&
        place != "in a replica function" && place != "in a merge call") {
      continue;
    }
    for (const Call& call : AllCalls()) {
      for (const Inputs& inputs : AllInputs()) {
        cases.push_back({absl::StrCat(call.name, " with ", inputs.name, " ", place),
                         [call, inputs, in_place = in_place] {
                           World world = MakeWorld(GetParam());
                           const absl::Status status =
                               in_place(world, [&] { return call.run(world, inputs); });
                           std::string wrong = Judge(call, inputs, status);
                           // The strategy is as usable as before.
                           const absl::Status after = world.strategy->Run([] {}).status();
                           if (wrong.empty() && !after.ok())
                             wrong = absl::StrCat("then: ", after.message());
                           if (wrong.empty() && HasStrategy())
                             wrong = "the thread is left in a scope";
                           return wrong;
                         }});
      }
    }
  }
  RunInChildren(cases);
}

// Objects outlive the strategy that made them: calls that need the strategy fail, the others work.
TEST_P(EveryEntryPointLater, ReturnsAStatusAfterTheStrategyIsDestroyed) {
  std::vector<ChildCase> cases;
  for (const bool in_scope : {false, true}) {
    for (const Call& call : AllCalls()) {
      if (call.on_strategy) continue;
      for (const Inputs& inputs : AllInputs()) {
        cases.push_back({absl::StrCat(call.name, " with ", inputs.name, " after the strategy's end",
                                      in_scope ? " in its scope" : ""),
                         [call, inputs, in_scope] {
                           World world = MakeWorld(GetParam());
                           std::optional<Scope> scope;
                           if (in_scope) scope.emplace(world.strategy->EnterScope().value());
                           world.strategy = nullptr;
                           return Judge(call, inputs, call.run(world, inputs));
                         }});
      }
    }
  }
  RunInChildren(cases);
}

const auto kMadeStrategies = ::testing::Values("mirrored", "central_storage", "one_device",
                                               "multi_worker_mirrored", "parameter_server");
INSTANTIATE_TEST_SUITE_P(Default, EveryEntryPoint, ::testing::Values("default"));
INSTANTIATE_TEST_SUITE_P(Strategies, EveryEntryPoint, kMadeStrategies,
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Strategies, EveryEntryPointLater, kMadeStrategies,
                         [](const auto& info) { return info.param; });

// The functions of a header of worker/strategy that return a status.
std::vector<std::string> MethodsOf(const std::string& header) {
  std::ifstream file(absl::StrCat(std::getenv("CAIRN_SOURCE_ROOT"), "/worker/strategy/", header));
  EXPECT_TRUE(file.is_open()) << header;
  std::stringstream text;
  text << file.rdbuf();
  const std::string code = std::regex_replace(text.str(), std::regex("//[^\n]*"), "");
  const std::regex method(R"(absl::Status(?:Or<[^;{}()]*>)?\s+(\w+)\()");
  std::vector<std::string> methods;
  for (std::sregex_iterator at(code.begin(), code.end(), method), end; at != end; ++at) {
    methods.push_back((*at)[1]);
  }
  EXPECT_FALSE(methods.empty()) << header;
  return methods;
}

// A new method of these headers must be added to the table above, or here with the reason.
TEST(EntryPoints, OfTheHeadersAreAllInTheTable) {
  std::set<std::string> covered = {
      "Exit",          // scopes: context_use_test.cc
      "MakeVariable",  // for strategies: CreateVariable calls it
      "FirstValue",
      "ReduceAll",
      "ReduceOnto",
      "ReducePlain",
      "BroadcastFirst",
      "GatherAll",
      "CheckComponents",
      "Components",
      "OwnComponents",
      "ReduceAxes",
      "RunReplicas",
      "RunOne",
      "UpdateCopies",
      "UpdateTogether",
      "CheckDeviceCounts",
      "CheckCall",
      "OnGpus",
      "FirstSlices",
      "SumOverWorkers",
      "SumSlices",
      "AnyHasData",
      "CountShards",
      "Place",
      "TakeName",
      "MakeHosted",
      "PushSum",  // private, or for strategies
      "CheckDevices",
      "CheckReplicated",  // of Create: Devices tests in context_use_test.cc
      "CheckCurrent",
      "Call",  // private; of ValueFunction
      "Regroup",
      "RegroupAsPerReplica",
      "WithLeaves",
      "SelectReplica",
      "SelectReplicas",
      "EachReplica",
      "SameVariables",
      "CheckAlike",  // on values, which other calls use
      "VariableOn",
      "TensorFor",
      "CheckRows",
      "RowNumbers",
      "Change",  // building blocks of variables
      "ApplyMerged",
      "Collect",
      "Clip",
      "BuildLocked",
      "UpdateLocked",
      "IterationsLocked",
      "WriteAll",
      "CheckDiv",
      "SparseRead",
      "At",
      "MergeCallFor",
      "Together",
  };
  for (const Call& call : AllCalls()) covered.insert(call.name);
  for (const char* header : {"strategy.h", "context.h", "variable.h", "value.h", "plain_variable.h",
                             "variable_optimizer.h", "sharded_variable.h", "variable_lookup.h",
                             "multi_worker_mirrored_strategy.h", "parameter_server_strategy.h"}) {
    for (const std::string& method : MethodsOf(header)) {
      EXPECT_TRUE(covered.contains(method)) << header << ": " << method << " is in no table";
    }
  }
}

}  // namespace
}  // namespace cairn::test
