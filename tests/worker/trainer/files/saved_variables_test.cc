// Values saved under one strategy are restored under any other, by TensorFlow's rules (case B22).
// Files are atomic, and nothing is assigned if a variable is missing.
#include "worker/trainer/files/saved_variables.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/addresses.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/strategy/case_support.h"
#include "tests/worker/strategy/served_strategy.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

VariablePtr Named(Strategy& strategy, const std::string& name, const Tensor& initial) {
  const Scope scope = strategy.EnterScope().value();
  return CreateVariable({.name = name, .initial_value = initial}).value();
}

class SavedVariablesTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.Join("model.safetensors"); }
  const TempDir folder_;
};

TEST_F(SavedVariablesTest, B22_OnReadIsSavedAsItsAggregation) {
  const auto strategy = Mirrored(2);
  for (const auto& [aggregation, stored, copy, restored] :
       {std::tuple(VariableAggregation::kSum, 7.0, 3.5, 1.0),
        std::tuple(VariableAggregation::kMean, 3.5, 3.5, 2.0)}) {
    const VariablePtr variable = VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {}),
                                            aggregation, VariableSynchronization::kOnRead);
    ASSERT_OK(OnReplicas(*strategy, [&] { return variable->Assign(Scalar(4 - ReplicaId())); }));
    ASSERT_OK(SaveVariables(*strategy, path(), {variable}));
    ASSERT_OK(OnReplicas(*strategy, [&] { return variable->Assign(Scalar(9)); }));
    ASSERT_OK(RestoreVariables(path(), {variable}));
    EXPECT_THAT(Copies(variable), Each(copy));
    const VariablePtr plain =
        CreateVariable({.name = "v", .initial_value = Tensor::Zeros(DType::kFloat32, {})}).value();
    ASSERT_OK(RestoreVariables(path(), {plain}));
    EXPECT_THAT(Copies(plain), ElementsAre(stored));
    ASSERT_OK(plain->Assign(Scalar(2)));
    ASSERT_OK(SaveVariables(*strategy, path(), {plain}));
    ASSERT_OK(RestoreVariables(path(), {variable}));
    EXPECT_THAT(Copies(variable), Each(restored));
  }
}

TEST_F(SavedVariablesTest, ASavedVariableComesBackInAnyNumberOfShardsAndCopies) {
  EngineCluster servers(2);
  const Tensor rows = Tensor::Of<float>({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Tensor zeros = Tensor::Zeros(DType::kFloat32, {5, 2});
  const auto sharded = [&](const std::string& job, int64_t shards) {
    return ConnectStrategy(servers, 2, job, 0, 1,
                           {.variable_partitioner = [shards](absl::Span<const int64_t>, DType) {
                             return std::vector<int64_t>{shards, 1};
                           }});
  };
  const auto three = sharded("three", 3), two = sharded("two", 2);
  const auto mirrored = Mirrored(2);
  ASSERT_OK(SaveVariables(*three, path(), {Named(*three, "w", rows)}));
  for (Strategy* strategy : {static_cast<Strategy*>(two.get()), mirrored.get()}) {
    const VariablePtr variable = Named(*strategy, "w", zeros);
    ASSERT_OK(RestoreVariables(path(), {variable}));
    EXPECT_EQ(HostTensor(variable->Read().value())->text(), rows.text());
  }
}

// Trains both dense variables and rows; the rate decays with the number of updates, which is saved
// too.
class Training {
 public:
  Training(Strategy& strategy, const std::string& type)
      : strategy_(strategy),
        w_(Named(strategy, "layer/w", Tensor::Full(DType::kFloat32, {5}, 0.25))),
        table_(Named(strategy, "table", Tensor::Full(DType::kFloat32, {4, 3}, -0.5))) {
    OptimizerConfig config{.type = type};
    config.learning_rate = {
        .type = "exponential_decay",
        .arguments = {{"initial_learning_rate", 0.1}, {"decay_steps", 2}, {"decay_rate", 0.5}}};
    optimizer_ = VariableOptimizer::Create(config).value();
  }

  void Step(int number) {
    ASSERT_OK(OnReplicas(strategy_, [&] {
      const auto x = static_cast<float>(number * 2 + ReplicaId() + 1);
      const IndexedSlices rows{Tensor::Vector<int64_t>({number % 4, 1, number % 4}),
                               Tensor::Full(DType::kFloat32, {3, 3}, std::sin(x))};
      return optimizer_->ApplyGradients(
          {{Tensor::Full(DType::kFloat32, {5}, std::cos(x)), w_}, {rows, table_}});
    }));
  }
  std::vector<VariablePtr> All() {
    EXPECT_OK(optimizer_->Build({w_, table_}));
    std::vector<VariablePtr> all = optimizer_->variables();
    all.insert(all.end(), {w_, table_});
    return all;
  }
  // The bits of every copy of every variable.
  std::vector<std::string> Bits() {
    std::vector<std::string> bits;
    for (const VariablePtr& variable : All()) {
      for (const VariablePtr& copy : variable->components()) {
        const Tensor value = HostTensor(copy->Read().value()).value();
        bits.emplace_back(static_cast<const char*>(value.data()), value.bytes());
      }
    }
    return bits;
  }
  int64_t iterations() const { return optimizer_->iterations().value(); }

 private:
  Strategy& strategy_;
  const VariablePtr w_, table_;
  std::unique_ptr<VariableOptimizer> optimizer_;
};

TEST_F(SavedVariablesTest, ATrainingGoesOnWithTheSameBitsWhereItWasSaved) {
  for (const std::string type : {"sgd", "adam", "nadam", "ftrl", "rmsprop"}) {
    SCOPED_TRACE(type);
    const auto first = Mirrored(2), second = Mirrored(2);
    Training whole(*first, type), restored(*second, type);
    for (int step = 0; step < 3; ++step) whole.Step(step);
    ASSERT_OK(SaveVariables(*first, path(), whole.All()));
    for (int step = 3; step < 6; ++step) whole.Step(step);
    ASSERT_OK(RestoreVariables(path(), restored.All()));
    EXPECT_EQ(restored.iterations(), 3);
    EXPECT_NE(restored.Bits(), whole.Bits());
    for (int step = 3; step < 6; ++step) restored.Step(step);
    EXPECT_EQ(restored.Bits(), whole.Bits());
    // With one copy of each variable the sums are the same, and so are the bits.
    const auto central = Central(2);
    Training moved(*central, type);
    ASSERT_OK(RestoreVariables(path(), moved.All()));
    for (int step = 3; step < 6; ++step) moved.Step(step);
    ASSERT_OK(SaveVariables(*central, path(), moved.All()));
    Training back(*second, type);
    ASSERT_OK(RestoreVariables(path(), back.All()));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    // Sanitizers disable the CPU's vectors, and then loops round otherwise than the CPU, which
    // updates the variables of Central.
    if (!ReplicaDevice(0).is_cpu()) continue;
#endif
    EXPECT_EQ(back.Bits(), whole.Bits());
  }
}

// Reading involves every worker; the chief writes the file.
TEST_F(SavedVariablesTest, OfSeveralWorkersTheChiefWrites) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  OnRanks(2, [&](int i) {
    const auto strategy =
        MultiWorkerMirroredStrategy::Create({.workers = {OwnAddress(), OwnAddress()},
                                             .worker_index = i,
                                             .devices = ReplicaDevices(2),
                                             .rendezvous_address = server->address()})
            .value();
    const VariablePtr variable =
        VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {}), VariableAggregation::kSum,
                   VariableSynchronization::kOnRead);
    ASSERT_OK(OnReplicas(*strategy, [&] { return variable->Assign(Scalar(1 + ReplicaId())); }));
    const std::string own = folder_.Join(absl::StrCat("worker", i));
    ASSERT_OK(SaveVariables(*strategy, own, {variable}));
    EXPECT_EQ(std::filesystem::exists(own), i == 0);
    if (i != 0) return;
    const VariablePtr plain =
        CreateVariable({.name = "v", .initial_value = Tensor::Zeros(DType::kFloat32, {})}).value();
    ASSERT_OK(RestoreVariables(own, {plain}));
    EXPECT_THAT(Copies(plain), ElementsAre(10));
  });
}

TEST_F(SavedVariablesTest, NothingIsAssignedWhereSomethingIsMissing) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = Named(*strategy, "a", Tensor::Scalar<float>(1));
  const VariablePtr b = Named(*strategy, "b", Tensor::Scalar<float>(2));
  EXPECT_THAT(RestoreVariables(path(), {a}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.safetensors")));
  ASSERT_OK(SaveVariables(*strategy, path(), {a}));
  ASSERT_OK(a->Assign(Scalar(5)));
  EXPECT_THAT(RestoreVariables(path(), {a, b}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no array 'b'")));
  const VariablePtr other = Named(*strategy, "a", Tensor::Vector<double>({1, 2}));
  EXPECT_THAT(RestoreVariables(path(), {a, other}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("F32 []"), HasSubstr("asked for as F64 [2]"))));
  EXPECT_THAT(RestoreVariables(path(), {a, nullptr}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("RestoreVariables")));
  EXPECT_THAT(Copies(a), ElementsAre(5, 5));
}

TEST_F(SavedVariablesTest, WhatCannotBeSavedLeavesTheFileThatIsThere) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = Named(*strategy, "a", Tensor::Scalar<float>(1));
  ASSERT_OK(SaveVariables(*strategy, path(), {a}));
  ASSERT_OK(a->Assign(Scalar(5)));
  EXPECT_THAT(
      SaveVariables(*strategy, path(), {a, a}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a' is in the file already")));
  EXPECT_THAT(SaveVariables(*strategy, path(), {a, nullptr}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("SaveVariables")));
  EXPECT_THAT(OnReplicas(*strategy, [&] { return SaveVariables(*strategy, path(), {a}); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in a replica function")));
  ASSERT_OK(RestoreVariables(path(), {a}));
  EXPECT_THAT(Copies(a), ElementsAre(1, 1));
  EXPECT_FALSE(std::filesystem::exists(path() + ".part"));
}

}  // namespace
}  // namespace cairn::test
