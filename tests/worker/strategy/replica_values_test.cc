// Each replica's part of values and variables: components in updates, components that replicas
// return, local results, and structures that become distributed values.
#include <vector>

#include "tests/worker/strategy/case_support.h"
#include "worker/strategy/one_device_strategy.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

VariablePtr MeanVariable(Strategy& strategy) {
  return VariableOf(strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
}
VariablePtr MeanOnRead(Strategy& strategy) {
  return VariableOf(strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean,
                    VariableSynchronization::kOnRead);
}

// --- Updates

TEST(UpdateNonSlot, GivesEachDeviceItsComponentOfTheArguments) {
  const auto strategy = Mirrored(2);
  const Value each = PerReplica({Scalar(1), Scalar(2)});
  std::vector<double> seen;
  const auto look = [&seen](absl::Span<const Value> args) {
    seen.push_back(Doubles(args[0])[0]);
    seen.push_back(Doubles(args[1].items()[0])[0]);
    seen.push_back(args[2].number());
  };
  ASSERT_OK(
      strategy->UpdateNonSlot(strategy->worker_devices(), look, {each, Value::List({each}), 7}));
  EXPECT_THAT(seen, ElementsAre(1, 1, 7, 2, 2, 7));
  const std::vector<Device> three = {Cpu(0), Cpu(1), Cpu(2)};
  EXPECT_THAT(
      strategy->UpdateNonSlot(three, [] {}, {each}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2 components, none for replica 2")));
}

// The index of an update selects the copy, and there may be more updates than copies.
TEST(UpdateNonSlot, BeyondAVariablesCopiesRefusesTheVariable) {
  const auto strategy = Mirrored(2);
  const std::vector<Device> three = {Cpu(0), Cpu(1), Cpu(2)};
  const auto refused =
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("of variable \"v\""), HasSubstr("2 copies, in update 2")));
  const IndexedSlices row = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({1})};
  for (const VariablePtr& v : {MeanVariable(*strategy), MeanOnRead(*strategy)}) {
    for (Strategy* const by : {strategy.get(), &DefaultStrategy()}) {
      EXPECT_THAT(by->UpdateNonSlot(three, [&v] { return v->Read().status(); }), refused);
      EXPECT_THAT(by->UpdateNonSlot(three, [&v] { return v->AssignAdd(1.0); }), refused);
    }
    EXPECT_THAT(Copies(v), ElementsAre(3, 3));  // the first two updates of each call took place
  }
  const VariablePtr rows =
      VariableOf(*strategy, Tensor::Vector<float>({1, 2}), VariableAggregation::kMean);
  EXPECT_THAT(strategy->UpdateNonSlot(three, [&] { return rows->Scatter(ScatterOp::kAdd, row); }),
              refused);
}

TEST(Update, OfAVariableWithMoreCopiesRefusesTheOthers) {
  const auto two = Mirrored(2);
  const auto three = Mirrored(3);
  const VariablePtr own = MeanVariable(*two);
  EXPECT_THAT(two->Update(MeanVariable(*three), [&own] { return own->Read().status(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2 copies, in update 2")));
}

// A variable with one copy has it in every update.
TEST(UpdateNonSlot, WritesTheOneCopyOfACentralVariable) {
  const auto strategy = Central(2);
  const VariablePtr v = MeanVariable(*strategy);
  ASSERT_OK(strategy->UpdateNonSlot({{Cpu(0), Cpu(1), Cpu(2)}}, [&] { return v->AssignAdd(1.0); }));
  EXPECT_THAT(Copies(v), ElementsAre(4));
}

// --- Components of variables

TEST(Components, ThatReplicasReturnBecomeTheVariable) {
  const auto strategy = Mirrored(2);
  for (const VariablePtr& v : {MeanVariable(*strategy), MeanOnRead(*strategy)}) {
    const auto own = [&v] { return Value(v->components()[static_cast<size_t>(ReplicaId())]); };
    const auto run = strategy->Run([&own] { return Value::Tuple({own(), 1}); });
    ASSERT_OK(run);
    EXPECT_EQ(run->items()[0].variable(), v);
    const auto merged = strategy->Run([&own] {
      return GetReplicaContext()->MergeCall(
          [](Strategy&, absl::Span<const Value> args) { return args[0]; }, {own()});
    });
    ASSERT_OK(merged);
    EXPECT_EQ(merged->variable(), v);
    const auto updated = strategy->Update(
        v, [](const VariablePtr& copy, absl::Span<const Value>) { return Value(copy); });
    ASSERT_OK(updated);
    EXPECT_EQ(updated->variable(), v);
  }
}

TEST(Components, InAnotherOrderStayComponents) {
  const auto strategy = Mirrored(2);
  const VariablePtr v = MeanVariable(*strategy);
  const VariablePtr w = MeanVariable(*strategy);
  const auto others =
      strategy->Run([&v] { return v->components()[static_cast<size_t>(1 - ReplicaId())]; });
  ASSERT_OK(others);
  EXPECT_EQ(others->kind(), Value::Kind::kPerReplica);
  const auto mixed =
      strategy->Run([&] { return ReplicaId() == 0 ? v->components()[0] : w->components()[1]; });
  ASSERT_OK(mixed);
  EXPECT_EQ(mixed->kind(), Value::Kind::kPerReplica);
}

TEST(Components, KnowTheirContainerAsLongAsItExists) {
  const auto mirrored = Mirrored(2);
  const auto central = Central(2);
  for (Strategy* const strategy : {mirrored.get(), central.get()}) {
    VariablePtr v = MeanVariable(*strategy);
    EXPECT_EQ(v->container(), v);
    const std::vector<VariablePtr> copies = v->components();
    for (const VariablePtr& copy : copies) EXPECT_EQ(copy->container(), v);
    v = nullptr;
    for (const VariablePtr& copy : copies) EXPECT_EQ(copy->container(), copy);
  }
}

// --- Local results

TEST(LocalResults, OfVariablesAtAnyDepthAreTheirCopies) {
  const auto strategy = Mirrored(2);
  for (const VariablePtr& v : {MeanVariable(*strategy), MeanOnRead(*strategy)}) {
    const Value nested = Value::List({v, Value::OfDict({{"a", v}, {"b", 1}})});
    const auto locals = strategy->LocalResults(nested);
    ASSERT_OK(locals);
    ASSERT_EQ(locals->size(), 2);
    for (size_t i = 0; i < 2; ++i) {
      const Value& local = (*locals)[i];
      EXPECT_EQ(local.items()[0].variable(), v->components()[i]);
      EXPECT_EQ(local.items()[1].dict().at("a").variable(), v->components()[i]);
      EXPECT_EQ(local.items()[1].dict().at("b").integer(), 1);
      EXPECT_EQ(strategy->LocalResults(v)->at(i).variable(), v->components()[i]);
    }
  }
  EXPECT_THAT(strategy->LocalResults(Value::List({VariablePtr()})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("LocalResults: the variable is null")));
}

TEST(LocalResults, OfOneReplicaAreTheOneCopy) {
  const auto strategy = Mirrored(1);
  const VariablePtr v = MeanOnRead(*strategy);
  const std::vector<Value> locals = strategy->LocalResults(v).value();
  ASSERT_EQ(locals.size(), 1);
  EXPECT_EQ(locals[0].variable(), v->components()[0]);
}

// The copy behind a variable of CentralStorageStrategy takes unaggregated writes: it is not given.
TEST(LocalResults, OfVariablesThatReplicasShareAreTheVariables) {
  const auto strategy = Central(2);
  const VariablePtr v = MeanVariable(*strategy);
  const std::vector<Value> locals = strategy->LocalResults(v).value();
  ASSERT_EQ(locals.size(), 1);
  EXPECT_EQ(locals[0].variable(), v);
  const std::vector<Value> lists = strategy->LocalResults(Value::List({v})).value();
  ASSERT_EQ(lists.size(), 2);
  for (const Value& list : lists) EXPECT_EQ(list.items()[0].variable(), v);
}

// --- Structures

TEST(DistributeValuesFromFunction, GivesAStructureOfDistributedValues) {
  const auto strategy = Mirrored(2);
  const auto values = strategy->DistributeValuesFromFunction([](const ValueContext& context) {
    const int32_t id = context.replica_id_in_sync_group;
    return Value::Tuple({Scalar(id + 1), Value::OfDict({{"n", id}, {"same", 5}})});
  });
  ASSERT_OK(values);
  ASSERT_EQ(values->kind(), Value::Kind::kTuple);
  EXPECT_EQ(values->items()[1].dict().at("same").kind(), Value::Kind::kPerReplica);
  const auto sums = strategy->Reduce(ReduceOp::kSum, *values, {});
  ASSERT_OK(sums);
  EXPECT_THAT(Doubles(sums->items()[0]), ElementsAre(3));
  EXPECT_THAT(Doubles(sums->items()[1].dict().at("n")), ElementsAre(1));
  EXPECT_THAT(Doubles(sums->items()[1].dict().at("same")), ElementsAre(10));
  const auto differ = [](const ValueContext& context) {
    return context.replica_id_in_sync_group == 0 ? Value(1) : Value::List({1});
  };
  EXPECT_THAT(strategy->DistributeValuesFromFunction(differ),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("different structures")));
}

TEST(DistributeValuesFromFunction, KeepsVariables) {
  const auto strategy = Mirrored(2);
  const VariablePtr v = MeanVariable(*strategy);
  EXPECT_EQ(strategy->DistributeValuesFromFunction([&v] { return Value(v); })->variable(), v);
  const auto copies = strategy->DistributeValuesFromFunction([&v](const ValueContext& context) {
    return Value(v->components()[static_cast<size_t>(context.replica_id_in_sync_group)]);
  });
  ASSERT_OK(copies);
  EXPECT_EQ(copies->variable(), v);
}

TEST(StepValue, IsATupleOfDistributedComponents) {
  const auto strategy = Mirrored(2);
  const Dataset dataset = Dataset::FromTensorSlices({Tensor::Vector<float>({1, 2, 3, 4}),
                                                     Tensor::Vector<float>({10, 20, 30, 40})})
                              .Batch(4);
  const auto iterator = strategy->DistributeDataset(dataset).value().MakeIterator().value();
  std::vector<Element> step;
  ASSERT_TRUE(iterator->Next(&step).value());
  const Value value = StepValue(step);
  ASSERT_EQ(value.kind(), Value::Kind::kTuple);
  EXPECT_THAT(Doubles(strategy->Reduce(ReduceOp::kSum, value.items()[1], {})), ElementsAre(40, 60));
  const auto labels =
      strategy->Run([](absl::Span<const Value> args) { return args[0].items()[1]; }, {value});
  ASSERT_OK(labels);
  EXPECT_THAT(Doubles(strategy->LocalResults(*labels)->at(1)), ElementsAre(30, 40));
  const std::vector<Element> uneven = {{Tensor::Scalar<float>(1)},
                                       {Tensor::Scalar<float>(1), Tensor::Scalar<float>(2)}};
  EXPECT_EQ(StepValue(uneven).kind(), Value::Kind::kPerReplica);
  EXPECT_EQ(StepValue({}).kind(), Value::Kind::kPerReplica);
}

}  // namespace
}  // namespace cairn::test
