// MultiWorkerMirroredStrategy where one worker refuses a call, or makes it alone: no other worker
// waits for it, and the next call of all works.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/worker/strategy/case_support.h"
#include "tests/worker/strategy/mirrored_workers.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kInvalidArgument;

TEST(MultiWorkerMirrored, SlicesThatCannotBeAreRefusedOnEveryWorker) {
  const Tensor row = Tensor::Vector<int64_t>({0}), one = Tensor::Vector<float>({1});
  const Value good = IndexedSlices{row, one};
  for (const Value bad : {IndexedSlices{Tensor::Texts({1}, {"a"}), one},
                          IndexedSlices{row, Tensor::Scalar<float>(1)}}) {
    for (const bool on_all : {false, true}) {
      Workers(2).Each([&](MultiWorkerMirroredStrategy& strategy) {
        const bool fails = on_all || strategy.worker_index() == 0;
        const Value& given = fails ? bad : good;
        const auto refused =
            StatusIs(kRefused, HasSubstr(fails ? "give one row for each index" : ""));
        EXPECT_THAT(strategy.Reduce(ReduceOp::kSum, given, {}), refused);
        EXPECT_THAT(strategy.ReduceTo(ReduceOp::kMean, given, Cpu(0)), refused);
        const auto sum = strategy.Reduce(ReduceOp::kSum, good, {});
        ASSERT_OK(sum);
        EXPECT_THAT(NumbersOf(sum->slices().indices), ElementsAre(0, 0));
      });
    }
  }
}

TEST(MultiWorkerMirrored, AnAxisThatOneWorkerRefusesFailsOnAll) {
  for (const int32_t devices : {1, 2}) {
    Workers(2, devices).Each([devices](MultiWorkerMirroredStrategy& strategy) {
      const bool fails = strategy.worker_index() == 1;
      const Value good = Floats({1, 2});
      for (const auto& [bad, why] :
           {std::pair(Scalar(1), "MultiWorkerMirroredStrategy::Reduce: axis 0 is out of range: a "),
            std::pair(Value(Tensor::Texts({1}, {"a"})), "replica 0 gave text [1]")}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
          EXPECT_THAT(strategy.Reduce(op, fails ? bad : good, Axes({0})),
                      StatusIs(kRefused, HasSubstr(fails ? why : "")));
          EXPECT_THAT(Doubles(strategy.Reduce(op, good, Axes({0}))),
                      ElementsAre(op == ReduceOp::kSum ? 6 * devices : 1.5));
        }
      }
    });
  }
}

// Worker 1 makes `bad` and worker 0 `good`, with devices of 1 or 2 replicas: both fail with `why`,
// and worker 0's error names worker 1, whose own has the given code. Then a reduction of both
// works.
using Call = std::function<absl::Status(MultiWorkerMirroredStrategy&)>;
void ExpectRefusalOnAll(int32_t devices, const std::string& why, const Call& good, const Call& bad,
                        absl::StatusCode own = kRefused) {
  // A worker that waits for the other fails much later than this, with another error.
  Workers(2, devices, absl::Seconds(10)).Each([&](MultiWorkerMirroredStrategy& strategy) {
    const bool refuses = strategy.worker_index() == 1;
    EXPECT_THAT((refuses ? bad : good)(strategy),
                StatusIs(refuses ? own : kRefused,
                         AllOf(HasSubstr(why), HasSubstr(refuses ? "" : "rank 1 ("))));
    EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, Scalar(1), {})), ElementsAre(2));
  });
}

Call Creating(const VariableOptions& options, bool in_replicas) {
  return [=](Strategy& strategy) {
    const auto create = [&] { return CreateVariable(options).status(); };
    if (in_replicas) return OnReplicas(strategy, create);
    const Scope scope = strategy.EnterScope().value();
    return create();
  };
}

Value OfReplicas(Strategy& strategy, const Value& own, int32_t more = 0) {
  return PerReplica(Value::Sequence(static_cast<size_t>(strategy.local_replicas() + more), own));
}

constexpr auto kNoOp = static_cast<ReduceOp>(7);

TEST(MultiWorkerMirrored, ANumberOfComponentsThatOneWorkerRefusesFailsOnAll) {
  const auto expect = [](const std::function<absl::Status(Strategy&, const Value&)>& call) {
    for (const int32_t devices : {1, 2}) {
      const auto with = [&call](int32_t more) {
        return [&call, more](Strategy& strategy) {
          return call(strategy, OfReplicas(strategy, Floats({1, 2}), more));
        };
      };
      ExpectRefusalOnAll(devices,
                         absl::StrCat(" has ", devices + 1, " components, the strategy ", devices,
                                      " local replicas; give one component for each"),
                         with(0), with(1));
    }
  };
  for (const Axes& axes : {Axes(), Axes({0})}) {
    expect([&axes](Strategy& strategy, const Value& value) {
      return strategy.Reduce(ReduceOp::kMean, value, axes).status();
    });
  }
  expect([](Strategy& strategy, const Value& value) {
    return strategy.ReduceTo(ReduceOp::kSum, Value::List({value}), Cpu(0)).status();
  });
  expect([](Strategy& strategy, const Value& value) {
    const Value good = OfReplicas(strategy, Scalar(1));
    return strategy.BatchReduceTo(ReduceOp::kSum, {{{good, Cpu(0)}, {value, Cpu(0)}}}).status();
  });
  expect([](Strategy& strategy, const Value& value) { return strategy.Gather(value, 0).status(); });
  expect([](Strategy& strategy, const Value& value) {
    return strategy.Run([&value] { return GetReplicaContext()->AllReduce(ReduceOp::kSum, value); })
        .status();
  });
}

TEST(MultiWorkerMirrored, ADestinationThatOneWorkerRefusesFailsOnAll) {
  for (const bool of_each : {false, true}) {
    const auto to = [of_each](const Destinations& destination, bool batch) {
      return [=](Strategy& strategy) {
        const Value value = of_each ? OfReplicas(strategy, Scalar(1)) : Scalar(1);
        if (!batch) return strategy.ReduceTo(ReduceOp::kSum, value, destination).status();
        const Value last = OfReplicas(strategy, Scalar(1));
        return strategy.BatchReduceTo(ReduceOp::kSum, {{{value, destination}, {last, Cpu(0)}}})
            .status();
      };
    };
    for (const bool batch : {false, true}) {
      ExpectRefusalOnAll(2, "variable is null", to(Cpu(0), batch), to(VariablePtr(), batch));
    }
  }
}

TEST(MultiWorkerMirrored, AReductionThatOneWorkerRefusesFailsOnAll) {
  const auto reduce = [](ReduceOp op, const Value& value, const Axes& axes = {}) {
    return [=](Strategy& strategy) { return strategy.Reduce(op, value, axes).status(); };
  };
  const Call good = reduce(ReduceOp::kSum, Floats({1}), Axes({0}));
  ExpectRefusalOnAll(1, "found reduce op 7; allowed: SUM, MEAN", good,
                     reduce(kNoOp, Floats({1}), Axes({0})));
  ExpectRefusalOnAll(1, "texts have no sum", reduce(ReduceOp::kSum, Floats({1})),
                     reduce(ReduceOp::kSum, Tensor::Texts({1}, {"a"})));
  ExpectRefusalOnAll(2, "cannot be reduced with sum", reduce(ReduceOp::kSum, Floats({1})),
                     reduce(ReduceOp::kSum, Value::Mirrored({Floats({1}), Floats({1})})));
  // Only the last replica of the worker gives the options.
  const auto all_reduce = [](ReduceOp op, const CommunicationOptions& options) {
    return [=](Strategy& strategy) {
      return OnReplicas(strategy, [&] {
        const auto context = GetReplicaContext();
        const bool last = context->local_replica() == strategy.local_replicas() - 1;
        return context->AllReduce(op, Floats({1}), last ? options : CommunicationOptions())
            .status();
      });
    };
  };
  const auto kSum = ReduceOp::kSum;
  ExpectRefusalOnAll(2, "found reduce op 7", all_reduce(kSum, {}), all_reduce(kNoOp, {}));
  ExpectRefusalOnAll(2, "bytes_per_pack is -1", all_reduce(kSum, {}),
                     all_reduce(kSum, {.bytes_per_pack = -1}));
  for (const int32_t devices : {1, 2}) {
    ExpectRefusalOnAll(devices, "timeout is -1s", all_reduce(kSum, {}),
                       all_reduce(kSum, {.timeout = absl::Seconds(-1)}));
  }
}

// Worker 0 sums, worker 1 takes the mean of the same value: both fail, and both ops are named.
TEST(MultiWorkerMirrored, ASumOnOneWorkerAndAMeanOnAnotherFailOnAll) {
  using Reduction = std::function<absl::Status(Strategy&, ReduceOp)>;
  const auto expect = [](const Reduction& reduce) {
    for (const int32_t devices : {1, 2}) {
      Workers(2, devices, absl::Seconds(10)).Each([&](MultiWorkerMirroredStrategy& strategy) {
        const ReduceOp op = strategy.worker_index() == 0 ? ReduceOp::kSum : ReduceOp::kMean;
        EXPECT_THAT(reduce(strategy, op),
                    StatusIs(kRefused, AllOf(HasSubstr("ranks disagree: rank 0 ("),
                                             HasSubstr("sum"), HasSubstr("for a mean"))));
        EXPECT_OK(reduce(strategy, ReduceOp::kMean));
        EXPECT_OK(reduce(strategy, ReduceOp::kSum));
      });
    }
  };
  const Value slices = IndexedSlices{Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({1})};
  for (const Value& value : {Floats({1, 2}), slices}) {
    expect([&value](Strategy& strategy, ReduceOp op) {
      return strategy.Reduce(op, value, {}).status();
    });
    expect([&value](Strategy& strategy, ReduceOp op) {
      return strategy.ReduceTo(op, OfReplicas(strategy, value), Cpu(0)).status();
    });
    expect([&value](Strategy& strategy, ReduceOp op) {
      return OnReplicas(strategy,
                        [&] { return GetReplicaContext()->AllReduce(op, value).status(); });
    });
  }
  // float64, as the numbers of elements.
  for (const Value& value : {Floats({1, 2}), Value(Tensor::Vector<double>({1, 2}))}) {
    expect([&value](Strategy& strategy, ReduceOp op) {
      return strategy.Reduce(op, value, Axes({0})).status();
    });
  }
}

// The buffers of the two workers are alike, and their shapes are not.
TEST(MultiWorkerMirrored, ShapesThatDifferBetweenWorkersFailOnAll) {
  const auto expect = [](const std::function<absl::Status(Strategy&, const Shape&)>& call,
                         const Shape& first, const Shape& other) {
    for (const int32_t devices : {1, 2}) {
      Workers(2, devices, absl::Seconds(10)).Each([&](MultiWorkerMirroredStrategy& strategy) {
        EXPECT_THAT(call(strategy, strategy.worker_index() == 0 ? first : other),
                    StatusIs(kRefused, HasSubstr(" with values of other shapes")));
        EXPECT_OK(call(strategy, other));
      });
    }
  };
  for (const auto& [first, other] :
       {std::pair(Shape{2, 3}, Shape{3, 2}), std::pair(Shape{6}, Shape{6, 1})}) {
    const auto zeros = [](const Shape& shape) { return Tensor::Zeros(DType::kFloat32, shape); };
    expect(
        [&](Strategy& strategy, const Shape& shape) {
          const Value value = OfReplicas(strategy, zeros(shape));
          return strategy.ReduceTo(ReduceOp::kSum, value, Cpu(0)).status();
        },
        first, other);
    expect(
        [&](Strategy& strategy, const Shape& shape) {
          return Creating({.initial_value = zeros(shape)},
                          false)(static_cast<MultiWorkerMirroredStrategy&>(strategy));
        },
        first, other);
  }
  // Rows of slices, whose number may differ.
  const auto slices = [](Strategy& strategy, const Shape& row) {
    const int64_t rows = strategy.worker_index() + 1;
    Shape shape = row;
    shape.insert(shape.begin(), rows);
    return strategy
        .Reduce(ReduceOp::kSum,
                IndexedSlices{Tensor::Zeros(DType::kInt64, {rows}),
                              Tensor::Zeros(DType::kFloat32, shape)},
                {})
        .status();
  };
  expect(slices, {2, 3}, {3, 2});
  expect(slices, {2}, {3});
}

TEST(MultiWorkerMirrored, AGatherThatOneWorkerRefusesFailsOnAll) {
  const auto gather = [](const Value& value, int64_t axis) {
    return [=](Strategy& strategy) { return strategy.Gather(value, axis).status(); };
  };
  const Value square = Tensor::Zeros(DType::kFloat32, {2, 2});
  const Value wide = Tensor::Zeros(DType::kFloat32, {2, 3});
  ExpectRefusalOnAll(1, "axis 2 is out of range", gather(square, 0), gather(square, 2));
  for (const bool same_shape : {true, false}) {
    Workers(2, 1, absl::Seconds(10)).Each([&](MultiWorkerMirroredStrategy& strategy) {
      const bool other = strategy.worker_index() == 1;
      EXPECT_THAT(gather(other && !same_shape ? wide : square, other ? 1 : 0)(strategy),
                  StatusIs(kRefused, HasSubstr("worker 1 along axis 1; give one axis")));
      EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, Scalar(1), {})), ElementsAre(2));
    });
  }
  const auto all_gather = [](bool alike) {
    return [alike](Strategy& strategy) {
      return OnReplicas(strategy, [&] {
        const bool list = !alike && ReplicaId() == strategy.num_replicas_in_sync() - 1;
        const Value own = list ? Value::List({Floats({1})}) : Floats({1});
        return GetReplicaContext()->AllGather(own, 0).status();
      });
    };
  };
  ExpectRefusalOnAll(2, "replica 0 gives float32 [1], replica 1 list", all_gather(true),
                     all_gather(false));
}

TEST(MultiWorkerMirrored, AVariableThatOneWorkerCannotCreateFailsOnAll) {
  const Tensor zero = Tensor::Scalar<int32_t>(0);
  const auto expect = [&zero](const std::string& why, const VariableOptions& bad,
                              absl::StatusCode own = kRefused) {
    for (const bool in_replicas : {false, true}) {
      ExpectRefusalOnAll(2, why, Creating({.initial_value = zero}, in_replicas),
                         Creating(bad, in_replicas), own);
    }
  };
  expect("no file", {.initializer = [] { return absl::NotFoundError("no file"); }},
         absl::StatusCode::kNotFound);
  expect("boom",
         {.initializer = []() -> absl::StatusOr<Tensor> { throw std::runtime_error("boom"); }},
         absl::StatusCode::kUnknown);
  expect("neither an initial value nor an initializer", {});
  expect("texts cannot be variables", {.initial_value = Tensor::Texts({1}, {"a"})});
  expect("none of the enumerators",
         {.initial_value = zero, .aggregation = static_cast<VariableAggregation>(9)});
  expect("aggregation MEAN of int32",
         {.initial_value = zero, .aggregation = VariableAggregation::kMean});
}

TEST(MultiWorkerMirrored, NamesThatDifferBetweenTheReplicasOfOneWorkerFailOnAll) {
  const auto create = [](bool same) {
    return [same](Strategy& strategy) {
      return OnReplicas(strategy, [&] {
        const bool last = GetReplicaContext()->local_replica() == 2;
        return CreateVariable(
                   {.name = !same && last ? "w" : "v", .initial_value = Tensor::Scalar(1.0F)})
            .status();
      });
    };
  };
  ExpectRefusalOnAll(3, "different names: replica 0 \"v\", replica 2 \"w\"", create(true),
                     create(false), absl::StatusCode::kFailedPrecondition);
}

// The others make the optimizer's update count.
TEST(MultiWorkerMirrored, AVariableThatOneWorkersOptimizerRefusesFailsOnAll) {
  for (const bool builds : {false, true}) {
    Workers(2, 2, absl::Seconds(10)).Each([&](MultiWorkerMirroredStrategy& strategy) {
      const VariablePtr good =
          VariableOf(strategy, Tensor::Scalar<float>(0), VariableAggregation::kNone);
      const VariablePtr bad =
          VariableOf(strategy, Tensor::Scalar<int32_t>(0), VariableAggregation::kNone);
      const VariablePtr& v = strategy.worker_index() == 0 ? good : bad;
      const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
      const absl::Status status =
          builds ? optimizer->Build({{v}})
                 : optimizer->ApplyGradients({{Value::Mirrored({Scalar(1), Scalar(1)}), v}},
                                             {.skip_aggregation = true});
      EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("optimizers move float32 and float64")));
      EXPECT_OK(optimizer->Build({{good}}));
    });
  }
}

// The last replica of worker 1 fails where the others wait in a call with worker 0.
TEST(MultiWorkerMirrored, AReplicaThatFailsBesideOthersInACollectiveFailsOnAll) {
  using OnReplica = std::function<absl::Status(const VariablePtr&)>;
  const std::vector<OnReplica> calls = {
      [](const VariablePtr&) {
        return GetReplicaContext()->AllReduce(ReduceOp::kSum, Scalar(1)).status();
      },
      [](const VariablePtr&) { return GetReplicaContext()->AllGather(Floats({1}), 0).status(); },
      [](const VariablePtr&) {
        return CreateVariable({.initial_value = Tensor::Scalar<float>(0)}).status();
      },
      [](const VariablePtr& v) { return v->Assign(Scalar(1)); },
      [](const VariablePtr& v) {
        return VariableOptimizer::Create({.type = "sgd"}).value()->ApplyGradients({{Scalar(1), v}});
      }};
  for (const OnReplica& call : calls) {
    const auto make = [&call](bool fails) {
      return [&call, fails](Strategy& strategy) {
        const VariablePtr v =
            VariableOf(strategy, Tensor::Scalar<float>(0), VariableAggregation::kMean);
        return OnReplicas(strategy, [&]() -> absl::Status {
          if (fails && GetReplicaContext()->local_replica() == 1)
            return absl::DataLossError("bad row");
          return call(v);
        });
      };
    };
    ExpectRefusalOnAll(2, "bad row", make(false), make(true), absl::StatusCode::kDataLoss);
  }
}

// A sum of equal copies is an error whatever the others do.
TEST(MultiWorkerMirrored, ASumOfEqualCopiesOnOneWorkerIsReportedAtOnce) {
  absl::Notification reported;
  Workers(2, 2, absl::Seconds(30)).Each([&reported](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr v =
        VariableOf(strategy, Tensor::Scalar<float>(5), VariableAggregation::kNone);
    const auto sum = [&strategy](const Value& value) {
      return strategy.Reduce(ReduceOp::kSum, value, {});
    };
    const auto refused = StatusIs(kRefused, HasSubstr("cannot be reduced with sum"));
    if (strategy.worker_index() == 1) {
      EXPECT_THAT(sum(v), refused);
      reported.Notify();
    } else {
      ASSERT_TRUE(reported.WaitForNotificationWithTimeout(absl::Seconds(20)));
      EXPECT_THAT(sum(Scalar(1)), refused);
    }
    EXPECT_THAT(Doubles(sum(Scalar(1))), ElementsAre(2));
  });
}

// The reason arrives, though the worker does not wait until the others have it.
TEST(MultiWorkerMirrored, AWorkerThatRefusesAndLeavesTellsTheOthersWhy) {
  const auto server = ControlServer::Start(OwnAddress()).value();
  absl::Notification created, left;
  OnRanks(2, [&](int rank) {
    auto strategy = MultiWorkerMirroredStrategy::Create({.workers = {OwnAddress(), OwnAddress()},
                                                         .worker_index = rank,
                                                         .devices = ReplicaDevices(1),
                                                         .rendezvous_address = server->address()})
                        .value();
    if (rank == 0) {
      created.Notify();
      ASSERT_TRUE(left.WaitForNotificationWithTimeout(absl::Seconds(20)));
      const absl::Status status = strategy->Reduce(ReduceOp::kSum, Scalar(1), {}).status();
      EXPECT_THAT(status.message(), HasSubstr("texts have no sum"));
      EXPECT_FALSE(status.ok());
      return;
    }
    ASSERT_TRUE(created.WaitForNotificationWithTimeout(absl::Seconds(60)));
    EXPECT_FALSE(strategy->Reduce(ReduceOp::kSum, Tensor::Texts({1}, {"a"}), {}).ok());
    strategy.reset();
    left.Notify();
  });
}

TEST(MultiWorkerMirrored, TheFirstReplicasCopyIsReadWithoutTheOthers) {
  Workers(2, 2).Each([](MultiWorkerMirroredStrategy& strategy) {
    const VariablePtr v =
        VariableOf(strategy, Tensor::Scalar<float>(0), VariableAggregation::kOnlyFirstReplica,
                   VariableSynchronization::kOnRead);
    ASSERT_OK(OnReplicas(strategy, [&] { return v->Assign(Scalar(ReplicaId() + 1)); }));
    const auto sum = [&strategy] {
      return Doubles(strategy.Reduce(ReduceOp::kSum, Scalar(1), {}));
    };
    if (strategy.should_checkpoint()) {
      EXPECT_THAT(Doubles(Value(v)), ElementsAre(1));
    }
    EXPECT_THAT(sum(), ElementsAre(2));
    if (!strategy.should_checkpoint()) {
      EXPECT_THAT(Doubles(Value(v)), ElementsAre(3));
    }
    EXPECT_THAT(sum(), ElementsAre(2));
  });
}

}  // namespace
}  // namespace cairn::test
