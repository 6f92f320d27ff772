// Steps of replicas: ends, empty batches, devices, prefetching, and errors between workers.
#include "worker/input/dataset/distributed_dataset.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/input/dataset/elements.h"
#include "worker/input/dataset/rows.h"

namespace cairn {
namespace {

using test::CentralInput;
using test::Drained;
using test::MirroredInput;
using test::Steps;

absl::StatusOr<Element> Same(Element element) { return element; }

// Workers with different inputs, each with one replica.
std::vector<Drained> RunDifferent(const std::vector<Dataset>& datasets) {
  return test::RunWorkers(static_cast<int64_t>(datasets.size()), 1,
                          [&datasets](const InputStrategy& strategy) {
                            return DistributeDatasetsFromFunction(
                                [&datasets](const InputContext& context) {
                                  return datasets[static_cast<size_t>(context.input_pipeline_id())];
                                },
                                strategy);
                          });
}

TEST(DistributedDataset, OneReplicaAndNoSplittingPassElementsAsTheyAre) {
  EXPECT_EQ(Steps(DistributeDataset(Dataset::Range(3), test::OneDeviceInput())), "[[0],[1],[2]]");
}

TEST(DistributedDataset, AWorkerWithoutDataGetsEmptyBatchesUntilAllAreDone) {
  const std::vector<Drained> workers =
      RunDifferent({Dataset::Range(5).Batch(2), Dataset::Range(1).Batch(2)});
  EXPECT_EQ(workers[0].elements.dump(), "[[[0,1]],[[2,3]],[[4]]]");
  EXPECT_EQ(workers[1].elements.dump(), "[[[0]],[[]],[[]]]");
}

TEST(DistributedDataset, EmptyBatchesHaveTheTypeOfTheDataset) {
  auto dataset = DistributeDataset(
      Dataset::FromTensorSlices({Tensor::Zeros(DType::kFloat64, {1, 3}), Tensor::Texts({1}, {"a"})})
          .Batch(4),
      MirroredInput(2));
  auto iterator = *dataset->MakeIterator();
  std::vector<Element> step;
  ASSERT_TRUE(*iterator->Next(&step));
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[1][0].TypeText(), "float64 [0, 3]");
  EXPECT_EQ(step[1][1].TypeText(), "text [0]");
  EXPECT_FALSE(*iterator->Next(&step));
  EXPECT_FALSE(*iterator->Next(&step));
}

// The spec of a Map's result is unknown: a worker without an element of its own reads the first
// element of the dataset that all workers share.
TEST(DistributedDataset, AnEmptyShareLearnsItsTypeFromTheWholeDataset) {
  const Dataset one = Dataset::Range(1).Batch(1).Map(Same);
  const std::vector<Drained> workers = test::RunWorkers(
      2, 1, [&one](const InputStrategy& strategy) { return DistributeDataset(one, strategy); });
  for (const Drained& worker : workers) EXPECT_TRUE(worker.status.ok()) << worker.status;
  EXPECT_EQ(workers[0].elements.dump(), "[[[0]]]");
  EXPECT_EQ(workers[1].elements.dump(), "[[[]]]");
}

TEST(DistributedDataset, WithoutABatchAxisNoEmptyElementIsMade) {
  const std::vector<Drained> workers = RunDifferent({Dataset::Range(2), Dataset::Range(1)});
  EXPECT_TRUE(absl::IsUnavailable(workers[0].status)) << workers[0].status;
  EXPECT_EQ(workers[1].elements.dump(), "[[0]]");
  EXPECT_TRUE(absl::IsFailedPrecondition(workers[1].status)) << workers[1].status;
}

TEST(DistributedDataset, WithoutPartialStepsTheRestIsLost) {
  const auto batches = [](const InputContext&) { return Dataset::Range(5).Batch(1); };
  EXPECT_EQ(Steps(DistributeDatasetsFromFunction(batches, CentralInput(2))),
            "[[[0],[1]],[[2],[3]]]");
  EXPECT_EQ(Steps(DistributeDatasetsFromFunction(batches, MirroredInput(2))),
            "[[[0],[1]],[[2],[3]],[[4],[]]]");
}

TEST(DistributedDataset, InfiniteInputNeedsNoAgreement) {
  InputStrategy strategy = MirroredInput(1);
  strategy.workers = 2;
  strategy.agree = [](bool) -> absl::StatusOr<bool> { return absl::InternalError("asked"); };
  const Dataset endless = Dataset::Range(4).Batch(2).Repeat();
  EXPECT_EQ(Steps(DistributeDataset(endless, strategy), 3), "[[[0]],[[2]],[[0]]]");
}

TEST(DistributedDataset, ErrorsOfAgreementAndInputReachTheStep) {
  InputStrategy strategy = MirroredInput(1);
  strategy.workers = 2;
  EXPECT_EQ(Steps(DistributeDataset(Dataset::Range(4).Batch(2), strategy)),
            "[] then INVALID_ARGUMENT");  // no other worker to agree with
  strategy.agree = [](bool) -> absl::StatusOr<bool> {
    return absl::UnavailableError("worker 1 is gone");
  };
  EXPECT_EQ(Steps(DistributeDataset(Dataset::Range(4).Batch(2), strategy)), "[] then UNAVAILABLE");
  const Dataset broken = Dataset::Range(4).Batch(2).Map(
      [](Element) -> absl::StatusOr<Element> { return absl::DataLossError("broken"); });
  EXPECT_EQ(Steps(DistributeDataset(broken, MirroredInput(2))), "[] then DATA_LOSS");
}

TEST(DistributedDataset, ElementsGoToTheirReplicasDevice) {
  InputStrategy strategy = MirroredInput(2);
  strategy.devices = {Cpu(1), Cpu(2)};
  for (const int64_t ahead : {0, 1, 5}) {
    auto dataset =
        DistributeDataset(Dataset::Range(5).Batch(4), strategy, {.per_replica_buffer_size = ahead});
    auto iterator = *dataset->MakeIterator();
    std::vector<Element> step;
    for (int steps = 0; steps < 2; ++steps) {  // the last replica has an empty batch
      ASSERT_TRUE(*iterator->Next(&step));
      EXPECT_EQ(step[0][0].device(), Cpu(1));
      EXPECT_EQ(step[1][0].device(), Cpu(2));
    }
    EXPECT_FALSE(*iterator->Next(&step));
  }
  auto stay = DistributeDataset(Dataset::Range(4).Batch(4), strategy, {.fetch_to_device = false});
  std::vector<Element> step;
  ASSERT_TRUE(*(*stay->MakeIterator())->Next(&step));
  EXPECT_EQ(step[1][0].device(), Cpu(0));
}

TEST(DistributedDataset, PerReplicaDatasetsAreMadeOnTheirDevices) {
  InputStrategy strategy = MirroredInput(2);
  strategy.devices = {Cpu(1), Cpu(2)};
  const InputOptions options{.fetch_to_device = false,
                             .replication_mode = InputReplicationMode::kPerReplica,
                             .place_dataset_on_device = true};
  auto dataset = DistributeDatasetsFromFunction(
      [](const InputContext& context) {
        return Dataset::Range(context.input_pipeline_id(), 9).Batch(3);
      },
      strategy, options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(Steps(dataset), "[[[0,1,2],[1,2,3]],[[3,4,5],[4,5,6]],[[6,7,8],[7,8]]]");
  std::vector<Element> step;
  ASSERT_TRUE(*(*dataset->MakeIterator())->Next(&step));
  EXPECT_EQ(step[1][0].device(), Cpu(2));
}

TEST(DistributedDataset, AnotherDeviceThanACpuNeedsACopier) {
  InputStrategy strategy = MirroredInput(2);
  strategy.devices = {Cpu(0), Gpu(0)};
  EXPECT_EQ(Steps(DistributeDataset(Dataset::Range(4).Batch(4), strategy)),
            "[] then INVALID_ARGUMENT");
  strategy.copy_to = [](const Tensor& tensor, Device) -> absl::StatusOr<Tensor> { return tensor; };
  EXPECT_EQ(Steps(DistributeDataset(Dataset::Range(4).Batch(4), strategy)), "[[[0,1],[2,3]]]");
}

TEST(DistributedDataset, EveryPassHasItsOwnOrderOfAShuffle) {
  const Dataset shuffled = Dataset::Range(64).Shuffle(64, {.seed = 5}).Batch(8);
  auto dataset = DistributeDataset(shuffled, MirroredInput(2));
  EXPECT_NE(Steps(dataset), Steps(dataset));
  // … which depends only on the seed and the number of the pass.
  auto first =
      DistributeDataset(Dataset::Range(64).Shuffle(64, {.seed = 5}).Batch(8), MirroredInput(2));
  auto again =
      DistributeDataset(Dataset::Range(64).Shuffle(64, {.seed = 5}).Batch(8), MirroredInput(2));
  EXPECT_EQ(Steps(first), Steps(again));
}

TEST(DistributedDataset, ContradictionsAreRefused) {
  InputStrategy strategy = MirroredInput(2);
  strategy.devices = {Cpu(0)};
  const Dataset batches = Dataset::Range(4).Batch(2);
  EXPECT_TRUE(absl::IsInvalidArgument(DistributeDataset(batches, strategy).status()));
  strategy = MirroredInput(0);
  EXPECT_TRUE(absl::IsInvalidArgument(DistributeDataset(batches, strategy).status()));
  constexpr int64_t kLimit = 1 << 20;
  for (const int64_t size :
       {int64_t{-1}, kLimit + 1, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    const auto wrong =
        DistributeDataset(batches, MirroredInput(2), {.per_replica_buffer_size = size});
    EXPECT_THAT(wrong.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         ::testing::HasSubstr("allowed are 0 to 1048576")));
  }
  EXPECT_EQ(
      Steps(DistributeDataset(batches, MirroredInput(2), {.per_replica_buffer_size = kLimit})),
      "[[[0],[1]],[[2],[3]]]");
}

}  // namespace
}  // namespace cairn
