// Sections A and F1–F3 of the conformance cases: reductions, run and contexts, by id.
#include <cmath>
#include <functional>

#include "tests/worker/strategy/case_support.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Value kSquare = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});

TEST(Cases, A1_ReduceMeanAxisOfTheDefaultStrategy) {
  Strategy& strategy = DefaultStrategy();
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, kSquare, {{0}})), ElementsAre(2, 3));
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, kSquare, {{0, 1}})), ElementsAre(2.5));
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kMean, kSquare, {})), ElementsAre(1, 2, 3, 4));
}

TEST(Cases, A2_ReduceSumAxisOfTheDefaultStrategy) {
  Strategy& strategy = DefaultStrategy();
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, kSquare, {{0}})), ElementsAre(4, 6));
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, kSquare, {{0, 1}})), ElementsAre(10));
  EXPECT_THAT(Doubles(strategy.Reduce(ReduceOp::kSum, kSquare, {})), ElementsAre(1, 2, 3, 4));
}

TEST(Cases, A3_ReductionsAcceptNames) {
  const auto strategy = Mirrored(2);
  const Value values = PerReplica({Scalar(1), Scalar(3)});
  for (const char* name : {"SUM", "sum", "MEAN", "mean"}) {
    const ReduceOp op = ReduceOpFromName(name).value();
    const double want = op == ReduceOp::kSum ? 4 : 2;
    EXPECT_THAT(Doubles(strategy->Reduce(op, values, {})), ElementsAre(want)) << name;
    EXPECT_THAT(Doubles(strategy->ReduceTo(op, values, Cpu(0))), ElementsAre(want)) << name;
    const std::vector<std::pair<Value, Destinations>> pairs = {{values, Cpu(0)}};
    EXPECT_THAT(Doubles(strategy->BatchReduceTo(op, pairs).value()[0]), ElementsAre(want)) << name;
  }
}

TEST(Cases, A4_ReduceCountsReplicas) {
  for (const int32_t replicas : {1, 2, 3}) {
    const auto strategy = Mirrored(replicas);
    const auto ones =
        strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> { return Scalar(1); });
    EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kSum, *ones, {})), ElementsAre(replicas));
  }
}

TEST(Cases, A5_ReduceAxis) {
  const auto strategy = Mirrored(3);
  const auto rows = strategy->Run([](absl::Span<const Value>) -> absl::StatusOr<Value> {
    return Floats({1, 2});
  });
  EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kMean, *rows, {{0}})), ElementsAre(1.5));
  EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kSum, *rows, {{0}})), ElementsAre(9));
}

TEST(Cases, A7_ReduceAxisWeighsByElements) {
  for (const DType dtype : {DType::kFloat32, DType::kInt32}) {
    const auto strategy = Mirrored(2);
    const Value values = PerReplica({Tensor::Full(dtype, {1}, 0), Tensor::Full(dtype, {2}, 1)});
    EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kSum, values, {{0}})), ElementsAre(2));
    EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kMean, values, {{0}}))[0],
                ::testing::DoubleNear(2.0 / 3, 1e-6));
  }
}

TEST(Cases, A9_ReduceWithDynamicShapes) {
  const auto strategy = Mirrored(2);
  const Dataset dataset = Dataset::FromTensorSlices({Tensor::Vector<float>({5, 6, 7})}).Batch(4);
  const auto iterator = strategy->DistributeDataset(dataset).value().MakeIterator().value();
  std::vector<Element> step;
  ASSERT_TRUE(iterator->Next(&step).value());
  EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kMean, StepValue(step), {{0}})), ElementsAre(6));
  const Value ones = PerReplica(
      {Tensor::Full(DType::kFloat32, {2, 2}, 1), Tensor::Full(DType::kFloat32, {1, 2}, 1)});
  EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kMean, ones, {{0}})), ElementsAre(1, 1));
}

TEST(Cases, A11_RunTakesAndReturnsStructures) {
  const auto strategy = Mirrored(2);
  const auto first = strategy->Run(
      [](absl::Span<const Value>) -> absl::StatusOr<Value> { return Scalar(ReplicaId() + 1); });
  const auto number = [](const Value& value) { return NumbersOf(value.tensor())[0]; };
  const auto second = strategy->Run(
      [&number](absl::Span<const Value> args) -> absl::StatusOr<Value> {
        const double x = number(args[0]);
        return Value::OfDict({{"a", Scalar(2 * x)}, {"b", Scalar(x * x)}});
      },
      {*first});
  const auto third = strategy->Run(
      [&number](absl::Span<const Value> args) -> absl::StatusOr<Value> {
        const Value::Dict& dict = args[0].dict();
        return Scalar(number(dict.at("a")) + 2 * number(dict.at("b")) + 2);
      },
      {*second});
  const auto each = [&strategy](const Value& value) {
    std::vector<double> numbers;
    const std::vector<Value> locals = strategy->LocalResults(value).value();
    for (const Value& local : locals) {
      numbers.push_back(Doubles(local)[0]);
    }
    return numbers;
  };
  EXPECT_THAT(each(*first), ElementsAre(1, 2));
  EXPECT_THAT(each(second->dict().at("a")), ElementsAre(2, 4));
  EXPECT_THAT(each(second->dict().at("b")), ElementsAre(1, 4));
  EXPECT_THAT(each(*third), ElementsAre(6, 14));
}

// The result for both replicas of an all-reduce of replica r's `values[r]`.
std::vector<double> AllReduced(ReduceOp op, const std::vector<Value>& values) {
  const auto strategy = Mirrored(static_cast<int32_t>(values.size()));
  const auto result = strategy->Run(
      [op](absl::Span<const Value> args) { return GetReplicaContext()->AllReduce(op, args[0]); },
      {PerReplica(values)});
  const std::vector<Value> locals = strategy->LocalResults(*result).value();
  EXPECT_EQ(Doubles(locals[0]), Doubles(locals[1]));
  return Doubles(locals[0]);
}

TEST(Cases, A12_AllReduce) {
  const std::vector<Value> scalars = {Scalar(1), Scalar(3)};
  const std::vector<Value> vectors = {Floats({39, 2}), Floats({3, 41})};
  EXPECT_THAT(AllReduced(ReduceOp::kSum, scalars), ElementsAre(4));
  EXPECT_THAT(AllReduced(ReduceOp::kSum, vectors), ElementsAre(42, 43));
  EXPECT_THAT(AllReduced(ReduceOp::kMean, scalars), ElementsAre(2));
  EXPECT_THAT(AllReduced(ReduceOp::kMean, vectors), ElementsAre(21, 21.5));
}

// y = all_reduce(x) * c with c = 1 and 3: the gradient of x is the all-reduced c.
TEST(Cases, A13_AllReduceGradient) {
  for (const auto& [op, want] : {std::pair(ReduceOp::kSum, 4.0), std::pair(ReduceOp::kMean, 2.0)}) {
    const auto strategy = Mirrored(2);
    const auto gradient =
        strategy->Run([op = op](absl::Span<const Value>) -> absl::StatusOr<Value> {
          return GetReplicaContext()->AllReduceGradient(op, Scalar(ReplicaId() == 0 ? 1 : 3));
        });
    const std::vector<Value> locals = strategy->LocalResults(*gradient).value();
    for (const Value& local : locals) {
      EXPECT_THAT(Doubles(local), ElementsAre(want));
    }
  }
}

TEST(Cases, A14_MergeCallOutsideEveryStrategy) {
  const auto merged = GetReplicaContext()->MergeCall(
      [](Strategy&, absl::Span<const Value> args) -> absl::StatusOr<Value> {
        EXPECT_EQ(GetReplicaContext(), nullptr);
        EXPECT_FALSE(HasStrategy());
        return Value("foo_" + args[0].text());
      },
      {Value("bar")});
  ASSERT_OK(merged);
  EXPECT_EQ(merged->text(), "foo_bar");
}

TEST(Cases, A16_ErrorsOfFunctionsAreReturned) {
  const auto strategy = Mirrored(2);
  const absl::Status chosen = absl::DataLossError("a chosen error");
  EXPECT_EQ(OnReplicas(*strategy, [&chosen] { return chosen; }), chosen);
  EXPECT_EQ(OnReplicas(*strategy,
                       [&chosen] {
                         return GetReplicaContext()
                             ->MergeCall([&chosen](Strategy&, absl::Span<const Value>)
                                             -> absl::StatusOr<Value> { return chosen; })
                             .status();
                       }),
            chosen);
}

TEST(Cases, A17_ScopesNest) {
  const auto strategy = Mirrored(2);
  const Scope outer = strategy->EnterScope().value();
  {
    const Scope inner = strategy->EnterScope().value();
    EXPECT_EQ(&GetStrategy(), strategy.get());
  }
  EXPECT_EQ(&GetStrategy(), strategy.get());
  EXPECT_THAT(SetStrategy(strategy.get()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("must not be called inside")));
}

TEST(Cases, A17_LeavingAScopeWithADeviceScopeOpen) {
  OneDeviceStrategy strategy(Cpu(0));
  Scope scope = strategy.EnterScope().value();
  {
    const DeviceScope open(Cpu(1));
    EXPECT_THAT(scope.Exit(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("DeviceScope nesting error")));
  }
  EXPECT_OK(scope.Exit());
}

// A structure gives one result for each replica, even if no leaf is distributed.
TEST(Cases, A18_LocalResultsOfStructuresOfHostNumbers) {
  const auto strategy = Mirrored(2);
  const Value dict = Value::OfDict({{"a", 1.0}, {"b", 2.0}});
  const auto run = strategy->Run([&dict] { return dict; });
  ASSERT_OK(run);
  const std::vector<Value> results = strategy->LocalResults(*run).value();
  ASSERT_EQ(results.size(), 2);
  for (const Value& result : results) EXPECT_EQ(result.dict().at("b").number(), 2);
  EXPECT_EQ(strategy->LocalResults(Value::List({1, 2}))->size(), 2);
  EXPECT_EQ(strategy->LocalResults(Value::Tuple({}))->size(), 2);
  EXPECT_EQ(strategy->LocalResults(Value(1.0))->size(), 1);
  EXPECT_EQ(strategy->LocalResults(Value())->size(), 1);
}

TEST(Cases, ReduceToAndBatchReduceToOfStructures) {
  const auto strategy = Mirrored(2);
  const Value tuple = Value::Tuple(
      {PerReplica({Scalar(1), Scalar(2)}), Value::List({PerReplica({Scalar(3), Scalar(4)})})});
  const auto sum = strategy->ReduceTo(ReduceOp::kSum, tuple, Cpu(0));
  ASSERT_OK(sum);
  EXPECT_THAT(Doubles(sum->items()[0]), ElementsAre(3));
  EXPECT_THAT(Doubles(sum->items()[1].items()[0]), ElementsAre(7));
  const std::vector<std::pair<Value, Destinations>> pairs = {
      {tuple, Cpu(0)}, {PerReplica({Scalar(5), Scalar(7)}), Cpu(0)}};
  const auto means = strategy->BatchReduceTo(ReduceOp::kMean, pairs);
  ASSERT_OK(means);
  EXPECT_THAT(Doubles((*means)[0].items()[0]), ElementsAre(1.5));
  EXPECT_THAT(Doubles((*means)[1]), ElementsAre(6));
}

// With one replica, slices are their own sum, on the destination.
TEST(Cases, ReduceToOfOneReplicasSlices) {
  const auto strategy = Mirrored(1);
  const Value slices = IndexedSlices{Tensor::Vector<int64_t>({3}), Tensor::Vector<float>({2})};
  for (const auto& result : {strategy->ReduceTo(ReduceOp::kSum, slices, Cpu(0)),
                             strategy->Reduce(ReduceOp::kSum, slices, {})}) {
    ASSERT_OK(result);
    EXPECT_THAT(NumbersOf(result->slices().indices), ElementsAre(3));
    EXPECT_THAT(NumbersOf(result->slices().values), ElementsAre(2));
  }
}

TEST(Cases, A20_GatherPerReplicaDense) {
  for (const int32_t replicas : {2, 3}) {
    const auto strategy = Mirrored(replicas);
    std::vector<Value> vectors, rows, columns;
    for (int32_t r = 0; r < replicas; ++r) {
      vectors.push_back(Floats({1, 2, 3}));
      rows.emplace_back(Tensor::Of<float>({1, 3}, {1, 2, 3}));
      columns.emplace_back(Tensor::Full(DType::kFloat32, {r + 1, 1}, r));
    }
    const auto shape = [&strategy](std::vector<Value> values, int64_t axis) {
      return strategy->Gather(PerReplica(std::move(values)), axis).value().tensor().shape();
    };
    EXPECT_EQ(shape(vectors, 0), Shape({3 * replicas}));
    EXPECT_EQ(shape(rows, 1), Shape({1, 3 * replicas}));
    EXPECT_EQ(shape(columns, 0), Shape({replicas * (replicas + 1) / 2, 1}));
  }
}

// TensorFlow 2.21 returns it, also where it is a scalar.
TEST(Gather, AValueThatIsNotDistributedIsWhole) {
  for (const int32_t replicas : {1, 2, 3}) {
    const auto strategy = Mirrored(replicas);
    EXPECT_THAT(Doubles(strategy->Gather(Tensor::Vector<float>({1, 2}), 0)), ElementsAre(1, 2));
    EXPECT_THAT(Doubles(strategy->Gather(Tensor::Scalar<float>(3), 0)), ElementsAre(3));
  }
}

TEST(Cases, A21_GatherRefuses) {
  for (const auto& strategy : {Mirrored(2), Central(2)}) {
    const Value slices =
        IndexedSlices{Tensor::Vector<int64_t>({0}), Tensor::Zeros(DType::kFloat32, {1})};
    EXPECT_THAT(strategy->Gather(slices, 0),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("gather does not support IndexedSlices")));
    const auto zeros = [](const Shape& shape) { return Tensor::Zeros(DType::kFloat32, shape); };
    EXPECT_THAT(strategy->Gather(PerReplica({zeros({1, 1}), zeros({1, 2})}), 0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[1, 2]")));
    EXPECT_THAT(strategy->Gather(PerReplica({zeros({1}), zeros({1, 1})}), 0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[1, 1]")));
  }
}

// The strategies with one replica.
std::vector<std::unique_ptr<Strategy>> OfOneReplica() {
  std::vector<std::unique_ptr<Strategy>> strategies;
  strategies.push_back(Mirrored(1));
  strategies.push_back(
      MirroredStrategy::Create(ReplicaDevices(1),
                               {.cross_device_ops = CrossDeviceOps::kHierarchicalCopy})
          .value());
  strategies.push_back(Central(1));
  strategies.push_back(std::make_unique<OneDeviceStrategy>(ReplicaDevice(0)));
  return strategies;
}

TEST(OneReplica, APerReplicaOfOneComponentIsReducedToIt) {
  const auto check = [](Strategy& strategy) {
    SCOPED_TRACE(strategy.name());
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const Value three = PerReplica({Scalar(3)});
      EXPECT_THAT(Doubles(strategy.Reduce(op, three, {})), ElementsAre(3));
      EXPECT_THAT(Doubles(strategy.ReduceTo(op, three, Cpu(0))), ElementsAre(3));
      EXPECT_THAT(Doubles(strategy.BroadcastTo(three, Cpu(0))), ElementsAre(3));
      const auto in_list = strategy.Reduce(op, Value::List({three}), {});
      ASSERT_OK(in_list);
      EXPECT_THAT(Doubles(in_list->items()[0]), ElementsAre(3));
      const auto slices = strategy.Reduce(
          op, PerReplica({IndexedSlices{Tensor::Vector<int64_t>({3}), Tensor::Vector<float>({2})}}),
          {});
      ASSERT_OK(slices);
      EXPECT_THAT(NumbersOf(slices->slices().values), ElementsAre(2));
    }
  };
  for (const auto& strategy : OfOneReplica()) check(*strategy);
  check(DefaultStrategy());
}

TEST(OneReplica, TheMeanOfIntegersKeepsTheirDtype) {
  const Value integers = Tensor::Vector<int64_t>({1, 2});
  const auto is_unchanged = [](const absl::StatusOr<Value>& mean) {
    ASSERT_OK(mean);
    EXPECT_EQ(mean->tensor().dtype(), DType::kInt64);
    EXPECT_THAT(NumbersOf(mean->tensor()), ElementsAre(1, 2));
  };
  const auto all_reduce = [&integers] {
    return GetReplicaContext()->AllReduce(ReduceOp::kMean, integers);
  };
  for (const auto& strategy : OfOneReplica()) {
    SCOPED_TRACE(strategy->name());
    const Value value = PerReplica({integers});
    const std::vector<std::pair<Value, Destinations>> pairs = {{value, Cpu(0)}};
    is_unchanged(strategy->Run(all_reduce));
    is_unchanged(strategy->Reduce(ReduceOp::kMean, value, {}));
    is_unchanged(strategy->ReduceTo(ReduceOp::kMean, value, Cpu(0)));
    is_unchanged(strategy->BatchReduceTo(ReduceOp::kMean, pairs).value()[0]);
  }
  is_unchanged(all_reduce());
}

// With two replicas, whose ON_READ copies are 1 and 3.
TEST(Collectives, TakeEachReplicasCopyOfAVariable) {
  const auto strategy = Mirrored(2);
  const auto each = [&strategy](const std::function<absl::StatusOr<Value>(ReplicaContext&)>& fn) {
    const auto all = strategy->Run([&fn] { return fn(*GetReplicaContext()); });
    EXPECT_OK(all);
    const std::vector<Value> locals = strategy->LocalResults(*all).value();
    EXPECT_EQ(Doubles(locals[0]), Doubles(locals[1]));
    return Doubles(locals[0]);
  };
  for (const auto aggregation :
       {VariableAggregation::kSum, VariableAggregation::kMean,
        VariableAggregation::kOnlyFirstReplica, VariableAggregation::kNone}) {
    const VariablePtr variable = VariableOf(*strategy, Tensor::Zeros(DType::kFloat32, {1}),
                                            aggregation, VariableSynchronization::kOnRead);
    ASSERT_OK(OnReplicas(
        *strategy, [&] { return variable->Assign(Floats({ReplicaId() == 0 ? 1.0F : 3.0F})); }));
    const auto reduced = [&](ReduceOp op) {
      return each([&](ReplicaContext& context) { return context.AllReduce(op, variable); });
    };
    EXPECT_THAT(reduced(ReduceOp::kSum), ElementsAre(4));
    EXPECT_THAT(reduced(ReduceOp::kMean), ElementsAre(2));
    EXPECT_THAT(each([&](ReplicaContext& context) { return context.AllGather(variable, 0); }),
                ElementsAre(1, 3));
  }
  const VariablePtr mirrored =
      VariableOf(*strategy, Tensor::Vector<float>({5}), VariableAggregation::kMean);
  const Value distributed = PerReplica({Scalar(1), Scalar(3)});
  const auto sum_of = [&each](const Value& value) {
    return each(
        [&value](ReplicaContext& context) { return context.AllReduce(ReduceOp::kSum, value); });
  };
  EXPECT_THAT(sum_of(mirrored), ElementsAre(10));
  EXPECT_THAT(sum_of(distributed), ElementsAre(4));
}

TEST(Cases, F1_F2_ReduceAndBatchReduceDense) {
  const auto sums = [](int32_t replicas, ReduceOp op) {
    const auto strategy = Mirrored(replicas);
    std::vector<Value> first, second;
    for (int32_t r = 0; r < replicas; ++r) {
      first.push_back(Scalar(2 * r + 1));
      second.push_back(Scalar(2 * r + 2));
    }
    const std::vector<std::pair<Value, Destinations>> pairs = {
        {PerReplica(first), Destinations(Cpu(0))}, {PerReplica(second), Destinations(Cpu(0))}};
    const std::vector<Value> results = strategy->BatchReduceTo(op, pairs).value();
    return std::vector<double>{Doubles(results[0])[0], Doubles(results[1])[0]};
  };
  EXPECT_THAT(sums(2, ReduceOp::kSum), ElementsAre(4, 6));
  EXPECT_THAT(sums(2, ReduceOp::kMean), ElementsAre(2, 3));
  EXPECT_THAT(sums(4, ReduceOp::kSum), ElementsAre(16, 20));
  EXPECT_THAT(sums(4, ReduceOp::kMean), ElementsAre(4, 5));
}

TEST(Cases, F3_ReduceSparseConcatenates) {
  const auto strategy = Mirrored(2);
  const auto slices = [](std::vector<int64_t> rows, std::vector<float> values) -> Value {
    return IndexedSlices{Tensor::Vector<int64_t>(rows), Tensor::Vector<float>(values)};
  };
  const auto sum = strategy->ReduceTo(
      ReduceOp::kSum, PerReplica({slices({0, 1}, {1, 2}), slices({1, 2}, {3, 4})}), Cpu(0));
  ASSERT_OK(sum);
  EXPECT_THAT(NumbersOf(sum->slices().indices), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(NumbersOf(sum->slices().values), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace cairn::test
