// Wrong or unusual uses of scopes, variable creators and functions: the errors that programs get,
// and that the thread's contexts are intact afterwards.
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalidUse = absl::StatusCode::kInvalidArgument;
constexpr auto kUnknown = absl::StatusCode::kUnknown;

VariableOptions One(std::string name = "v") {
  return {.name = std::move(name), .initial_value = Tensor::Scalar<float>(1)};
}

// --- Scopes

TEST(Scopes, EndedInTheWrongOrderLeaveNothingBehind) {
  const auto strategy = Mirrored(2);
  std::optional<Scope> outer = strategy->EnterScope().value();
  std::optional<Scope> inner = strategy->EnterScope().value();
  EXPECT_THAT(outer->Exit(), StatusIs(kFailed, HasSubstr("leave the inner one first")));
  outer.reset();
  EXPECT_EQ(&GetStrategy(), strategy.get());  // the inner scope is open
  inner.reset();
  EXPECT_FALSE(HasStrategy());
  EXPECT_OK(Mirrored(2)->EnterScope());
}

TEST(Scopes, EndedInAnotherThreadAreLeftByTheirOwnThread) {
  const auto strategy = Mirrored(2);
  std::optional<Scope> scope = strategy->EnterScope().value();
  std::thread([&scope] {
    EXPECT_THAT(scope->Exit(), StatusIs(kFailed, HasSubstr("entered in another thread")));
    scope.reset();
    EXPECT_FALSE(HasStrategy());
  }).join();
  EXPECT_FALSE(HasStrategy());
}

TEST(Scopes, OfADestroyedStrategyAreOver) {
  auto strategy = Mirrored(2);
  Scope scope = strategy->EnterScope().value();
  strategy.reset();
  EXPECT_FALSE(HasStrategy());
  EXPECT_THAT(scope.Exit(), StatusIs(kFailed, HasSubstr("the strategy was destroyed")));
  EXPECT_OK(scope.Exit());
}

TEST(Scopes, KeptByAFunctionEndWhenItReturns) {
  const auto strategy = Mirrored(2);
  std::optional<Scope> kept;
  const auto keep = [&kept](Strategy& own, absl::Span<const Value>) {
    kept.emplace(own.EnterScope().value());
  };
  ASSERT_OK(strategy->Run([&keep] { return GetReplicaContext()->MergeCall(keep); }));
  EXPECT_FALSE(HasStrategy());
  EXPECT_THAT(kept->Exit(), StatusIs(kFailed, HasSubstr("had returned")));
}

TEST(Scopes, AssignmentLeavesTheOldScope) {
  const auto first = Mirrored(2);
  Scope scope = first->EnterScope().value();
  scope = first->EnterScope().value();
  ASSERT_OK(scope.Exit());
  EXPECT_FALSE(HasStrategy());
}

TEST(Scopes, OfDevicesMayEndInAnyOrderAndThread) {
  auto outer = std::make_unique<DeviceScope>(Cpu(1));
  auto inner = std::make_unique<DeviceScope>(Cpu(2));
  outer.reset();
  EXPECT_EQ(CurrentDevice(), Cpu(2));
  std::thread([&inner] { inner.reset(); }).join();
  EXPECT_EQ(CurrentDevice(), Cpu(0));
}

TEST(Scopes, ADestroyedStrategyIsNoLongerCurrent) {
  auto strategy = Mirrored(2);
  ASSERT_OK(SetStrategy(strategy.get()));
  EXPECT_TRUE(HasStrategy());
  strategy.reset();
  EXPECT_FALSE(HasStrategy());
  EXPECT_FALSE(InCrossReplicaContext());
  EXPECT_NE(GetReplicaContext(), nullptr);
}

TEST(Scopes, SetStrategyRefusesOtherStrategiesAsAScopeDoes) {
  const auto chosen = Mirrored(2);
  const auto other = Mirrored(2);
  const VariablePtr own = VariableOf(*chosen, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  const VariablePtr foreign =
      VariableOf(*other, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  const auto mixed = StatusIs(kFailed, HasSubstr("cannot be mixed"));
  ASSERT_OK(SetStrategy(chosen.get()));
  EXPECT_THAT(other->EnterScope(), mixed);
  EXPECT_THAT(other->Run([] {}), mixed);
  EXPECT_THAT(foreign->Read(), mixed);
  EXPECT_THAT(foreign->AssignAdd(1.0), mixed);
  EXPECT_OK(chosen->EnterScope());
  EXPECT_OK(chosen->Run([&own] { return own->AssignAdd(Scalar(1)); }));
  EXPECT_OK(own->Read());
  ASSERT_OK(SetStrategy(other.get()));
  EXPECT_EQ(&GetStrategy(), other.get());
  EXPECT_OK(foreign->Read());
  EXPECT_THAT(own->Read(), mixed);
  {
    const Scope inner = other->EnterScope().value();
    EXPECT_THAT(SetStrategy(nullptr), StatusIs(kFailed, HasSubstr("must not be called inside")));
  }
  ASSERT_OK(SetStrategy(nullptr));
  EXPECT_FALSE(HasStrategy());
  EXPECT_OK(own->Read());
}

TEST(Scopes, SetStrategySetsTheDefaultDevice) {
  OneDeviceStrategy strategy(Cpu(3));
  ASSERT_OK(SetStrategy(&strategy));
  EXPECT_EQ(CurrentDevice(), Cpu(3));
  ASSERT_OK(SetStrategy(nullptr));
  EXPECT_EQ(CurrentDevice(), Cpu(0));
  OneDeviceStrategy none(Cpu(-1));
  EXPECT_THAT(SetStrategy(&none), StatusIs(kInvalidUse, HasSubstr("cpu:-1")));
  EXPECT_FALSE(HasStrategy());
}

// A step has one element for each replica, so replicas that asked for it would take it from each
// other.
TEST(Scopes, StepsOfADatasetAreRefusedInReplicaFunctions) {
  auto strategy = Mirrored(2);
  const Dataset dataset = Dataset::Range(16).Batch(4);
  const auto iterator = strategy->DistributeDataset(dataset).value().MakeIterator().value();
  const auto next = [&iterator] {
    std::vector<Element> step;
    return iterator->Next(&step).status();
  };
  EXPECT_THAT(strategy->Run(next),
              StatusIs(kFailed, AllOf(HasSubstr("in a replica function"),
                                      HasSubstr("whose steps are arguments of Run"))));
  {
    const auto other = Mirrored(2);
    const Scope scope = other->EnterScope().value();
    EXPECT_THAT(next(), StatusIs(kFailed, HasSubstr("cannot be mixed")));
  }
  EXPECT_OK(next());
  const auto merge = [&next](Strategy&, absl::Span<const Value>) { return next(); };
  EXPECT_OK(strategy->Run([&merge] { return GetReplicaContext()->MergeCall(merge); }));
  strategy.reset();
  EXPECT_THAT(next(), StatusIs(kFailed, HasSubstr("was destroyed")));
}

TEST(Scopes, AThrowingDatasetFunctionKeepsTheScope) {
  const auto strategy = Mirrored(2);
  const Scope scope = strategy->EnterScope().value();
  EXPECT_THAT(
      strategy->DistributeDatasetsFromFunction([](const InputContext&) -> absl::StatusOr<Dataset> {
        throw std::runtime_error("no files");
      }),
      StatusIs(kUnknown, HasSubstr("threw: no files")));
  const VariablePtr variable = CreateVariable(One()).value();
  EXPECT_EQ(variable->components().size(), 2);
}

// --- After the strategy's destruction

TEST(AfterTheStrategy, VariablesContextsAndOptimizersReturnErrors) {
  auto strategy = Mirrored(2);
  const VariablePtr mean =
      VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  const VariablePtr on_read =
      VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kSum,
                 VariableSynchronization::kOnRead);
  const auto optimizer = VariableOptimizer::Create({.type = "sgd"}).value();
  std::shared_ptr<ReplicaContext> kept;
  ASSERT_OK(strategy->Run([&kept] {
    if (ReplicaId() == 0) kept = GetReplicaContext();
  }));
  ASSERT_OK(optimizer->ApplyGradients({{1.0, mean}}));
  strategy.reset();
  const auto gone = StatusIs(kFailed, HasSubstr("was destroyed"));
  EXPECT_THAT(on_read->Read(), gone);
  EXPECT_THAT(mean->Read(), gone);
  EXPECT_THAT(mean->AssignAdd(1.0), gone);
  EXPECT_THAT(optimizer->ApplyGradients({{1.0, mean}}), gone);
  EXPECT_EQ(optimizer->iterations().value(), 1);
  EXPECT_THAT(kept->AllReduce(ReduceOp::kSum, 1.0), gone);
  EXPECT_EQ(kept->strategy(), nullptr);
  EXPECT_EQ(kept->num_replicas_in_sync(), 0);
  EXPECT_EQ(mean->strategy(), nullptr);
}

// --- Creating variables

TEST(Creators, ThatCreateVariablesDoNotCallThemselves) {
  int called = 0;
  const VariableCreatorScope outer(
      [](const VariableCreatorScope::Next& next, const VariableOptions& options) {
        VariableOptions changed = options;
        changed.name += "/outer";
        return next(changed);
      });
  const VariableCreatorScope inner(
      [&called](const VariableCreatorScope::Next&, const VariableOptions& options) {
        ++called;
        VariableOptions own = options;
        own.name += "/own";
        return CreateVariable(own);
      });
  EXPECT_EQ(CreateVariable(One()).value()->name(), "v/own/outer");
  EXPECT_EQ(called, 1);
  EXPECT_EQ(CreateVariable(One()).value()->name(), "v/own/outer");
  EXPECT_EQ(called, 2);
}

TEST(Creators, ThatReturnNullThrowOrAreEmptyAreErrors) {
  const auto made_by = [](VariableCreatorScope::Creator creator) {
    const VariableCreatorScope scope(std::move(creator));
    return CreateVariable(One());
  };
  EXPECT_THAT(made_by(nullptr), StatusIs(kInvalidUse, HasSubstr("has no function")));
  EXPECT_THAT(made_by([](const auto&, const auto&) -> absl::StatusOr<VariablePtr> {
                throw std::runtime_error("no room");
              }),
              StatusIs(kUnknown, HasSubstr("threw: no room")));
  EXPECT_THAT(made_by([](const auto&, const auto&) -> absl::StatusOr<VariablePtr> {
                return VariablePtr();
              }),
              StatusIs(kInvalidUse, HasSubstr("a variable creator returned null")));
  EXPECT_OK(CreateVariable(One()));
}

TEST(CreateVariable, NeedsAValueOrAnInitializer) {
  EXPECT_THAT(CreateVariable({.name = "v"}),
              StatusIs(kInvalidUse, HasSubstr("neither an initial value nor an initializer")));
  EXPECT_OK(CreateVariable({.name = "v", .initial_value = Tensor()}));
  EXPECT_THAT(
      CreateVariable({.name = "v", .initializer = []() -> absl::StatusOr<Tensor> { throw 1; }}),
      StatusIs(kUnknown, HasSubstr("initializer of variable \"v\"")));
}

// --- Functions

TEST(Functions, MayReturnVoidStatusOrAValue) {
  const auto strategy = Mirrored(2);
  const VariablePtr v = VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  ASSERT_OK(strategy->Run([&v] { return v->AssignAdd(2.0); }));
  EXPECT_THAT(Copies(v), ElementsAre(3, 3));
  std::atomic<int> called = 0;
  const absl::StatusOr<Value> nothing = strategy->Run([&called] { ++called; });
  ASSERT_OK(nothing);
  EXPECT_TRUE(nothing->is_none());
  EXPECT_EQ(called, 2);
  EXPECT_EQ(strategy->Run([](absl::Span<const Value>) { return 5; })->integer(), 5);
  EXPECT_THAT(strategy->Run([] { return absl::DataLossError("own"); }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("own")));
  ASSERT_OK(strategy->Update(
      v, [](const VariablePtr& copy, absl::Span<const Value>) { return copy->Assign(7.0); }));
  EXPECT_THAT(Copies(v), ElementsAre(7, 7));
}

TEST(Functions, ThatThrowAreErrorsInEveryCall) {
  const auto strategy = Mirrored(2);
  const VariablePtr v = VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  const auto boom = [](auto&&...) -> absl::StatusOr<Value> { throw std::runtime_error("boom"); };
  const auto threw = StatusIs(kUnknown, HasSubstr("threw: boom"));
  EXPECT_THAT(strategy->Update(v, boom), threw);
  EXPECT_THAT(strategy->UpdateNonSlot({{Cpu(0)}}, boom), threw);
  EXPECT_THAT(strategy->DistributeValuesFromFunction(boom), threw);
  EXPECT_FALSE(UpdateReplicaId().has_value());
  EXPECT_FALSE(HasStrategy());
  const Dataset mapped = Dataset::Range(2).Map(
      [](Element) -> absl::StatusOr<Element> { throw std::runtime_error("boom"); });
  Element element;
  EXPECT_THAT(mapped.MakeIterator().value()->Next(&element), threw);
}

TEST(Functions, ThatAreEmptyAreErrors) {
  const auto strategy = Mirrored(2);
  const auto none = StatusIs(kInvalidUse, HasSubstr("found no function"));
  EXPECT_THAT(strategy->DistributeValuesFromFunction(nullptr), none);
  EXPECT_THAT(strategy->DistributeDatasetsFromFunction(nullptr), none);
  EXPECT_THAT(Dataset::Range(2).Map(nullptr).status(), none);
  EXPECT_THAT(Dataset::FromGenerator(nullptr).status(), none);
}

TEST(Values, ReadAsAnotherKindNameBothKinds) {
  const auto strategy = Mirrored(2);
  EXPECT_THAT(strategy->Run([](absl::Span<const Value> args) { return args[0].tensor(); }, {1.5}),
              StatusIs(kUnknown, HasSubstr("asked for a tensor, but is number 1.5")));
}

TEST(Values, MovedFromAreNone) {
  const Value distributed = PerReplica({Scalar(1), Scalar(2)});
  for (const Value& value :
       {distributed, Value::List({1}), Value::OfDict({{"a", 1}}), Scalar(1), Value("text")}) {
    Value from = value;
    Value to = std::move(from);
    EXPECT_EQ(from.TypeText(), "none");  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(IsSameValue(to, value));
    from = std::move(to);
    EXPECT_EQ(to.TypeText(), "none");  // NOLINT(bugprone-use-after-move)
    EXPECT_TRUE(IsSameValue(from, value));
  }
}

// --- Calls of replicas

TEST(Replicas, ThatWriteDifferentVariablesGetAnError) {
  const auto strategy = Mirrored(2);
  const VariablePtr a = VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  const VariablePtr b = VariableOf(*strategy, Tensor::Scalar<float>(1), VariableAggregation::kMean);
  EXPECT_THAT(OnReplicas(*strategy, [&] { return (ReplicaId() == 0 ? a : b)->AssignAdd(1.0); }),
              StatusIs(kFailed, AllOf(HasSubstr("assign_add of variable \"v\""),
                                      HasSubstr("another object of that name"))));
  EXPECT_THAT(OnReplicas(*strategy,
                         [&] { return ReplicaId() == 0 ? a->AssignAdd(1.0) : a->AssignSub(1.0); }),
              StatusIs(kFailed, AllOf(HasSubstr("assign_add of"), HasSubstr("assign_sub of"))));
  EXPECT_THAT(Copies(a), ElementsAre(1, 1));
  EXPECT_THAT(Copies(b), ElementsAre(1, 1));
}

TEST(Replicas, TimeoutOfAllReduceBoundsTheWait) {
  const auto strategy = Mirrored(2);
  std::atomic<bool> ended = false;
  const absl::Status status = OnReplicas(*strategy, [&ended]() -> absl::Status {
    if (ReplicaId() == 1) {
      const Deadline deadline = Deadline::In(absl::Seconds(60));
      while (!ended && !deadline.Expired()) std::this_thread::yield();
      return absl::OkStatus();
    }
    const auto sum = GetReplicaContext()->AllReduce(ReduceOp::kSum, Tensor::Scalar<float>(1),
                                                    {.timeout = absl::Milliseconds(50)});
    ended = true;
    return sum.status();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               HasSubstr("replica 0 waited 50ms in AllReduce sum for replica 1")));
}

// Each replica gets the refusal of the one, which ends no wait before the others have arrived.
TEST(Replicas, OptionsThatOneReplicaGetsWrongAreRefusedOnAll) {
  const auto strategy = Mirrored(3);
  for (const auto& [bad, why] :
       {std::pair(CommunicationOptions{.timeout = absl::Seconds(-1)}, "timeout is -1s"),
        std::pair(CommunicationOptions{.timeout = absl::ZeroDuration()}, "timeout is 0"),
        std::pair(CommunicationOptions{.bytes_per_pack = -1, .timeout = absl::Nanoseconds(1)},
                  "bytes_per_pack is -1")}) {
    for (const int32_t wrong : {0, 2}) {
      for (const bool gathers : {false, true}) {
        absl::Status of_replicas[3];
        EXPECT_THAT(
            OnReplicas(*strategy,
                       [&, &bad = bad] {
                         const auto context = GetReplicaContext();
                         const auto options = ReplicaId() == wrong ? bad : CommunicationOptions();
                         return of_replicas[ReplicaId()] =
                                    (gathers
                                         ? context->AllGather(Floats({1}), 0, options)
                                         : context->AllReduce(ReduceOp::kSum, Floats({1}), options))
                                        .status();
                       }),
            StatusIs(kInvalidUse, HasSubstr(why)));
        EXPECT_THAT(of_replicas, Each(StatusIs(kInvalidUse, HasSubstr(why))));
      }
    }
  }
}

TEST(Replicas, DifferingShapesAndTextsAreReportedByReplica) {
  const auto strategy = Mirrored(2);
  const auto sum_of = [&strategy](const std::vector<Tensor>& of_replicas) {
    return OnReplicas(*strategy, [&of_replicas] {
      return GetReplicaContext()
          ->AllReduce(ReduceOp::kSum, of_replicas[static_cast<size_t>(ReplicaId())])
          .status();
    });
  };
  EXPECT_THAT(
      sum_of({Tensor::Vector<float>({1}), Tensor::Vector<float>({1, 2})}),
      StatusIs(kInvalidUse, HasSubstr("replica 0 gave float32 [1], replica 1 gave float32 [2]")));
  EXPECT_THAT(sum_of({Tensor::Texts({1}, {"a"}), Tensor::Texts({1}, {"b"})}),
              StatusIs(kInvalidUse, HasSubstr("replica 0 gave text [1], and texts have no sum; "
                                              "take them with LocalResults")));
  const Value texts = PerReplica({Tensor::Texts({1}, {"a"}), Tensor::Texts({1}, {"b"})});
  const auto refused = StatusIs(
      kInvalidUse, HasSubstr("replica 0 gave text [1]; texts cannot be gathered: take them with"));
  EXPECT_THAT(strategy->Gather(texts, 0), refused);
  EXPECT_THAT(strategy->Run([&] { return GetReplicaContext()->AllGather(texts, 0); }), refused);
  EXPECT_EQ(strategy->LocalResults(texts)->size(), 2U);
}

// --- Devices and counts

TEST(Devices, ThatAreInvalidAreRefused) {
  EXPECT_THAT(MirroredStrategy::Create({Cpu(-1)}), StatusIs(kInvalidUse, HasSubstr("cpu:-1")));
  EXPECT_THAT(
      CentralStorageStrategy::Create({Cpu(0), Cpu(0)}),
      StatusIs(kInvalidUse, HasSubstr("CentralStorageStrategy: device cpu:0 is given twice")));
  OneDeviceStrategy strategy(Cpu(-1));
  EXPECT_THAT(strategy.EnterScope(), StatusIs(kInvalidUse, HasSubstr("OneDeviceStrategy")));
}

TEST(Components, MustBeOneForEachReplica) {
  const auto strategy = Mirrored(2);
  const Value three = Value::PerReplica({Scalar(1), Scalar(2), Scalar(3)});
  const auto refused = StatusIs(kInvalidUse, HasSubstr("3 components"));
  EXPECT_THAT(strategy->Reduce(ReduceOp::kSum, three, {}), refused);
  EXPECT_THAT(strategy->ReduceTo(ReduceOp::kSum, three, Cpu(0)), refused);
  EXPECT_THAT(strategy->LocalResults(three), refused);
  EXPECT_THAT(strategy->Gather(three, 0), refused);
  EXPECT_THAT(strategy->Run([] {}, {Value::List({three})}), refused);
  const auto central = Central(2);
  for (Strategy* const of : {strategy.get(), central.get()}) {
    const VariablePtr v = VariableOf(*of, Tensor::Scalar<float>(7), VariableAggregation::kNone);
    EXPECT_THAT(v->Assign(three), refused);
    EXPECT_THAT(of->Update(v, [](const VariablePtr&, absl::Span<const Value>) {}, {three}),
                refused);
    EXPECT_THAT(Copies(v), Each(7));
  }
  // Writes of a replica or update to its own copy.
  for (const auto synchronization :
       {VariableSynchronization::kOnWrite, VariableSynchronization::kOnRead}) {
    const VariablePtr v = VariableOf(*strategy, Tensor::Scalar<float>(7),
                                     VariableAggregation::kNone, synchronization);
    const auto write = [&] { return v->Assign(three); };
    EXPECT_THAT(OnReplicas(*strategy, write), refused);
    EXPECT_THAT(strategy->Update(v, write), refused);
    EXPECT_THAT(Copies(v), Each(7));
  }
}

// Each part of a gathered gradient lies inside it.
TEST(AllGatherGradient, NegativeExtentsAreRefused) {
  const auto strategy = Mirrored(2);
  EXPECT_THAT(
      OnReplicas(
          *strategy,
          [] {
            const int64_t extent = ReplicaId() == 0 ? -1 : 3;
            return GetReplicaContext()->AllGatherGradient(Floats({1, 2}), 0, extent).status();
          }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("extent -1")));
}

// Their sum would wrap around to the extent of the gradient.
TEST(AllGatherGradient, EnormousExtentsAreRefused) {
  const auto strategy = Mirrored(3);
  EXPECT_THAT(
      OnReplicas(
          *strategy,
          [] {
            const int64_t extent = ReplicaId() < 2 ? std::numeric_limits<int64_t>::max() : 4;
            return GetReplicaContext()->AllGatherGradient(Floats({1, 2}), 0, extent).status();
          }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has extent 2 along axis 0")));
}

}  // namespace
}  // namespace cairn::test
