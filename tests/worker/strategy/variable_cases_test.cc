// Section B of the conformance cases: writes and reads of variables, by id.
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "common/status.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kNone = VariableAggregation::kNone;
constexpr auto kSum = VariableAggregation::kSum;
constexpr auto kMean = VariableAggregation::kMean;
constexpr auto kFirst = VariableAggregation::kOnlyFirstReplica;
constexpr auto kAuto = VariableSynchronization::kAuto;
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

// A value outside the enumerators is refused by every strategy, also where there are no copies.
TEST(Cases, B10_InvalidEnumeratorsAreRefused) {
  const auto mirrored = Mirrored(2);
  const auto central = Central(2);
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of the enumerators"));
  for (Strategy* const strategy : {mirrored.get(), central.get(), &DefaultStrategy()}) {
    const Scope scope = strategy->EnterScope().value();
    EXPECT_THAT(CreateVariable({.initial_value = One(1),
                                .synchronization = static_cast<VariableSynchronization>(77)}),
                refused);
    EXPECT_THAT(CreateVariable(
                    {.initial_value = One(1), .aggregation = static_cast<VariableAggregation>(77)}),
                refused);
  }
}

TEST(Cases, B10_InvalidArgumentsAreRefused) {
  const auto strategy = Mirrored(2);
  const Scope scope = strategy->EnterScope().value();
  EXPECT_THAT(
      CreateVariable({.initial_value = One(1), .synchronization = VariableSynchronization::kNone}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NONE is not supported")));
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

// The copies of an ON_READ variable are the replicas' values. Those of an ON_WRITE variable are one
// value, which has no sum.
TEST(WritesOfVariables, AggregateTheCopiesOfTheReplicas) {
  const auto strategy = Mirrored(2);
  const VariablePtr on_write = VariableOf(*strategy, One(5), kMean);
  for (const auto aggregation : {kSum, kMean, kFirst, kNone}) {
    const VariablePtr on_read = VariableOf(*strategy, One(0), aggregation, kOnRead);
    ASSERT_OK(OnReplicas(*strategy, [&] { return on_read->Assign(Scalar(2 * ReplicaId() + 1)); }));
    const auto written = [&](VariableAggregation of_written, const std::vector<Value>& values) {
      const VariablePtr w = VariableOf(*strategy, One(0), of_written);
      EXPECT_OK(OnReplicas(*strategy, [&] {
        return w->Assign(values[static_cast<size_t>(ReplicaId()) % values.size()]);
      }));
      return Copies(w);
    };
    EXPECT_THAT(written(kSum, {on_read}), ElementsAre(4, 4));
    EXPECT_THAT(written(kMean, {on_read}), ElementsAre(2, 2));
    EXPECT_THAT(written(kFirst, {on_read}), ElementsAre(1, 1));
    EXPECT_THAT(written(kSum, {on_write, on_read}), ElementsAre(8, 8));
    EXPECT_THAT(written(kMean, {on_write}), ElementsAre(5, 5));
  }
  const VariablePtr sum = VariableOf(*strategy, One(0), kSum);
  EXPECT_THAT(
      OnReplicas(*strategy, [&] { return sum->Assign(on_write); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be reduced with SUM")));
  const Value three = Value::PerReplica({Scalar(1), Scalar(2), Scalar(3)});
  EXPECT_THAT(OnReplicas(*strategy, [&] { return sum->Assign(three); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 components")));
}

// Also where the copies differ: the variable that is written gets them as they are.
TEST(WritesOfVariables, InTheScopeGiveEachCopyTheOneOfItsReplica) {
  const auto strategy = Mirrored(2);
  std::vector<VariablePtr> sources = {VariableOf(*strategy, One(0), kNone)};
  for (const auto aggregation : {kSum, kMean, kFirst, kNone}) {
    sources.push_back(VariableOf(*strategy, One(0), aggregation, kOnRead));
  }
  for (const VariablePtr& source : sources) {
    ASSERT_OK(OnReplicas(*strategy, [&] { return source->Assign(Scalar(2 * ReplicaId() + 1)); }));
    for (const auto aggregation : {kSum, kMean, kFirst, kNone}) {
      const VariablePtr w = VariableOf(*strategy, One(0), aggregation);
      ASSERT_OK(w->Assign(source));
      EXPECT_THAT(Copies(w), ElementsAre(1, 3));
      const Scope scope = strategy->EnterScope().value();
      ASSERT_OK(w->AssignAdd(source));
      EXPECT_THAT(Copies(w), ElementsAre(2, 6));
    }
  }
}

// The writes do not commute, so copies that got them in different orders differ for good.
TEST(Variables, ConcurrentWritersLeaveTheCopiesEqual) {
  const auto strategy = Mirrored(4);
  const VariablePtr v = VariableOf(*strategy, Tensor::Vector<float>({0}), kNone);
  const IndexedSlices negate = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({-1})};
  const auto write = [](const std::function<absl::Status()>& once) {
    for (int i = 0; i < 2000; ++i) ASSERT_OK(once());
  };
  std::thread negating([&] { write([&] { return v->Scatter(ScatterOp::kMul, negate); }); });
  write([&] { return v->AssignAdd(Floats({1})); });
  negating.join();
  EXPECT_THAT(Copies(v), Each(Copies(v)[0]));
}

// As above, where one of the writers is an update function, in the scope or in a replica function.
TEST(Variables, UpdatesBesideOtherWritersLeaveTheCopiesEqual) {
  const auto strategy = Mirrored(4);
  const VariablePtr v = VariableOf(*strategy, Tensor::Vector<float>({1}), kNone);
  const IndexedSlices negate = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({-1})};
  const auto update = [&] {
    return strategy
        ->Update(v, [&](const VariablePtr& copy,
                        absl::Span<const Value>) { return copy->Scatter(ScatterOp::kMul, negate); })
        .status();
  };
  std::thread updating([&] {
    for (int i = 0; i < 2000; ++i) ASSERT_OK(update());
    for (int i = 0; i < 200; ++i) ASSERT_OK(OnReplicas(*strategy, update));
  });
  for (int i = 0; i < 4000; ++i) ASSERT_OK(v->AssignAdd(Floats({1})));
  updating.join();
  EXPECT_THAT(Copies(v), Each(Copies(v)[0]));
}

// Whatever an update function does to its variable, and to others that are updated elsewhere, it
// waits for no lock that it, or an update elsewhere, holds.
TEST(Variables, UpdatesMayUseTheVariableAndOthers) {
  const auto strategy = Mirrored(2);
  const VariablePtr v = VariableOf(*strategy, One(1), kNone);
  const VariablePtr w = VariableOf(*strategy, One(1), kNone);
  const auto add = [](const VariablePtr& copy, absl::Span<const Value>) {
    return copy->AssignAdd(1.0);
  };
  const auto update = [&](const VariablePtr& updated, const VariablePtr& other) {
    return strategy
        ->Update(updated,
                 [&]() -> absl::Status {
                   RETURN_IF_ERROR(updated->Read().status());
                   RETURN_IF_ERROR(updated->AssignAdd(1.0));
                   RETURN_IF_ERROR(other->AssignAdd(1.0));
                   for (const VariablePtr& nested : {updated, other}) {
                     RETURN_IF_ERROR(strategy->Update(nested, add).status());
                     RETURN_IF_ERROR(OutsideEveryScope([&] { return nested->AssignAdd(1.0); }));
                   }
                   return strategy->Run([&] { return other->AssignAdd(1.0); }).status();
                 })
        .status();
  };
  std::thread updating([&] {
    for (int i = 0; i < 500; ++i) ASSERT_OK(update(w, v));
  });
  for (int i = 0; i < 500; ++i) ASSERT_OK(update(v, w));
  updating.join();
  ASSERT_OK(v->Assign(0.0));
  ASSERT_OK(update(v, w));
  EXPECT_THAT(Copies(v), ElementsAre(5, 5));
}

TEST(Variables, ReadersOfOnReadSeeWholeAssignments) {
  const auto strategy = Mirrored(4);
  const VariablePtr v = VariableOf(*strategy, One(0), kMean, kOnRead);
  std::atomic<bool> done = false;
  std::thread writing([&] {
    for (int i = 0; !done; ++i) ASSERT_OK(v->Assign(4.0 * (i % 2)));
  });
  for (int i = 0; i < 2000; ++i) EXPECT_THAT(Read(v), AnyOf(0, 4));
  done = true;
  writing.join();
}

// Host integers do not pass through a double, and what an integer dtype cannot hold is refused.
TEST(HostNumbers, AreWrittenExactlyOrRefused) {
  const auto strategy = Mirrored(2);
  const Tensor zero = Tensor::Scalar<int64_t>(0);
  for (const VariablePtr& v : {CreateVariable({.name = "plain", .initial_value = zero}).value(),
                               VariableOf(*strategy, zero, kNone)}) {
    for (const int64_t number : {int64_t{9007199254740993}, std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min()}) {
      ASSERT_OK(v->Assign(number));
      EXPECT_THAT(HostTensor(v->Read().value())->values<int64_t>(), ElementsAre(number));
    }
    for (const double number : {0x1p63, -1e30, std::nan("")}) {
      EXPECT_THAT(v->Assign(number),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64")));
    }
    ASSERT_OK(v->Assign(-0x1p63));
  }
  const VariablePtr small = VariableOf(*strategy, Tensor::Scalar<int32_t>(7), kNone);
  for (const Value& number : {Value(int64_t{3000000000}), Value(int64_t{-3000000000}), Value(1e30),
                              Value(std::nan("")), Value(2147483648.0)}) {
    EXPECT_THAT(small->Assign(number),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int32")));
    EXPECT_THAT(OnReplicas(*strategy, [&] { return small->AssignAdd(number); }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int32")));
  }
  EXPECT_THAT(Copies(small), ElementsAre(7, 7));
  ASSERT_OK(small->Assign(-2147483648.5));  // truncated, as every host number
  EXPECT_THAT(Copies(small), ElementsAre(-2147483648, -2147483648));
  const VariablePtr pair = VariableOf(*strategy, Tensor::Of<int32_t>({2}, {1, 2}), kNone);
  EXPECT_THAT(pair->Assign(Value(std::vector<float>{1, 3e9F})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3e+09")));
  EXPECT_THAT(NumbersOf(pair->Read().value()), ElementsAre(1, 2));
}

TEST(HostNumbers, BeyondInt32AreInt64Tensors) {
  const auto strategy = Mirrored(2);
  const Value sum =
      strategy
          ->Run([](absl::Span<const Value>) {
            return GetReplicaContext()->AllReduce(ReduceOp::kSum, Value(int64_t{3000000000}));
          })
          .value();
  EXPECT_EQ(strategy->LocalResults(sum)->at(0).tensor().dtype(), DType::kInt64);
  EXPECT_THAT(Doubles(strategy->LocalResults(sum)->at(0)), ElementsAre(6e9));
  EXPECT_EQ(Value(int64_t{-2147483648}).ToTensor()->dtype(), DType::kInt32);
  EXPECT_EQ(Value(int64_t{-2147483649}).ToTensor()->dtype(), DType::kInt64);
}

// Also where only one replica's rows are wrong: those of the others are not written either.
TEST(Misuse, ARefusedScatterLeavesTheVariableAsItWas) {
  const auto strategy = Central(2);
  const VariablePtr v = VariableOf(*strategy, Tensor::Vector<float>({1, 2, 3, 4}), kSum);
  const auto scatter = [&](const IndexedSlices& second) {
    const IndexedSlices first = {Tensor::Vector<int64_t>({0}), Tensor::Vector<float>({1})};
    return OnReplicas(
        *strategy, [&] { return v->Scatter(ScatterOp::kDiv, ReplicaId() == 0 ? first : second); });
  };
  const Tensor row = Tensor::Vector<int64_t>({1}), two = Tensor::Vector<float>({2});
  for (const IndexedSlices& wrong : {IndexedSlices{Tensor::Vector<int64_t>({4}), two},
                                     {row, Tensor::Vector<double>({1})},
                                     {row, Tensor::Vector<float>({1, 2})},
                                     {Tensor::Texts({1}, {"a"}), two},
                                     {Tensor::Scalar<int64_t>(1), two}}) {
    EXPECT_THAT(scatter(wrong), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("scatter_div of variable \"v\"")));
    EXPECT_THAT(NumbersOf(v->Read().value()), ElementsAre(1, 2, 3, 4));
  }
  ASSERT_OK(scatter({row, two}));
  EXPECT_THAT(NumbersOf(v->Read().value()), ElementsAre(1, 1, 3, 4));
  const VariablePtr counts =
      VariableOf(*strategy, Tensor::Vector<int32_t>({8, 8}), kSum, kAuto, "counts");
  EXPECT_THAT(OnReplicas(*strategy,
                         [&] {
                           return counts->Scatter(ScatterOp::kDiv,
                                                  {Tensor::Vector<int64_t>({0}),
                                                   Tensor::Vector<int32_t>({2 - 2 * ReplicaId()})});
                         }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("by zero")));
  EXPECT_THAT(NumbersOf(counts->Read().value()), ElementsAre(8, 8));
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
