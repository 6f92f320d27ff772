// MultiWorkerMirroredStrategy where one worker refuses a call, or makes it alone: no other worker
// waits for it, and the next call of all works.
#include "tests/worker/strategy/case_support.h"
#include "tests/worker/strategy/mirrored_workers.h"

namespace cairn::test {
namespace {

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
