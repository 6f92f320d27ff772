// Section B of the conformance cases: writes and reads of variables, by id.
#include "tests/worker/strategy/case_support.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kNone = VariableAggregation::kNone;
constexpr auto kSum = VariableAggregation::kSum;
constexpr auto kMean = VariableAggregation::kMean;
constexpr auto kFirst = VariableAggregation::kOnlyFirstReplica;
constexpr auto kOnRead = VariableSynchronization::kOnRead;
constexpr auto kOnWrite = VariableSynchronization::kOnWrite;

Tensor One(double value) { return Tensor::Full(DType::kFloat32, {}, value); }
double Read(const VariablePtr& variable) { return NumbersOf(variable->Read().value())[0]; }

// Each of two replicas writes `value(replica)` to a variable of `initial`; returns the copies.
std::vector<double> Written(double initial, VariableAggregation aggregation, AssignOp op,
                            const std::function<Value(int32_t)>& value) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(initial), aggregation);
  EXPECT_OK(OnReplicas(*strategy, [&] { return variable->Write(op, value(ReplicaId())); }));
  return Copies(variable);
}

TEST(Cases, B1_AssignMirroredVariableInReplicas) {
  const auto id = [](int32_t r) { return Scalar(r); };
  EXPECT_THAT(Written(1, kMean, AssignOp::kAssign, id), ElementsAre(0.5, 0.5));
  EXPECT_THAT(Written(1, kMean, AssignOp::kAdd, id), ElementsAre(1.5, 1.5));
  EXPECT_THAT(Written(5, kMean, AssignOp::kSub, id), ElementsAre(4.5, 4.5));
}

TEST(Cases, B2_AssignOneNumberOnAllReplicas) {
  EXPECT_THAT(Written(1, kMean, AssignOp::kAssign, [](int32_t) { return 5.0; }), ElementsAre(5, 5));
  EXPECT_THAT(Written(1, kMean, AssignOp::kAdd, [](int32_t) { return 5.0; }), ElementsAre(6, 6));
  EXPECT_THAT(Written(5, kMean, AssignOp::kSub, [](int32_t) { return 1.0; }), ElementsAre(4, 4));
}

TEST(Cases, B3_OneNumberHasNoSum) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(1), kSum);
  EXPECT_THAT(
      OnReplicas(*strategy, [&] { return variable->Assign(5.0); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be reduced with SUM")));
}

// With one replica in sync the value is the sum, whether it is a tensor or a number.
TEST(Cases, C15_OneReplicaWritesASumVariable) {
  const auto strategy = Mirrored(1);
  const auto written = [&strategy](AssignOp op, const Value& value) {
    const VariablePtr variable = VariableOf(*strategy, One(5), kSum);
    EXPECT_OK(OnReplicas(*strategy, [&] { return variable->Write(op, value); }));
    return Copies(variable)[0];
  };
  for (const Value& two : {Value(2.0), Scalar(2)}) {
    EXPECT_EQ(written(AssignOp::kAssign, two), 2);
    EXPECT_EQ(written(AssignOp::kAdd, two), 7);
    EXPECT_EQ(written(AssignOp::kSub, two), 3);
  }
}

TEST(Cases, B4_AssignAddInCrossReplicaContext) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(1), kMean);
  ASSERT_OK(variable->AssignAdd(6.0));
  EXPECT_THAT(Copies(variable), ElementsAre(7, 7));
  ASSERT_OK(variable->AssignAdd(2.0));
  EXPECT_THAT(Copies(variable), ElementsAre(9, 9));
  const VariablePtr other = VariableOf(*strategy, One(5), kMean);
  ASSERT_OK(other->AssignSub(2.0));
  EXPECT_THAT(Copies(other), ElementsAre(3, 3));
}

TEST(Cases, B5_AssignWithoutAggregation) {
  EXPECT_THAT(Written(1, kNone, AssignOp::kAssign, [](int32_t) { return 5.0; }), ElementsAre(5, 5));
}

TEST(Cases, B6_AssignReplicaLocalVariable) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(1), kSum, kOnRead);
  EXPECT_EQ(Read(variable), 2);
  ASSERT_OK(variable->Assign(6.0));
  EXPECT_EQ(Read(variable), 6);
  EXPECT_THAT(Copies(variable), ElementsAre(3, 3));
}

TEST(Cases, B8_OnlyFirstReplicaUpdates) {
  const auto strategy = Mirrored(2);
  const auto add = [&strategy](const VariablePtr& variable, double amount) {
    EXPECT_OK(OnReplicas(*strategy,
                         [&] { return variable->AssignAdd(Scalar(amount * (ReplicaId() + 1))); }));
    return Copies(variable);
  };
  const VariablePtr on_read = VariableOf(*strategy, One(2), kFirst, kOnRead);
  EXPECT_THAT(add(on_read, 5), ElementsAre(7, 12));
  EXPECT_EQ(Read(on_read), 7);
  EXPECT_THAT(add(on_read, 11), ElementsAre(18, 34));
  EXPECT_EQ(Read(on_read), 18);
  const VariablePtr on_write = VariableOf(*strategy, One(3), kFirst, kOnWrite);
  EXPECT_THAT(add(on_write, 7), ElementsAre(10, 10));
  EXPECT_THAT(add(on_write, 13), ElementsAre(23, 23));
}

TEST(Cases, B9_SyncOnReadVariable) {
  const auto strategy = Mirrored(2);
  const VariablePtr sum = VariableOf(*strategy, One(1), kSum, kOnRead);
  const VariablePtr mean = VariableOf(*strategy, One(1), kMean, kOnRead);
  ASSERT_OK(OnReplicas(*strategy, [&] {
    const absl::Status added = sum->AssignAdd(Scalar(2 + ReplicaId()));
    return added.ok() ? mean->Assign(Scalar(6 * ReplicaId())) : added;
  }));
  EXPECT_THAT(Copies(sum), ElementsAre(3, 4));
  EXPECT_EQ(Read(sum), 7);
  EXPECT_THAT(Copies(mean), ElementsAre(0, 6));
  EXPECT_EQ(Read(mean), 3);
}

TEST(Cases, B10_InvalidArgumentsAreRefused) {
  const auto strategy = Mirrored(2);
  const Scope scope = strategy->EnterScope().value();
  EXPECT_THAT(
      CreateVariable({.initial_value = One(1), .synchronization = VariableSynchronization::kNone}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NONE is not supported")));
  EXPECT_THAT(CreateVariable({.initial_value = One(1),
                              .synchronization = static_cast<VariableSynchronization>(77)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of the enumerators")));
  EXPECT_THAT(CreateVariable(
                  {.initial_value = One(1), .aggregation = static_cast<VariableAggregation>(77)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of the enumerators")));
  EXPECT_THAT(OnReplicas(*strategy,
                         [] {
                           return CreateVariable({.name = ReplicaId() == 0 ? "a" : "b",
                                                  .initial_value = One(1)})
                               .status();
                         }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("different names")));
}

// An option that only one strategy supports is refused by the others, not ignored.
TEST(Variables, PerWorkerIsRefusedByOtherStrategies) {
  for (const auto& strategy : {Mirrored(2), Central(2)}) {
    const Scope scope = strategy->EnterScope().value();
    EXPECT_THAT(CreateVariable({.initial_value = One(1), .per_worker = true}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("per_worker is for ParameterServerStrategy")));
  }
}

TEST(Cases, B11_AssignPerReplicaValues) {
  const auto two = [](int32_t) { return Scalar(2); };
  const auto minus = [](int32_t) { return Scalar(-2); };
  for (const auto& [aggregation, want] :
       {std::pair(kSum, 4.0), std::pair(kMean, 2.0), std::pair(kFirst, 2.0)}) {
    EXPECT_THAT(Written(0, aggregation, AssignOp::kAssign, two), ElementsAre(want, want));
    EXPECT_THAT(Written(0, aggregation, AssignOp::kAdd, two), ElementsAre(want, want));
    EXPECT_THAT(Written(0, aggregation, AssignOp::kSub, minus), ElementsAre(want, want));
  }
}

TEST(Cases, B12_AggregationOnlyFirstReplica) {
  EXPECT_THAT(Written(9, kFirst, AssignOp::kAssign, [](int32_t r) { return Scalar(r); }),
              ElementsAre(0, 0));
}

TEST(Cases, B17_ScatterOpsInAChain) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, Tensor::Vector<float>({4}), kNone);
  const IndexedSlices two = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({2})};
  std::vector<double> values;
  for (const ScatterOp op : {ScatterOp::kSub, ScatterOp::kAdd, ScatterOp::kMax, ScatterOp::kMin,
                             ScatterOp::kMul, ScatterOp::kDiv, ScatterOp::kUpdate}) {
    ASSERT_OK(OnReplicas(*strategy, [&] { return variable->Scatter(op, two); }));
    values.push_back(Read(variable));
  }
  EXPECT_THAT(values, ElementsAre(2, 4, 4, 2, 4, 2, 2));
}

TEST(Cases, B20_OnReadSumTakesNoAddInCrossReplicaContext) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(1), kSum, kOnRead);
  for (const AssignOp op : {AssignOp::kAdd, AssignOp::kSub}) {
    EXPECT_THAT(variable->Write(op, 1.0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not supported")));
  }
}

TEST(Cases, B21_OnReadReadsInCrossReplicaContext) {
  for (const int32_t replicas : {2, 3}) {
    const auto strategy = Mirrored(replicas);
    const auto read = [&](VariableAggregation aggregation) {
      const VariablePtr variable = VariableOf(*strategy, One(0), aggregation, kOnRead);
      EXPECT_OK(OnReplicas(*strategy, [&] { return variable->Assign(Scalar(ReplicaId())); }));
      return variable->Read();
    };
    const double n = replicas;
    EXPECT_EQ(NumbersOf(read(kSum).value())[0], n * (n - 1) / 2);
    EXPECT_EQ(NumbersOf(read(kMean).value())[0], (n - 1) / 2);
    EXPECT_EQ(NumbersOf(read(kFirst).value())[0], 0);
    EXPECT_EQ(read(kNone).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// Saving stores the value read in cross-replica context; restoring assigns there.
TEST(Cases, B22_SaveAndRestoreOnRead) {
  const auto strategy = Mirrored(2);
  for (const auto& [aggregation, stored, copy, restored] :
       {std::tuple(kSum, 7.0, 3.5, 1.0), std::tuple(kMean, 3.5, 3.5, 2.0)}) {
    const VariablePtr variable = VariableOf(*strategy, One(0), aggregation, kOnRead);
    ASSERT_OK(OnReplicas(*strategy, [&] { return variable->Assign(Scalar(4 - ReplicaId())); }));
    const Tensor saved = variable->Read().value();
    EXPECT_EQ(NumbersOf(saved)[0], stored);
    ASSERT_OK(variable->Assign(saved));
    EXPECT_THAT(Copies(variable), ElementsAre(copy, copy));
    const VariablePtr plain = CreateVariable({.initial_value = One(0)}).value();
    ASSERT_OK(plain->Assign(saved));
    EXPECT_EQ(Read(plain), stored);
    ASSERT_OK(variable->Assign(One(2)));  // saved from a plain variable
    EXPECT_THAT(Copies(variable), ElementsAre(restored, restored));
  }
}

TEST(Cases, B24_GlobalStepCountsOnce) {
  for (const auto& strategy : {Mirrored(2), Central(2)}) {
    const VariablePtr step = VariableOf(*strategy, Tensor::Scalar<int64_t>(0), kFirst);
    ASSERT_OK(OnReplicas(*strategy, [&] { return step->AssignAdd(Tensor::Scalar<int64_t>(1)); }));
    EXPECT_EQ(Read(step), 1);
  }
}

TEST(Misuse, NullArgumentsAreRefusedByName) {
  const auto strategy = Mirrored(2);
  const VariablePtr variable = VariableOf(*strategy, One(1), kNone);
  const auto refused = [](const char* method) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(method));
  };
  EXPECT_THAT(strategy->Run(nullptr, {}), refused("Run: found no function"));
  EXPECT_THAT(strategy->UpdateNonSlot({Cpu(0)}, nullptr, {}), refused("UpdateNonSlot: found no"));
  EXPECT_THAT(strategy->Update(variable, nullptr, {}), refused("Update: found no function"));
  const Strategy::UpdateFn update = [](const VariablePtr&, absl::Span<const Value>) {
    return Value();
  };
  EXPECT_THAT(strategy->Update(nullptr, update, {}), refused("the variable is null"));
  const auto merge = [](absl::Span<const Value>) {
    return GetReplicaContext()->MergeCall(nullptr, {});
  };
  EXPECT_THAT(strategy->Run(merge, {}), refused("MergeCall: found no function"));
}

}  // namespace
}  // namespace cairn::test
