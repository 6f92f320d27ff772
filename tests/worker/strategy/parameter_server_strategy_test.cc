// ParameterServerStrategy on real servers: conformance cases, atomic updates, and refusals.
#include "worker/strategy/parameter_server_strategy.h"

#include <memory>
#include <numeric>
#include <thread>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/strategy/per_worker_variable.h"
#include "worker/strategy/sharded_variable.h"
#include "worker/strategy/variable_lookup.h"
#include "worker/strategy/variable_optimizer.h"
#include "worker/strategy/worker_scope.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class PsStrategyTest : public ::testing::Test {
 protected:
  void Start(int32_t servers, ParameterServerOptions options = {}) {
    server_count_ = servers;
    servers_ = std::make_unique<EngineCluster>(servers, Durability::kOff);
    strategy_ = Connect(0, std::move(options));
  }
  std::unique_ptr<ParameterServerStrategy> Connect(int32_t worker,
                                                   ParameterServerOptions options = {}) {
    return ConnectStrategy(*servers_, server_count_, "job", worker, 2, std::move(options));
  }
  absl::StatusOr<VariablePtr> Make(const VariableOptions& options) {
    const Scope scope = strategy_->EnterScope().value();
    return CreateVariable(options);
  }
  VariablePtr Counting(const std::string& name, const Shape& shape) {
    Tensor tensor = Tensor::Uninitialized(DType::kFloat32, shape);
    std::iota(tensor.mutable_values<float>().begin(), tensor.mutable_values<float>().end(), 0.0F);
    return Make({.name = name, .initial_value = tensor}).value();
  }
  static std::vector<float> Numbers(const VariablePtr& variable) {
    const Tensor tensor = variable->Read().value();
    return {tensor.values<float>().begin(), tensor.values<float>().end()};
  }

  int32_t server_count_ = 0;
  std::unique_ptr<EngineCluster> servers_;
  std::unique_ptr<ParameterServerStrategy> strategy_;
};

ParameterServerOptions Fixed(int64_t shards) {
  return {.variable_partitioner = PartitionBy(FixedShardsPartitioner(shards).value())};
}

const ShardedVariable& Sharded(const VariablePtr& variable) {
  return dynamic_cast<const ShardedVariable&>(*variable);
}

std::vector<int32_t> ServersOf(const VariablePtr& variable) {
  std::vector<int32_t> servers;
  for (const VariablePtr& shard : Sharded(variable).shards()) {
    servers.push_back(ServerOf(shard).value());
  }
  return servers;
}

TEST_F(PsStrategyTest, E5_VariablesArePlacedOnServersRoundRobin) {
  Start(3);
  const VariablePtr outside =
      CreateVariable({.name = "o", .initial_value = Tensor::Scalar<float>(0)}).value();
  EXPECT_FALSE(ServerOf(outside).ok());
  std::vector<int32_t> servers;
  for (const char* name : {"a", "b", "c", "d"}) {
    servers.push_back(ServerOf(Counting(name, {2})).value());
  }
  EXPECT_THAT(servers, ElementsAre(0, 1, 2, 0));
}

TEST(Partitioners, E8_ShardsOfEachPartitioner) {
  const auto parts = [](absl::StatusOr<std::unique_ptr<Partitioner>> partitioner,
                        const Shape& shape) {
    return (*partitioner)->Partition(shape, DType::kFloat32).value();
  };
  EXPECT_THAT(parts(FixedShardsPartitioner(2), {10, 3}), ElementsAre(2, 1));
  EXPECT_THAT(parts(MinSizePartitioner(4, 2), {6, 1}), ElementsAre(2, 1));
  EXPECT_THAT(parts(MinSizePartitioner(4, 10), {6, 1}), ElementsAre(6, 1));
  EXPECT_THAT(parts(MaxSizePartitioner(4), {6, 1}), ElementsAre(6, 1));
  EXPECT_THAT(parts(MaxSizePartitioner(4, 2), {6, 1}), ElementsAre(2, 1));
  EXPECT_THAT(parts(MaxSizePartitioner(1024), {6, 1}), ElementsAre(1, 1));
}

TEST_F(PsStrategyTest, E11_RowsAreDistributedOverServers) {
  Start(2, Fixed(2));
  const VariablePtr a = Counting("a", {5, 2});
  const VariablePtr b = Counting("b", {6, 1});
  EXPECT_THAT(Sharded(a).first_rows(), ElementsAre(0, 3, 5));
  EXPECT_THAT(Sharded(b).first_rows(), ElementsAre(0, 3, 6));
  EXPECT_THAT(ServersOf(a), ElementsAre(0, 1));
  EXPECT_THAT(ServersOf(b), ElementsAre(0, 1));
  EXPECT_THAT(Numbers(Sharded(a).shards()[1]), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(Numbers(b), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(PsStrategyTest, E12_InitialValuesAreDividedOnceAndNoShardIsEmpty) {
  Start(2, Fixed(4));
  int calls = 0;
  const VariablePtr ten = Make({.name = "ten",
                                .initializer = [&calls]() -> absl::StatusOr<Tensor> {
                                  ++calls;
                                  Tensor tensor = Tensor::Uninitialized(DType::kFloat32, {10});
                                  std::iota(tensor.mutable_values<float>().begin(),
                                            tensor.mutable_values<float>().end(), 0.0F);
                                  return tensor;
                                }})
                              .value();
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(Numbers(Sharded(ten).shards()[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(Numbers(Sharded(ten).shards()[3]), ElementsAre(8, 9));
  EXPECT_THAT(ServersOf(ten), ElementsAre(0, 1, 0, 1));
  const VariablePtr three = Counting("three", {3});
  EXPECT_THAT(ServersOf(three), ElementsAre(0, 1, 0));
}

TEST_F(PsStrategyTest, E13_SmallVariablesStayWhole) {
  Start(2, {.variable_partitioner = PartitionBy(MinSizePartitioner(64 << 20, 2).value())});
  EXPECT_EQ(ServerOf(Counting("a", {10, 2})).value(), 0);
  EXPECT_EQ(ServerOf(Counting("b", {10})).value(), 1);
}

TEST_F(PsStrategyTest, E13_AVariableBesideAnotherIsOnItsServerAndWhole) {
  Start(2, Fixed(2));
  const VariablePtr v = Counting("v", {4});
  const Scope scope = strategy_->EnterScope().value();
  const VariablePtr v2 =
      strategy_
          ->CreateVariableBeside(
              Sharded(v).shards()[0],
              {.name = "v2", .initial_value = Tensor::Zeros(DType::kFloat32, {4})})
          .value();
  EXPECT_EQ(ServerOf(v2).value(), 0);
}

TEST_F(PsStrategyTest, E13_PartitionersThatDivideOtherAxesAreRefused) {
  for (const std::vector<int64_t>& parts :
       {std::vector<int64_t>{}, std::vector<int64_t>{0, 1, 1}, std::vector<int64_t>{2, 2, 1}}) {
    Start(2, {.variable_partitioner = [parts](absl::Span<const int64_t>, DType) { return parts; }});
    EXPECT_THAT(Make({.name = "v", .initial_value = Tensor::Zeros(DType::kFloat32, {4, 4, 4})}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("variable_partitioner")));
  }
}

// The case uses TensorFlow's first strategy (between-graph); here every worker has its own strategy
// and client, and the first worker provides the initial values.
TEST_F(PsStrategyTest, E20_WorkersWithSeveralReplicasAddToTheSameVariables) {
  const ParameterServerOptions two = {.worker_devices = {Cpu(0), Cpu(1)}};
  Start(2, two);
  std::vector<std::unique_ptr<ParameterServerStrategy>> strategies;
  strategies.push_back(std::move(strategy_));
  strategies.push_back(Connect(1, two));
  std::vector<std::vector<VariablePtr>> variables;
  for (const auto& strategy : strategies) {
    const Scope scope = strategy->EnterScope().value();
    const auto number = [](const char* name, float value, VariableAggregation aggregation) {
      return VariableOptions{
          .name = name, .initial_value = Tensor::Scalar<float>(value), .aggregation = aggregation};
    };
    const VariablePtr n = CreateVariable(number("n", 1, VariableAggregation::kSum)).value();
    const VariablePtr x = CreateVariable(number("x", 10, VariableAggregation::kSum)).value();
    const VariablePtr y =
        strategy->CreateVariableBeside(x, number("y", 20, VariableAggregation::kSum)).value();
    const VariablePtr z =
        CreateVariable(number("z", 30, VariableAggregation::kOnlyFirstReplica)).value();
    variables.push_back({x, y, z});
    std::vector<int32_t> servers;
    for (const VariablePtr& variable : {n, x, y, z}) servers.push_back(ServerOf(variable).value());
    EXPECT_THAT(servers, ElementsAre(0, 1, 1, 0));
  }
  std::vector<std::thread> workers;
  for (size_t w = 0; w < strategies.size(); ++w) {
    workers.emplace_back([&, w] {
      EXPECT_OK(strategies[w]->Run([&, w](absl::Span<const Value>) -> absl::StatusOr<Value> {
        for (const VariablePtr& variable : variables[w]) {
          const absl::Status added = variable->AssignAdd(Tensor::Scalar<float>(1));
          if (!added.ok()) return added;
        }
        return Value();
      }));
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::vector<float> read;
  for (const VariablePtr& variable : variables[0]) read.push_back(Numbers(variable)[0]);
  EXPECT_THAT(read, ElementsAre(10 + 2 * 2, 20 + 2 * 2, 30 + 2));
}

// 4 threads of 2 workers, each with its own client; no addition is lost. Also for integers.
TEST_F(PsStrategyTest, NoAdditionOfSeveralWorkersIsLost) {
  Start(2, Fixed(2));
  const auto other = Connect(1, Fixed(2));
  std::vector<VariablePtr> floats;
  std::vector<VariablePtr> integers;
  for (ParameterServerStrategy* strategy : {strategy_.get(), other.get()}) {
    const Scope scope = strategy->EnterScope().value();
    floats.push_back(
        CreateVariable({.name = "f", .initial_value = Tensor::Zeros(DType::kFloat32, {4})})
            .value());
    integers.push_back(
        CreateVariable({.name = "i", .initial_value = Tensor::Scalar<int64_t>(7)}).value());
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        EXPECT_OK(floats[t % 2]->AssignAdd(Tensor::Full(DType::kFloat32, {4}, 1)));
        EXPECT_OK(integers[t % 2]->AssignSub(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Numbers(floats[0]), ElementsAre(100, 100, 100, 100));
  EXPECT_THAT(integers[1]->Read()->values<int64_t>(), ElementsAre(7 - 100));
}

TEST_F(PsStrategyTest, IntegersAreExactBelow2To53AndRefusedBeyond) {
  Start(1);
  const int64_t largest = (int64_t{1} << 53) - 1;
  const VariablePtr v =
      Make({.name = "v", .initial_value = Tensor::Scalar<int64_t>(largest)}).value();
  EXPECT_THAT(v->Read()->values<int64_t>(), ElementsAre(largest));
  EXPECT_THAT(v->Assign(Tensor::Scalar<int64_t>(largest + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53")));
  ASSERT_OK(v->AssignAdd(1));
  EXPECT_THAT(v->Read(), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("int64")));
}

// The variable exists then, but its value was not written.
TEST_F(PsStrategyTest, AVariableWhoseInitialValueWasRefusedIsCreatedAgain) {
  Start(1);
  const auto make = [&](int64_t value) {
    return Make({.name = "v", .initial_value = Tensor::Scalar<int64_t>(value)});
  };
  EXPECT_THAT(make(int64_t{1} << 53),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^53")));
  const absl::StatusOr<VariablePtr> v = make(5);
  ASSERT_OK(v);
  EXPECT_THAT((*v)->Read()->values<int64_t>(), ElementsAre(5));
}

// The process that created the variable ended before it wrote the value: the next one writes it.
// A value that was written is kept.
TEST_F(PsStrategyTest, ANewProgramWritesTheInitialValueThatAnEndedOneHasNot) {
  Start(2, Fixed(2));
  const auto make = [&](int64_t value) {
    return Make({.name = "v", .initial_value = Tensor::Full(DType::kInt64, {4}, value)});
  };
  EXPECT_FALSE(make(int64_t{1} << 53).ok());
  strategy_ = Connect(0, Fixed(2));
  EXPECT_THAT(make(5)->get()->Read()->values<int64_t>(), ElementsAre(5, 5, 5, 5));
  strategy_ = Connect(0, Fixed(2));
  EXPECT_THAT(make(6)->get()->Read()->values<int64_t>(), ElementsAre(5, 5, 5, 5));
}

// Stores of earlier versions do not say which variables were written.
TEST_F(PsStrategyTest, VariablesOfEarlierVersionsKeepTheirValues) {
  Start(1);
  ClientOptions options;
  options.job = "job";
  const auto client =
      servers_->Connect(options, /*in_process=*/true, Deadline::In(absl::Seconds(30))).value();
  VariableSpec spec{.name = "v", .dtype = DType::kFloat32, .shape = {2}};
  spec.optimizer = PlainUpdates();
  spec.touched_rows = TouchedRows::kPushed;
  spec.shards = {{.first_row = 0, .rows = 2, .ps = 0}};
  ASSERT_OK(client->Create({&spec, 1}, Deadline::In(absl::Seconds(30))));
  EXPECT_THAT(Numbers(Counting("v", {2})), ElementsAre(0, 0));
}

TEST_F(PsStrategyTest, ScattersOfTextsAreRefused) {
  Start(1);
  const IndexedSlices texts = {Tensor::Vector<int64_t>({0}), Tensor::Texts({1}, {"a"})};
  EXPECT_THAT(Counting("v", {1})->Scatter(ScatterOp::kUpdate, texts),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found text [1]")));
}

TEST_F(PsStrategyTest, ScattersGoToTheRowsOfEveryShard) {
  Start(2, Fixed(2));
  const VariablePtr v = Counting("v", {5, 1});
  ASSERT_OK(v->Scatter(ScatterOp::kAdd, {Tensor::Vector<int64_t>({4, 0, 4}),
                                         Tensor::Of<float>({3, 1}, {10, 20, 30})}));
  ASSERT_OK(v->Scatter(ScatterOp::kUpdate, {Tensor::Vector<int64_t>({1, 1, 3}),
                                            Tensor::Of<float>({3, 1}, {-1, -2, -3})}));
  EXPECT_THAT(Numbers(v), ElementsAre(20, -2, 2, -3, 44));
  EXPECT_THAT(
      v->Scatter(ScatterOp::kMul, {Tensor::Vector<int64_t>({0}), Tensor::Of<float>({1, 1}, {2})}),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("scatter_mul")));
  EXPECT_THAT(EmbeddingLookup(*v, {4, 0, 4})->values<float>(), ElementsAre(44, 20, 44));
}

TEST_F(PsStrategyTest, AScatterThatOneReplicaGetsWrongWritesNothing) {
  Start(2, {.variable_partitioner = PartitionBy(FixedShardsPartitioner(2).value()),
            .worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr v = Counting("v", {4});
  for (const VariablePtr& part : {v, Sharded(v).shards()[0]}) {
    EXPECT_FALSE(
        strategy_
            ->Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
              const int64_t row = 4 * GetReplicaContext()->local_replica();
              RETURN_IF_ERROR(part->Scatter(
                  ScatterOp::kAdd, {Tensor::Vector<int64_t>({row}), Tensor::Vector<float>({9})}));
              return Value();
            })
            .ok());
    EXPECT_THAT(Numbers(v), ElementsAre(0, 1, 2, 3));
  }
}

// Both replicas' gradients are one push: momentum receives their sum once.
TEST_F(PsStrategyTest, GradientsOfAllReplicasAreOneUpdateOfTheServersOptimizer) {
  ParameterServerOptions options = {.worker_devices = {Cpu(0), Cpu(1)}};
  options.optimizer.learning_rate = ConstantRate(0.5);
  options.optimizer.arguments["momentum"] = 0.5;
  Start(1, options);
  const VariablePtr v =
      Make({.name = "v", .initial_value = Tensor::Full(DType::kFloat32, {2, 1}, 10)}).value();
  for (int step = 0; step < 2; ++step) {
    ASSERT_OK(strategy_->Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
      const absl::Status pushed =
          strategy_->ApplyGradients({{v, Tensor::Of<float>({2, 1}, {1, 2})}});
      if (!pushed.ok()) return pushed;
      return Value();
    }));
  }
  // m = -1, then -0.5 - 1 (row 0); twice as much in row 1.
  EXPECT_THAT(Numbers(v), ElementsAre(10 - 1 - 1.5, 10 - 2 - 3));
  ASSERT_OK(strategy_->ApplyGradients(
      {{v, IndexedSlices{Tensor::Vector<int64_t>({1}), Tensor::Of<float>({1, 1}, {0})}}}));
  EXPECT_THAT(v->AssignAdd(Tensor::Zeros(DType::kFloat32, {2, 1})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("trainable false")));
}

// Adam moves every row in every update, as in Keras, where rows without a gradient have zero.
TEST_F(PsStrategyTest, SlicesWithoutRowsAreAnUpdate) {
  ParameterServerOptions options = Fixed(2);
  options.optimizer.type = "adam";
  options.optimizer.learning_rate = ConstantRate(0.5);
  Start(2, options);
  const VariablePtr slices = Counting("slices", {4, 1});
  const VariablePtr zeros = Counting("zeros", {4, 1});
  const VariablePtr once = Counting("once", {4, 1});
  const Tensor gradient = Tensor::Of<float>({4, 1}, {1, 2, 3, 4});
  ASSERT_OK(strategy_->ApplyGradients({{slices, gradient}, {zeros, gradient}, {once, gradient}}));
  ASSERT_OK(strategy_->ApplyGradients(
      {{slices, IndexedSlices{Tensor::Vector<int64_t>({}), Tensor::Of<float>({0, 1}, {})}},
       {zeros, Tensor::Zeros(DType::kFloat32, {4, 1})}}));
  EXPECT_EQ(Numbers(slices), Numbers(zeros));
  EXPECT_NE(Numbers(slices), Numbers(once));
}

// New variables are placed on the servers that have not left.
TEST_F(PsStrategyTest, VariablesArePlacedOnLiveServers) {
  Start(3, Fixed(4));
  const auto change = [this](int32_t server, wire::MembersAction::type action) {
    wire::ChangeMembersRequest request;
    request.caller.job = "tool";
    request.action = action;
    request.index = 1;
    wire::ChangeMembersReply reply;
    servers_->service(server).change_members(reply, request);
  };
  change(1, wire::MembersAction::CLOSE);
  change(0, wire::MembersAction::REMOVE);
  const Deadline deadline = Deadline::In(absl::Seconds(30));  // a heartbeat reports it
  while (strategy_->server_count() > 2 && !deadline.Expired()) std::this_thread::yield();
  EXPECT_THAT(ServersOf(Counting("a", {8})), ElementsAre(0, 2, 0, 2));
  EXPECT_THAT(Numbers(Counting("b", {4, 1})), ElementsAre(0, 1, 2, 3));
  // A new program has the same cluster file.
  strategy_ = Connect(1, Fixed(4));
  EXPECT_EQ(strategy_->server_count(), 2);
  EXPECT_THAT(ServersOf(Counting("c", {8})), ElementsAre(0, 2, 0, 2));
}

// A sum pairs the replicas' gradients by their place in the call, so every place has one variable.
TEST_F(PsStrategyTest, ReplicasThatUpdateOtherVariablesAreRefused) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr a = Counting("a", {1}), b = Counting("b", {1});
  const auto apply = [&](const std::function<std::vector<VariableGradient>(bool first)>& of) {
    return strategy_
        ->Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
          RETURN_IF_ERROR(strategy_->ApplyGradients(of(GetReplicaContext()->local_replica() == 0)));
          return Value();
        })
        .status();
  };
  const Value one = Tensor::Vector<float>({1});
  EXPECT_THAT(apply([&](bool first) -> std::vector<VariableGradient> {
                if (first) return {{a, one}, {b, one}};
                return {{b, one}, {a, one}};
              }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("same order")));
  EXPECT_FALSE(apply([&](bool first) -> std::vector<VariableGradient> {
                 if (first) return {{a, one}, {b, one}};
                 return {{a, one}};
               }).ok());
  EXPECT_THAT(Numbers(a), ElementsAre(0));
  EXPECT_THAT(Numbers(b), ElementsAre(0));
}

// Mirrored components are one value, and one value that all replicas give is every replica's.
TEST_F(PsStrategyTest, GradientsAreSummedOverReplicasNotOverCopies) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr v = Counting("v", {1});
  const Value one = Tensor::Vector<float>({1});
  {
    const Scope scope = strategy_->EnterScope().value();
    ASSERT_OK(strategy_->ApplyGradients({{v, Value::Mirrored({one, one})}}));
    EXPECT_THAT(Numbers(v), ElementsAre(-1));
    ASSERT_OK(strategy_->ApplyGradients({{v, Value::PerReplica({one, one})}}));
    EXPECT_THAT(Numbers(v), ElementsAre(-3));
    EXPECT_FALSE(strategy_->ApplyGradients({{v, Value::Mirrored({})}}).ok());
    EXPECT_FALSE(strategy_->ApplyGradients({{v, Value::PerReplica({one})}}).ok());
    const IndexedSlices texts = {Tensor::Texts({1}, {"a"}), Tensor::Vector<float>({1})};
    EXPECT_THAT(strategy_->ApplyGradients({{v, texts}}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows are given as text")));
  }
  ASSERT_OK(strategy_->Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
    RETURN_IF_ERROR(strategy_->ApplyGradients({{v, one}}));
    return Value();
  }));
  EXPECT_THAT(Numbers(v), ElementsAre(-5));
}

TEST_F(PsStrategyTest, VariablesWithoutGradientAreNotUpdated) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1)}});
  const VariablePtr a = Counting("a", {1}), b = Counting("b", {1});
  const Value one = Tensor::Vector<float>({1}), text = Tensor::Texts({1}, {"a"});
  const auto in_replicas = [&](const Value& first, const Value& second) {
    return strategy_
        ->Run([&] {
          const bool is_first = GetReplicaContext()->local_replica() == 0;
          return strategy_->ApplyGradients({{a, one}, {b, is_first ? first : second}});
        })
        .status();
  };
  const auto refused = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  ASSERT_OK(strategy_->ApplyGradients({{a, one}, {b, Value()}}));
  ASSERT_OK(strategy_->ApplyGradients({{b, Value::PerReplica({Value(), Value()})}, {a, one}}));
  ASSERT_OK(in_replicas(Value(), Value()));
  EXPECT_THAT(Numbers(a), ElementsAre(-4));
  EXPECT_THAT(in_replicas(one, Value()), refused("\"b\": some replicas gave a gradient and some"));
  EXPECT_THAT(in_replicas(one, text), refused("gradient of variable \"b\": replica 1 gave text"));
  EXPECT_THAT(strategy_->ApplyGradients({{b, "1"}}), refused("gradient of variable \"b\""));
  EXPECT_THAT(strategy_->ApplyGradients({{a, {}}, {b, {}}}), refused("found none for a, b"));
  ASSERT_OK(strategy_->ApplyGradients({}));
  EXPECT_THAT(Numbers(a), ElementsAre(-4));
  EXPECT_THAT(Numbers(b), ElementsAre(0));
}

TEST_F(PsStrategyTest, AWorkersOptimizerRefersToTheServersOptimizer) {
  Start(2, Fixed(2));
  const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
  for (const Shape& shape : {Shape{}, Shape{4}}) {  // on one server, and in shards
    const VariablePtr v = Make({.name = absl::StrCat("v", shape.size()),
                                .initial_value = Tensor::Zeros(DType::kFloat32, shape)})
                              .value();
    EXPECT_THAT(optimizer->ApplyGradients({{Tensor::Zeros(DType::kFloat32, shape), v}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("use ParameterServerStrategy::ApplyGradients")));
  }
}

TEST_F(PsStrategyTest, ANewStrategyFindsTheValuesThatServersKept) {
  Start(2, Fixed(2));
  const VariablePtr v = Counting("v", {4});
  ASSERT_OK(v->AssignAdd(Tensor::Full(DType::kFloat32, {4}, 5)));
  strategy_ = Connect(0, Fixed(2));
  EXPECT_THAT(Numbers(Counting("v", {4})), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(Make({.name = "v", .initial_value = Tensor::Scalar<float>(1)}).status().code(),
            absl::StatusCode::kAlreadyExists);
  strategy_ = Connect(0);
  EXPECT_EQ(
      Make({.name = "v", .initial_value = Tensor::Zeros(DType::kFloat32, {5})}).status().code(),
      absl::StatusCode::kAlreadyExists);
}

// As after a restore on another number of servers, by which a partitioner may go.
TEST_F(PsStrategyTest, ANewStrategyKeepsTheShardsThatServersHave) {
  Start(2, Fixed(2));
  const VariablePtr before = Counting("v", {5});
  ASSERT_OK(before->AssignAdd(Tensor::Full(DType::kFloat32, {5}, 5)));
  const std::vector<int32_t> servers = ServersOf(before);
  strategy_ = Connect(0, Fixed(3));
  Counting("another", {3});  // moves the round-robin counter on
  const VariablePtr v = Counting("v", {5});
  EXPECT_THAT(Sharded(v).first_rows(), ElementsAre(0, 3, 5));
  EXPECT_EQ(ServersOf(v), servers);
  EXPECT_THAT(Numbers(v), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(Numbers(Sharded(v).shards()[1]), ElementsAre(8, 9));
}

TEST_F(PsStrategyTest, TheNormOfAShardedVariableIsClipped) {
  ParameterServerOptions options = Fixed(2);
  options.optimizer.clipnorm = 1;
  Start(2, options);
  const VariablePtr v =
      Make({.name = "v", .initial_value = Tensor::Zeros(DType::kFloat32, {2})}).value();
  const Scope scope = strategy_->EnterScope().value();
  ASSERT_OK(strategy_->ApplyGradients({{v, Tensor::Vector<float>({3, 4})}}));
  EXPECT_THAT(Numbers(v), ElementsAre(FloatNear(-0.6F, 1e-6F), FloatNear(-0.8F, 1e-6F)));
}

TEST_F(PsStrategyTest, ANormOfAllVariablesIsRefused) {
  Start(1);
  ClientOptions client;
  client.job = "other";
  client.worker = 0;
  std::shared_ptr<PsClient> connected =
      servers_->Connect(client, true, Deadline::In(absl::Seconds(30))).value();
  ParameterServerOptions options;
  options.optimizer.global_clipnorm = 1;
  EXPECT_THAT(
      ParameterServerStrategy::Create(ClusterOf(1, 1), HostOnServers(connected), options).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("use clipnorm")));
}

TEST_F(PsStrategyTest, EveryWorkerHasItsOwnPerWorkerVariable) {
  Start(1);
  const VariablePtr v =
      Make({.name = "v", .initial_value = Tensor::Scalar<float>(3), .per_worker = true}).value();
  EXPECT_THAT(v->Read(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ReadAll")));
  {
    const WorkerScope worker(1);
    ASSERT_OK(v->AssignAdd(1));
  }
  std::vector<float> all;
  const std::vector<Tensor> values = dynamic_cast<PerWorkerVariable&>(*v).ReadAll().value();
  for (const Tensor& value : values) {
    all.push_back(value.values<float>()[0]);
  }
  EXPECT_THAT(all, ElementsAre(3, 4));
}

TEST_F(PsStrategyTest, ReplicasOfAWorkerShareItsPerWorkerVariable) {
  Start(1, {.worker_devices = {Cpu(0), Cpu(1), Cpu(2)}});
  const VariablePtr v =
      Make({.name = "v", .initial_value = Tensor::Scalar<float>(3), .per_worker = true}).value();
  const auto count = [&v](absl::Span<const Value>) -> absl::StatusOr<Value> {
    RETURN_IF_ERROR(v->AssignAdd(1));
    return Value();
  };
  EXPECT_THAT(strategy_->Run(count, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("scheduled function")));
  {
    const WorkerScope worker(1);
    ASSERT_OK(strategy_->Run(count, {}).status());
  }
  EXPECT_FALSE(strategy_->Run(count, {}).ok()) << "a replica's thread keeps the worker of before";
  const std::vector<Tensor> values = dynamic_cast<PerWorkerVariable&>(*v).ReadAll().value();
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0].values<float>()[0], 3);
  EXPECT_EQ(values[1].values<float>()[0], 6);
}

TEST_F(PsStrategyTest, ClustersThatCannotTrainAreRefused) {
  Start(1);
  const auto create = [this](const std::map<std::string, std::vector<std::string>>& jobs) {
    ClientOptions client;
    client.job = "other";
    client.worker = 0;
    std::shared_ptr<PsClient> connected =
        servers_->Connect(client, true, Deadline::In(absl::Seconds(30))).value();
    return ParameterServerStrategy::Create(ClusterSpec::FromLists(jobs), HostOnServers(connected))
        .status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(create({{"worker", {"w:1"}}}), StatusIs(invalid, HasSubstr("at least one ps")));
  EXPECT_THAT(create({{"chief", {"c:1"}}, {"ps", {"p:1"}}}),
              StatusIs(invalid, HasSubstr("at least one worker")));
  EXPECT_THAT(create({{"chief", {"c:1", "d:1"}}, {"worker", {"w:1"}}, {"ps", {"p:1"}}}),
              StatusIs(invalid, HasSubstr("chief")));
  EXPECT_THAT(create({{"moon", {"m:1"}}, {"worker", {"w:1"}}, {"ps", {"p:1"}}}),
              StatusIs(invalid, HasSubstr("moon")));
  EXPECT_THAT(create({{"worker", {"w:1"}}, {"ps", {"p:1", "q:1"}}}),
              StatusIs(invalid, HasSubstr("2 ps tasks")));
  EXPECT_THAT(ParameterServerStrategy::Create(ClusterOf(1, 1), HostOnServers(nullptr)),
              StatusIs(invalid, HasSubstr("client")));
  EXPECT_THAT(HostOnServers(nullptr)->Create(nullptr, Tensor()),
              StatusIs(invalid, HasSubstr("client")));
}

}  // namespace
}  // namespace cairn::test
