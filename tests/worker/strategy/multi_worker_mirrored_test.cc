// MultiWorkerMirroredStrategy with threads as workers, connected by Gloo.
#include "worker/ops/device_queue.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"

#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/support/addresses.h"
#include "tests/worker/collective/ranks.h"
#include "tests/worker/strategy/case_support.h"
#include "tests/worker/strategy/mirrored_workers.h"
#include "worker/collective/control_server.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST(Cases, A6_ReduceHostTensor) {
  Workers(2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const Value one = Scalar(1);
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, one, {})), ElementsAre(2));
    EXPECT_THAT(Doubles(strategy.ReduceTo(ReduceOp::kSum, one, Cpu(0))), ElementsAre(2));
    const std::vector<std::pair<Value, Destinations>> pairs = {{one, Cpu(0)}, {one, Cpu(0)}};
    const auto both = strategy.BatchReduceTo(ReduceOp::kSum, pairs);
    ASSERT_OK(both);
    EXPECT_THAT(Doubles((*both)[0]), ElementsAre(2));
    EXPECT_THAT(Doubles((*both)[1]), ElementsAre(2));
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, one, {})), ElementsAre(1));
  });
}

// Slices that Run returns when it returns the value of a single replica.
TEST(MultiWorkerMirrored, SlicesOfOneReplicaAWorkerAreConcatenated) {
  Workers(2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const auto slices = strategy.Run([]() -> Value {
      return IndexedSlices{Tensor::Vector<int64_t>({ReplicaId()}),
                           Tensor::Vector<float>({10.0F * static_cast<float>(ReplicaId() + 1)})};
    });
    ASSERT_OK(slices);
    for (const auto& sum : {strategy.Reduce(ReduceOp::kSum, *slices, {}),
                            strategy.ReduceTo(ReduceOp::kSum, *slices, Cpu(0))}) {
      ASSERT_OK(sum);
      EXPECT_THAT(NumbersOf(sum->slices().indices), ElementsAre(0, 1));
      EXPECT_THAT(NumbersOf(sum->slices().values), ElementsAre(10, 20));
    }
  });
}

// C15 and similar: with one replica in each worker a number or tensor is the worker's contribution,
// and with one worker it is the sum itself.
TEST(MultiWorkerMirrored, NumbersAndTensorsAreWrittenToASumVariable) {
  for (const int32_t workers : {1, 2}) {
    Workers(workers).Each([workers](MultiWorkerMirroredStrategy& strategy) {
      const auto written = [&strategy](AssignOp op, const Value& value) {
        const VariablePtr variable =
            VariableOf(strategy, Tensor::Scalar<float>(9), VariableAggregation::kSum);
        EXPECT_OK(OnReplicas(strategy, [&] { return variable->Write(op, value); }));
        return Copies(variable)[0];
      };
      for (const Value& two : {Value(2.0), Scalar(2)}) {
        EXPECT_EQ(written(AssignOp::kAssign, two), 2 * workers);
        EXPECT_EQ(written(AssignOp::kAdd, two), 9 + 2 * workers);
        EXPECT_EQ(written(AssignOp::kSub, two), 9 - 2 * workers);
      }
    });
  }
}

// A worker that leaves because its replica failed reports that error, not the barrier that it
// calls.
TEST(MultiWorkerMirrored, WorkersThatWaitForAFailedWorkerGetItsError) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  absl::Notification created;  // worker 1 has its strategy, so that worker 0 may leave
  OnRanks(2, [&](int rank) {
    const auto strategy =
        MultiWorkerMirroredStrategy::Create({.workers = {OwnAddress(), OwnAddress()},
                                             .worker_index = rank,
                                             .devices = ReplicaDevices(1),
                                             .rendezvous_address = server->address()})
            .value();
    if (rank == 1) created.Notify();
    ASSERT_TRUE(created.WaitForNotificationWithTimeout(absl::Seconds(60)));
    const auto run = strategy->Run([]() -> absl::StatusOr<Value> {
      if (ReplicaId() == 0) throw std::runtime_error("boom");
      return GetReplicaContext()->AllReduce(ReduceOp::kSum, Scalar(1));
    });
    EXPECT_THAT(run, StatusIs(rank == 0 ? absl::StatusCode::kUnknown : absl::StatusCode::kAborted,
                              HasSubstr("boom")));
  });
}

TEST(MultiWorkerMirrored, AnEmptyDeviceListIsReportedUnderItsOwnName) {
  EXPECT_THAT(MultiWorkerMirroredStrategy::Create({.workers = {NobodysAddress()}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("MultiWorkerMirroredStrategy: no device given")));
}

TEST(MultiWorkerMirrored, ReplicasAreNumberedAndReducedOverAllWorkers) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
    const auto ids = strategy.Run(
        [](absl::Span<const Value>) -> absl::StatusOr<Value> { return Scalar(ReplicaId()); });
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, *ids, {})), ElementsAre(0 + 1 + 2 + 3));
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, *ids, {})), ElementsAre(1.5));
    const auto rows = strategy.Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
      return Value(Tensor::Full(DType::kFloat32, {ReplicaId()}, ReplicaId()));
    });
    // Six elements: one 1, two 2, three 3; replica 0 has none.
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, *rows, {{0}}))[0],
                ::testing::DoubleNear(14.0 / 6, 1e-6));
    EXPECT_THAT(Doubles(strategy.Gather(*rows, 0)), ElementsAre(1, 2, 2, 3, 3, 3));
  });
}

TEST(MultiWorkerMirrored, AllReduceAndAllGatherInReplicas) {
  Workers(3, 1).Each([](MultiWorkerMirroredStrategy& strategy) {
    const auto sum = strategy.Run([](absl::Span<const Value>) {
      return GetReplicaContext()->AllReduce(ReduceOp::kSum,
                                            Value::List({Floats({1, 2}), Scalar(ReplicaId())}));
    });
    ASSERT_OK(sum);
    EXPECT_THAT(Doubles(sum->items()[0]), ElementsAre(3, 6));
    EXPECT_THAT(Doubles(sum->items()[1]), ElementsAre(3));
    const auto columns = strategy.Run([](absl::Span<const Value>) {
      return GetReplicaContext()->AllGather(
          Tensor::Full(DType::kFloat32, {2, ReplicaId()}, ReplicaId()), 1);
    });
    EXPECT_THAT(Doubles(columns), ElementsAre(1, 2, 2, 1, 2, 2));
    const auto slices = strategy.Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
      const float value = static_cast<float>(ReplicaId());
      return GetReplicaContext()->AllReduce(
          ReduceOp::kMean, IndexedSlices{Tensor::Vector<int64_t>({ReplicaId() % 2}),
                                         Tensor::Of<float>({1, 2}, {value, 3})});
    });
    ASSERT_OK(slices);
    EXPECT_THAT(NumbersOf(slices->slices().indices), ElementsAre(0, 1, 0));
    EXPECT_THAT(NumbersOf(slices->slices().values)[1], 1);
  });
}

TEST(MultiWorkerMirrored, AnOptimizerSumsTheGradientsOfAllWorkersOverAllSteps) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr whole =
        VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {2}), VariableAggregation::kNone);
    const VariablePtr table =
        VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {4, 1}), VariableAggregation::kNone);
    const auto optimizer =
        VariableOptimizer::Create(
            {.type = "sgd", .learning_rate = ConstantRate(1), .arguments = {{"momentum", 0.5}}})
            .value();
    for (int step = 0; step < 2; ++step) {
      ASSERT_OK(OnReplicas(strategy, [&] {
        const auto id = static_cast<float>(ReplicaId());
        const IndexedSlices rows{Tensor::Vector<int64_t>({ReplicaId() % 2}),
                                 Tensor::Of<float>({1, 1}, {id})};
        return optimizer->ApplyGradients({{Floats({id, 1}), whole}, {rows, table}});
      }));
    }
    for (size_t copy = 0; copy < 2; ++copy) {
      EXPECT_THAT(Doubles(Value(whole->components()[copy])), ElementsAre(-15, -10));
      EXPECT_THAT(Doubles(Value(table->components()[copy])), ElementsAre(-5, -10, 0, 0));
    }
    EXPECT_EQ(optimizer->iterations().value(), 2);
  });
}

// The others do not wait for a worker whose gradient is refused.
TEST(MultiWorkerMirrored, AGradientThatOneWorkerCannotSumFailsOnAll) {
  Workers(2, 1, absl::Minutes(10)).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr w =
        VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {2}), VariableAggregation::kNone);
    const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
    const absl::Status status = OnReplicas(strategy, [&] {
      return optimizer->ApplyGradients({{ReplicaId() == 0 ? Floats({1}) : Floats({1, 2}), w}});
    });
    EXPECT_FALSE(status.ok());
    if (strategy.worker_index() == 0) {
      EXPECT_THAT(status.message(), HasSubstr("found float32 [1]"));
    }
    EXPECT_THAT(Copies(w), ElementsAre(0));
  });
}

// The first gradient is refused, before any other is found to need a sum.
TEST(MultiWorkerMirrored, AGradientRefusedInCrossReplicaContextFailsOnAllAndTheNextUpdateWorks) {
  Workers(2, 2, absl::Seconds(5)).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr w =
        VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {2}), VariableAggregation::kNone);
    const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
    ASSERT_OK(optimizer->Build({{w}}));
    const auto apply = [&](const Value& of_each) {
      return optimizer->ApplyGradients({{Value::PerReplica({of_each, of_each}), w}});
    };
    EXPECT_THAT(apply(strategy.worker_index() == 0 ? Floats({1}) : Floats({1, 2})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(strategy.worker_index() == 0 ? "found float32 [1]" : "")));
    EXPECT_OK(apply(Floats({1, 2})));
    EXPECT_EQ(optimizer->iterations().value(), 1);
  });
}

// The others do not wait for a worker whose write is refused, and the next write is aggregated.
TEST(MultiWorkerMirrored, AWriteThatOneWorkerRefusesFailsOnAll) {
  for (const VariableAggregation aggregation :
       {VariableAggregation::kSum, VariableAggregation::kMean,
        VariableAggregation::kOnlyFirstReplica}) {
    Workers(2, 2, absl::Minutes(10)).Each([aggregation](MultiWorkerMirroredStrategy& strategy) {
      const VariablePtr w = VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {2}), aggregation);
      const bool fails = strategy.worker_index() == 0;
      const absl::Status status = OnReplicas(strategy, [&] {
        return w->Assign(fails ? Floats({1}) : Floats({1, 2}));
      });
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(fails ? "found float32 [1]" : "")));
      EXPECT_OK(OnReplicas(strategy, [&] { return w->Assign(Floats({4, 5})); }));
      const double all = aggregation == VariableAggregation::kSum ? 16 : 4;
      EXPECT_THAT(Copies(w), ElementsAre(all, all));
    });
  }
}

TEST(MultiWorkerMirrored, AValueThatOneWorkerCannotGatherFailsOnAll) {
  Workers(2, 1, absl::Minutes(10)).Each([](MultiWorkerMirroredStrategy& strategy) {
    const auto gather = [&](const Value& value) {
      return strategy.Run([&] { return GetReplicaContext()->AllGather(value, 0); });
    };
    const bool fails = strategy.worker_index() == 0;
    EXPECT_FALSE(gather(fails ? Value(VariablePtr()) : Floats({1})).ok());
    EXPECT_THAT(Doubles(gather(Floats({1}))), ElementsAre(1, 1));
    const auto reduce = [&](const Value& value) {
      return strategy.Run([&] { return GetReplicaContext()->AllReduce(ReduceOp::kSum, value); });
    };
    EXPECT_FALSE(reduce(fails ? Value(VariablePtr()) : Floats({1})).ok());
    EXPECT_THAT(Doubles(reduce(Floats({1}))), ElementsAre(2));
  });
}

// A tensor that no replica owns is its worker's.
TEST(MultiWorkerMirrored, GatherTakesATensorOfEachWorkerOnce) {
  for (const int32_t devices : {1, 2}) {
    Workers(2, devices).Each([](MultiWorkerMirroredStrategy& strategy) {
      const auto own = static_cast<float>(strategy.worker_index());
      EXPECT_THAT(Doubles(strategy.Gather(Floats({own, 5}), 0)), ElementsAre(0, 5, 1, 5));
    });
  }
}

// Without aggregation no worker waits for another.
TEST(MultiWorkerMirrored, AGradientRefusedWithoutAggregationFailsOnItsWorkerOnly) {
  Workers(2, 2, absl::Seconds(5)).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr w =
        VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {2}), VariableAggregation::kNone);
    const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
    ASSERT_OK(optimizer->Build({{w}}));
    const auto apply = [&](const Value& gradient, bool skip_aggregation) {
      return OnReplicas(strategy, [&] {
        return optimizer->ApplyGradients({{gradient, w}}, {.skip_aggregation = skip_aggregation});
      });
    };
    const bool fails = strategy.worker_index() == 0;
    EXPECT_EQ(apply(fails ? Floats({1}) : Floats({1, 2}), true).ok(), !fails);
    EXPECT_OK(apply(Floats({1, 2}), false));
  });
}

// Tensors of several types and sizes, a number, slices, nothing: each result equals that of a
// separate reduction, with packs of any size.
TEST(MultiWorkerMirrored, ListsReducedInPacksEqualSeparateReductions) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    for (const int64_t bytes_per_pack : {int64_t{0}, int64_t{64}}) {
      const auto reduced = strategy.Run([&](absl::Span<const Value>) -> absl::StatusOr<Value> {
        const auto id = static_cast<float>(ReplicaId());
        const Value list =
            Value::List({Tensor::Full(DType::kFloat32, {40000}, id), Floats({id, 1}),
                         Scalar(ReplicaId()), Value(), Tensor::Full(DType::kFloat64, {3}, 2 * id),
                         IndexedSlices{Tensor::Vector<int64_t>({ReplicaId() % 2}),
                                       Tensor::Of<float>({1, 1}, {id})},
                         Value::OfDict({{"last", Floats({5})}})});
        return GetReplicaContext()->AllReduce(ReduceOp::kMean, list,
                                              {.bytes_per_pack = bytes_per_pack});
      });
      ASSERT_OK(reduced);
      const std::vector<Value> locals = strategy.LocalResults(*reduced).value();
      for (const Value& own : locals) {
        const auto& items = own.items();
        EXPECT_THAT(Doubles(items[0]), ::testing::Each(1.5));
        EXPECT_THAT(Doubles(items[1]), ElementsAre(1.5, 1));
        EXPECT_THAT(Doubles(items[2]), ElementsAre(1.5));
        EXPECT_TRUE(items[3].is_none());
        EXPECT_THAT(Doubles(items[4]), ElementsAre(3, 3, 3));
        // Rows 0 and 1 occur twice each; densely: the sum of a row's values over four replicas.
        double rows = 0;
        for (const double value : NumbersOf(items[5].slices().values)) rows += value;
        EXPECT_EQ(rows, 1.5);
        EXPECT_THAT(Doubles(items[6].dict().at("last")), ElementsAre(5));
      }
    }
  });
}

// Every worker has the first worker's initial value, and the same value after each write.
TEST(MultiWorkerMirrored, VariablesStayEqual) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr sum =
        VariableOf(strategy, Tensor::Full(DType::kFloat32, {}, 10 + strategy.worker_index()),
                   VariableAggregation::kSum);
    EXPECT_THAT(Copies(sum), ElementsAre(10, 10));
    EXPECT_OK(OnReplicas(strategy, [&] { return sum->AssignAdd(Scalar(ReplicaId())); }));
    EXPECT_THAT(Copies(sum), ElementsAre(16, 16));
    const VariablePtr first =
        VariableOf(strategy, Tensor::Scalar<float>(0), VariableAggregation::kOnlyFirstReplica);
    EXPECT_OK(OnReplicas(strategy, [&] { return first->Assign(Scalar(5 + ReplicaId())); }));
    EXPECT_THAT(Copies(first), ElementsAre(5, 5));
    const VariablePtr on_read =
        VariableOf(strategy, Tensor::Scalar<float>(0), VariableAggregation::kSum,
                   VariableSynchronization::kOnRead);
    EXPECT_OK(OnReplicas(strategy, [&] { return on_read->Assign(Scalar(ReplicaId())); }));
    EXPECT_THAT(NumbersOf(on_read->Read().value()), ElementsAre(6));
  });
}

// A PerReplica of one component, and the mean of integers.
TEST(MultiWorkerMirrored, OneReplicaInAllIsItsOwnSumAndMean) {
  Workers(1).Each([](MultiWorkerMirroredStrategy& strategy) {
    const Value one = PerReplica({Tensor::Scalar<int64_t>(3)});
    const auto all_reduced = strategy.Run(
        [](absl::Span<const Value> args) {
          return GetReplicaContext()->AllReduce(ReduceOp::kMean, args[0]);
        },
        {one});
    for (const auto& mean : {all_reduced, strategy.Reduce(ReduceOp::kMean, one, {}),
                             strategy.ReduceTo(ReduceOp::kMean, one, Cpu(0)),
                             strategy.Reduce(ReduceOp::kSum, one, {})}) {
      ASSERT_OK(mean);
      EXPECT_EQ(mean->tensor().dtype(), DType::kInt64);
      EXPECT_THAT(Doubles(*mean), ElementsAre(3));
    }
  });
}

constexpr VariableAggregation kAggregations[] = {
    VariableAggregation::kSum, VariableAggregation::kMean, VariableAggregation::kOnlyFirstReplica,
    VariableAggregation::kNone};

// An ON_READ variable of one element whose copy on replica r is r + 1.
VariablePtr CountedOnRead(Strategy& strategy, VariableAggregation aggregation) {
  VariablePtr variable = VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {1}), aggregation,
                                    VariableSynchronization::kOnRead);
  EXPECT_OK(OnReplicas(
      strategy, [&] { return variable->Assign(Floats({static_cast<float>(ReplicaId() + 1)})); }));
  return variable;
}

TEST(MultiWorkerMirrored, OnReadVariablesAreReducedAndGatheredAsTheirCopies) {
  for (const int32_t devices : {1, 2}) {
    Workers(2, devices).Each([](MultiWorkerMirroredStrategy& strategy) {
      std::vector<double> copies;
      for (int32_t r = 0; r < strategy.num_replicas_in_sync(); ++r) copies.push_back(r + 1);
      const double sum = std::accumulate(copies.begin(), copies.end(), 0.0);
      const double mean = sum / static_cast<double>(copies.size());
      for (const VariableAggregation aggregation : kAggregations) {
        const VariablePtr v = CountedOnRead(strategy, aggregation);
        for (const Axes& axes : {Axes(), Axes({0})}) {
          EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, v, axes)), ElementsAre(sum));
          EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, v, axes)), ElementsAre(mean));
        }
        EXPECT_THAT(Doubles(strategy.ReduceTo(ReduceOp::kSum, v, Cpu(0))), ElementsAre(sum));
        EXPECT_THAT(Doubles(strategy.Gather(v, 0)), ElementsAreArray(copies));
        const auto in_replicas = strategy.Run([&v]() -> absl::StatusOr<Value> {
          const auto context = GetReplicaContext();
          return Value::List({*context->AllReduce(ReduceOp::kSum, v), *context->AllGather(v, 0)});
        });
        ASSERT_OK(in_replicas);
        const std::vector<Value> locals = strategy.LocalResults(*in_replicas).value();
        EXPECT_THAT(Doubles(locals[0].items()[0]), ElementsAre(sum));
        EXPECT_THAT(Doubles(locals[0].items()[1]), ElementsAreArray(copies));
      }
    });
  }
}

TEST(MultiWorkerMirrored, VariablesWithEqualCopiesHaveAMeanAndNoSum) {
  for (const int32_t devices : {1, 2}) {
    Workers(2, devices).Each([](MultiWorkerMirroredStrategy& strategy) {
      const VariablePtr v =
          VariableOf(strategy, Tensor::Scalar<int32_t>(5), VariableAggregation::kSum);
      EXPECT_THAT(
          strategy.Reduce(ReduceOp::kSum, v, {}),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be reduced with")));
      const auto mean = strategy.Reduce(ReduceOp::kMean, v, {});
      ASSERT_OK(mean);
      EXPECT_EQ(mean->tensor().dtype(), DType::kInt32);
      EXPECT_THAT(Doubles(*mean), ElementsAre(5));
      // A plain variable is a tensor, and so this worker's contribution.
      const auto plain = CreateVariable({.initial_value = Tensor::Scalar<float>(1)});
      EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, *plain, {})), ElementsAre(2));
      const VariablePtr w =
          VariableOf(strategy, Tensor::Scalar<int32_t>(0), VariableAggregation::kSum);
      EXPECT_THAT(
          OnReplicas(strategy, [&] { return w->Assign(v); }),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be reduced with")));
    });
  }
}

TEST(MultiWorkerMirrored, AWriteOfAnOnReadVariableAggregatesItsCopies) {
  for (const int32_t devices : {1, 2}) {
    Workers(2, devices).Each([devices](MultiWorkerMirroredStrategy& strategy) {
      const VariablePtr v = CountedOnRead(strategy, VariableAggregation::kSum);
      const double sum = devices == 1 ? 3 : 10;
      const double of[] = {sum, sum / strategy.num_replicas_in_sync(), 1};
      for (size_t i = 0; i < std::size(of); ++i) {
        const VariablePtr w =
            VariableOf(strategy, Tensor::Zeros(DType::kFloat32, {1}), kAggregations[i]);
        EXPECT_OK(OnReplicas(strategy, [&] { return w->Assign(v); }));
        EXPECT_THAT(Copies(w), Each(of[i]));
      }
    });
  }
}

TEST(MultiWorkerMirrored, AValueThatTheReplicasOfOneWorkerShareIsAggregatedOverTheWorkers) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const auto assigned = [&](VariableAggregation aggregation,
                              const std::function<Value()>& value) {
      const VariablePtr v = VariableOf(strategy, Tensor::Scalar<float>(0), aggregation);
      EXPECT_OK(OnReplicas(strategy, [&] { return v->Assign(value()); }));
      return Copies(v);
    };
    const auto own = [&strategy]() -> Value { return 10.0 + strategy.worker_index(); };
    EXPECT_THAT(assigned(VariableAggregation::kMean, own), ElementsAre(10.5, 10.5));
    EXPECT_THAT(assigned(VariableAggregation::kOnlyFirstReplica, own), ElementsAre(10, 10));
    // Only the replicas of the first worker share their value: 1, 1, 2, 3.
    const auto mixed = [&strategy] {
      return strategy.worker_index() == 0 ? Value(1.0) : Scalar(ReplicaId());
    };
    EXPECT_THAT(assigned(VariableAggregation::kMean, mixed), ElementsAre(1.75, 1.75));
    EXPECT_THAT(assigned(VariableAggregation::kOnlyFirstReplica, mixed), ElementsAre(1, 1));
  });
}

// The replicas give different numbers of rows, the first of them as many as `first` has.
absl::Status ScatterOfFirst(Strategy& strategy, const VariablePtr& variable, ScatterOp op,
                            const IndexedSlices& first) {
  return OnReplicas(strategy, [&] {
    if (ReplicaId() == 0) return variable->Scatter(op, first);
    return variable->Scatter(op, {Tensor::Vector<int64_t>({0, 2}), Tensor::Vector<float>({7, 8})});
  });
}

TEST(MultiWorkerMirrored, EveryCopyGetsTheScatterOfTheFirstReplica) {
  for (const auto& [workers, devices] : {std::pair(1, 2), std::pair(2, 1), std::pair(2, 2)}) {
    Workers(workers, devices).Each([](MultiWorkerMirroredStrategy& strategy) {
      const VariablePtr v = VariableOf(strategy, Tensor::Vector<float>({1, 2, 3}),
                                       VariableAggregation::kOnlyFirstReplica);
      const auto expect = [&v](double middle) {
        for (const VariablePtr& copy : v->components()) {
          EXPECT_THAT(NumbersOf(copy->Read().value()), ElementsAre(1, middle, 3));
        }
      };
      const IndexedSlices slices{Tensor::Vector<int64_t>({1}), Tensor::Vector<float>({5})};
      const IndexedSlices none{Tensor::Zeros(DType::kInt64, {0}),
                               Tensor::Zeros(DType::kFloat32, {0})};
      const IndexedSlices bad{Tensor::Vector<int64_t>({1}), Tensor::Vector<float>({5, 6})};
      EXPECT_OK(ScatterOfFirst(strategy, v, ScatterOp::kAdd, slices));
      expect(7);
      EXPECT_OK(ScatterOfFirst(strategy, v, ScatterOp::kMin, slices));
      expect(5);
      EXPECT_OK(ScatterOfFirst(strategy, v, ScatterOp::kMax, none));
      EXPECT_THAT(ScatterOfFirst(strategy, v, ScatterOp::kUpdate, bad),
                  StatusIs(absl::StatusCode::kInvalidArgument, _));
      expect(5);
      EXPECT_OK(ScatterOfFirst(strategy, v, ScatterOp::kMul, slices));
      expect(25);
    });
  }
}

TEST(Cases, C2_C3_UnevenBatchesOfSeveralWorkers) {
  const auto batches = [](MultiWorkerMirroredStrategy& strategy, int64_t rows, int64_t batch) {
    const DistributedDataset dataset =
        strategy.DistributeDataset(Dataset::Range(rows).Batch(batch)).value();
    const auto iterator = dataset.MakeIterator().value();
    std::vector<std::string> steps;
    std::vector<Element> step;
    while (iterator->Next(&step).value()) {
      std::string text;
      for (const Element& element : step)
        absl::StrAppend(&text, HostTensor(element[0])->text(), ";");
      steps.push_back(text);
    }
    return steps;
  };
  Workers(2).Each([&](MultiWorkerMirroredStrategy& strategy) {
    const std::vector<std::string> steps = batches(strategy, 9, 2);
    ASSERT_EQ(steps.size(), 5u);
    EXPECT_EQ(steps[0], strategy.worker_index() == 0 ? "int64 [1] (0);" : "int64 [1] (1);");
    EXPECT_EQ(steps[4], strategy.worker_index() == 0 ? "int64 [1] (8);" : "int64 [0] ();");
  });
  Workers(2, 2).Each([&](MultiWorkerMirroredStrategy& strategy) {
    const std::vector<std::string> steps = batches(strategy, 15, 4);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_EQ(steps[3], strategy.worker_index() == 0 ? "int64 [1] (12);int64 [1] (14);"
                                                     : "int64 [1] (13);int64 [0] ();");
  });
}

// No worker waits for an operation that another worker cannot do; the strategy remains usable.
TEST(MultiWorkerMirrored, AnErrorOfOneWorkerReachesAll) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const int64_t extent = strategy.worker_index() == 0 ? 1 : 2;
    const Value unequal =
        PerReplica({Tensor::Zeros(DType::kFloat32, {1}), Tensor::Zeros(DType::kFloat32, {extent})});
    EXPECT_EQ(strategy.Reduce(ReduceOp::kSum, unequal, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
    const Value ranks =
        PerReplica({Tensor::Zeros(DType::kFloat32, {1}),
                    Tensor::Zeros(DType::kFloat32, Shape(static_cast<size_t>(extent), 1))});
    EXPECT_EQ(strategy.Gather(ranks, 0).status().code(), absl::StatusCode::kInvalidArgument);
    const Value own = PerReplica(
        {Tensor::Zeros(DType::kFloat32, {1, extent}), Tensor::Zeros(DType::kFloat32, {1, extent})});
    EXPECT_THAT(strategy.Gather(own, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                                  HasSubstr("Shape mismatch: worker 0")));
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, PerReplica({Scalar(1), Scalar(1)}), {})),
                ElementsAre(4));
  });
}

// A missing worker is named, within the timeout.
TEST(MultiWorkerMirrored, AMissingWorkerIsNamed) {
  Workers(2, 1, absl::Seconds(5)).Each([](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.worker_index() == 1) return;
    EXPECT_THAT(strategy.Reduce(ReduceOp::kSum, Scalar(1), {}),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("rank 1"), HasSubstr(OwnHost() + ":5001"))));
  });
}

TEST(MultiWorkerMirrored, OptionsThatAreNotBuiltAreRefused) {
  EXPECT_THAT(MultiWorkerMirroredStrategy::Create({.workers = {OwnAddress()},
                                                   .devices = ReplicaDevices(1),
                                                   .communication = {.bytes_per_pack = -1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack")));
  const auto by_nccl = MultiWorkerMirroredStrategy::Create(
      {.workers = {OwnAddress()},
       .devices = ReplicaDevices(1),
       .communication = {.implementation = CommunicationImplementation::kNccl}});
  if (!ReplicaDevice(0).is_cpu() && NcclStatus().ok() && UsableGpuCount() > 0) {
    EXPECT_OK(by_nccl);
  } else {
    EXPECT_THAT(by_nccl, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("MultiWorkerMirroredStrategy: sums by NCCL: ")));
  }
}

TEST(MultiWorkerMirrored, WorkersWithDifferentNumbersOfDevicesAreRefused) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  OnRanks(2, [&](int i) {
    EXPECT_THAT(MultiWorkerMirroredStrategy::Create({.workers = {OwnAddress(), OwnAddress()},
                                                     .worker_index = i,
                                                     .devices = ReplicaDevices(i + 1),
                                                     .rendezvous_address = server->address()}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("have 1, 2 devices")));
  });
}

}  // namespace
}  // namespace cairn::test
