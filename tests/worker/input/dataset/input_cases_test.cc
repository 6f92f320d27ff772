// TensorFlow's guarantees for distributed input, case by case.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/input/dataset/elements.h"
#include "worker/input/dataset/auto_shard.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/input/dataset/input_context.h"
#include "worker/input/dataset/rebatch.h"

namespace cairn {
namespace {

using test::Drained;
using test::Elements;
using test::MirroredInput;
using test::Steps;

absl::StatusOr<Element> Unchanged(Element element) { return element; }

// The steps of every worker, one worker on each line.
std::string StepsOfWorkers(int64_t workers, int64_t replicas, const Dataset& dataset) {
  std::string text;
  for (const Drained& worker :
       test::RunWorkers(workers, replicas, [&dataset](const InputStrategy& strategy) {
         return DistributeDataset(dataset, strategy);
       })) {
    EXPECT_TRUE(worker.status.ok()) << worker.status;
    absl::StrAppend(&text, worker.elements.dump(), "\n");
  }
  return text;
}

TEST(InputCases, A9_PartialBatchOfTwoReplicas) {
  const Dataset dataset = Dataset::Range(5, 8).Batch(4);
  EXPECT_EQ(Steps(DistributeDataset(dataset, MirroredInput(2))), "[[[5,6],[7]]]");
  const Dataset ones =
      Dataset::FromTensorSlices({Tensor::Full(DType::kFloat32, {3, 2}, 1)}).Batch(4);
  EXPECT_EQ(Steps(DistributeDataset(ones, MirroredInput(2))),
            "[[[[1.0,1.0],[1.0,1.0]],[[1.0,1.0]]]]");
}

TEST(InputCases, A19_InputContext) {
  const InputContext context(2, 1, 6);
  EXPECT_EQ(*context.GetPerReplicaBatchSize(12), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(context.GetPerReplicaBatchSize(13).status()));
  EXPECT_EQ(InputContext(1, 0, 42).ToText(),
            "tf.distribute.InputContext(input pipeline id 0, total: 1)");
  EXPECT_EQ(InputContext(3, 1, 42).ToText(),
            "tf.distribute.InputContext(input pipeline id 1, total: 3)");
}

TEST(InputCases, C1_UnevenDatasetBatches) {
  // One batch for each replica, not split, as input functions make them.
  const auto steps = [](bool drop_remainder) {
    return Steps(DistributeDatasetsFromFunction(
        [drop_remainder](const InputContext&) {
          return Dataset::Range(9).Batch(2, drop_remainder);
        },
        MirroredInput(2)));
  };
  EXPECT_EQ(steps(false), "[[[0,1],[2,3]],[[4,5],[6,7]],[[8],[]]]");
  EXPECT_EQ(steps(true), "[[[0,1],[2,3]],[[4,5],[6,7]]]");
}

TEST(InputCases, C2_UnevenDatasetBatchesMultiWorker) {
  EXPECT_EQ(StepsOfWorkers(2, 1, Dataset::Range(9).Batch(2)),
            "[[[0]],[[2]],[[4]],[[6]],[[8]]]\n[[[1]],[[3]],[[5]],[[7]],[[]]]\n");
  EXPECT_EQ(StepsOfWorkers(2, 1, Dataset::Range(9).Batch(2, true)),
            "[[[0]],[[2]],[[4]],[[6]]]\n[[[1]],[[3]],[[5]],[[7]]]\n");
}

TEST(InputCases, C3_UnevenDatasetBatchesMultiWorkerFourReplicas) {
  EXPECT_EQ(StepsOfWorkers(2, 2, Dataset::Range(15).Batch(4)),
            "[[[0],[2]],[[4],[6]],[[8],[10]],[[12],[14]]]\n"
            "[[[1],[3]],[[5],[7]],[[9],[11]],[[13],[]]]\n");
}

TEST(InputCases, C5_AutoshardingOption) {
  const auto shares = [](AutoShardPolicy policy) {
    return Elements(AutoShard(Dataset::Range(4), policy, 2, 0)->dataset) + " " +
           Elements(AutoShard(Dataset::Range(4), policy, 2, 1)->dataset);
  };
  EXPECT_EQ(shares(AutoShardPolicy::kAuto), "[0,2] [1,3]");
  EXPECT_EQ(shares(AutoShardPolicy::kOff), "[0,1,2,3] [0,1,2,3]");
}

TEST(InputCases, C6_MWMSPartialBatch) {
  const Dataset dataset = Dataset::Range(12).Batch(8).WithAutoShardPolicy(AutoShardPolicy::kOff);
  const std::string each = "[[[0,1,2,3]],[[4,5,6,7]],[[8,9,10,11]]]\n";
  EXPECT_EQ(StepsOfWorkers(2, 1, dataset), each + each);
}

TEST(InputCases, C7_MWMSPartialBatchWithLegacyRebatch) {
  const Dataset dataset =
      Dataset::Range(12).Batch(8).Map(Unchanged).WithAutoShardPolicy(AutoShardPolicy::kOff);
  const std::string each = "[[[0,1,2,3]],[[4,5,6,7]],[[8,9]],[[10,11]]]\n";
  EXPECT_EQ(StepsOfWorkers(2, 1, dataset), each + each);
}

TEST(InputCases, C8_MWMSWithDataSharding) {
  for (const AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kData}) {
    EXPECT_EQ(StepsOfWorkers(2, 1, Dataset::Range(8).Batch(3).WithAutoShardPolicy(policy)),
              "[[[0,1]],[[3,4]],[[6]]]\n[[[2]],[[5]],[[7]]]\n");
  }
}

TEST(InputCases, C11_SimpleInputFromDatasetLastPartialBatch) {
  EXPECT_EQ(StepsOfWorkers(2, 1, Dataset::Range(14).Batch(8)),
            "[[[0,1,2,3]],[[8,9,10]]]\n[[[4,5,6,7]],[[11,12,13]]]\n");
}

TEST(InputCases, C14_DatasetPartialBatch) {
  const Dataset dataset = Dataset::FromTensorSlices({Tensor::Vector<float>({5})}).Batch(2);
  EXPECT_EQ(Steps(DistributeDataset(dataset, MirroredInput(2))), "[[[5.0],[]]]");
  EXPECT_EQ(Steps(DistributeDataset(dataset, MirroredInput(3))), "[[[5.0],[],[]]]");
}

std::vector<std::vector<int64_t>> SizesOfWorkers(int64_t batch, int64_t workers, int64_t replicas) {
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t worker = 0; worker < workers; ++worker) {
    sizes.push_back(*BatchSizesForWorker(batch, workers, replicas, worker));
  }
  return sizes;
}

TEST(InputCases, C17_BatchSizesForWorker) {
  using Sizes = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(SizesOfWorkers(8, 2, 2), (Sizes{{2, 2, 2, 2}, {2, 2, 2, 2}}));
  EXPECT_EQ(SizesOfWorkers(4, 3, 1), (Sizes{{2, 1, 1}, {1, 1, 2}, {1, 2, 1}}));
  for (int64_t batch = 0; batch < 20; ++batch) {
    for (const auto& [workers, replicas] : {std::pair{1, 3}, {2, 2}, {3, 1}, {3, 4}}) {
      const Sizes sizes = SizesOfWorkers(batch, workers, replicas);
      for (const std::vector<int64_t>& of_worker : sizes) {
        ASSERT_EQ(of_worker.size(), static_cast<size_t>(workers * replicas));
        EXPECT_EQ(std::accumulate(of_worker.begin(), of_worker.end(), int64_t{0}), batch);
        const auto [least, most] = std::minmax_element(of_worker.begin(), of_worker.end());
        EXPECT_LE(*most - *least, 1);
      }
      for (int64_t step = 0; step < workers; ++step) {
        int64_t rows = 0;
        for (const std::vector<int64_t>& of_worker : sizes) {
          const auto first = of_worker.begin() + step * replicas;
          rows += std::accumulate(first, first + replicas, int64_t{0});
        }
        EXPECT_EQ(rows, batch) << "step " << step << " of a batch of " << batch;
      }
    }
  }
}

TEST(InputCases, C18_BatchNotDivisibleByNumReplicas) {
  EXPECT_EQ(Elements(Dataset::Range(8).Batch(4).LegacyRebatch(3)),
            "[[0,1],[2,3],[],[4,5],[6,7],[]]");
}

TEST(InputCases, C20_ScalarInputErrorAndComputeBatchSize) {
  const Dataset range = Dataset::Range(40);
  EXPECT_TRUE(absl::IsInvalidArgument(ComputeBatchSize(range).status()));
  EXPECT_EQ(*ComputeBatchSize(range.Batch(4)), 4);
  EXPECT_EQ(*ComputeBatchSize(range.Batch(4).Take(5)), 4);
  EXPECT_EQ(*ComputeBatchSize(range.Batch(4).Map(Unchanged)), -1);
  EXPECT_EQ(*ComputeBatchSize(Dataset::Zip({range.Batch(4), range.Batch(8)})), -1);
  EXPECT_EQ(*ComputeBatchSize(Dataset::Zip({range.Batch(4, true), range.Batch(4, true)})), 4);
}

TEST(InputCases, C21_EmptySplits) {
  const Dataset dataset = Dataset::Range(8).Batch(4);
  EXPECT_EQ(Elements(dataset.Rebatch({1, 1, 1, 1, 0})), "[[0],[1],[2],[3],[],[4],[5],[6],[7],[]]");
  EXPECT_EQ(Elements(dataset.Rebatch({0, 1})),
            "[[],[0],[],[1],[],[2],[],[3],[],[4],[],[5],[],[6],[],[7],[]]");
  EXPECT_EQ(Elements(dataset.Rebatch({1, 0})),
            "[[0],[],[1],[],[2],[],[3],[],[4],[],[5],[],[6],[],[7],[]]");
}

TEST(InputCases, C22_PartialBatchAndBatchSizeGreaterThanOriginal) {
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(4).Rebatch({2, 2})), "[[0,1],[2,3],[4]]");
  EXPECT_EQ(Elements(Dataset::Range(5).Batch(4).Rebatch({2, 2}, true)), "[[0,1],[2,3]]");
  EXPECT_EQ(Elements(Dataset::Range(12).Batch(4).Rebatch({6})), "[[0,1,2,3,4,5],[6,7,8,9,10,11]]");
}

TEST(InputCases, C23_SixRowsOverFourReplicas) {
  EXPECT_EQ(*BatchSizesForWorker(6, 1, 4, 0), (std::vector<int64_t>{2, 2, 1, 1}));
  const Dataset dataset = Dataset::Range(6).Batch(6);
  EXPECT_EQ(Elements(dataset.LegacyRebatch(4)), "[[0,1],[2,3],[4,5],[]]");
  const InputStrategy four = MirroredInput(4);
  EXPECT_EQ(Elements(*DatasetOfWorker(dataset, four)), "[[0,1],[2,3],[4,5],[]]");
  EXPECT_EQ(Elements(*DatasetOfWorker(dataset.WithAutoShardPolicy(AutoShardPolicy::kOff), four)),
            "[[0,1],[2,3],[4],[5]]");
}

TEST(InputCases, C26_WorkersAndShardsOutOfRange) {
  // The names are skipped: no file is opened.
  std::vector<std::string> files;
  for (int i = 0; i < 10; ++i) files.push_back(absl::StrCat("/nowhere/file", i));
  const auto many = AutoShard(Dataset::TFRecord(files), AutoShardPolicy::kFile, 500, 499);
  EXPECT_EQ(Elements(many->dataset), "[]");
  const auto few = AutoShard(Dataset::Range(5), AutoShardPolicy::kData, 10, 0);
  EXPECT_EQ(Elements(few->dataset), "[] then INVALID_ARGUMENT");
  EXPECT_EQ(Elements(AutoShard(Dataset::Range(0), AutoShardPolicy::kData, 10, 0)->dataset), "[]");
  EXPECT_TRUE(
      absl::IsInvalidArgument(AutoShard(Dataset::Range(5), AutoShardPolicy::kData, 2, 2).status()));
}

TEST(InputCases, C27_FileShardingWithoutReaderAndHints) {
  EXPECT_TRUE(
      absl::IsNotFound(AutoShard(Dataset::Range(100), AutoShardPolicy::kFile, 10, 0).status()));
  const auto hint = [](const Dataset& dataset) {
    return Elements(AutoShard(dataset, AutoShardPolicy::kHint, 10, 0)->dataset);
  };
  EXPECT_EQ(hint(Dataset::Range(100).Shard(kShardHint, 0)), "[0,10,20,30,40,50,60,70,80,90]");
  EXPECT_EQ(hint(Dataset::Range(100).Shard(1, 0)), Elements(Dataset::Range(100)));
}

TEST(InputCases, C29_LegacyRebatchWithDataSharding) {
  const Dataset dataset = Dataset::Range(8).Batch(4).WithAutoShardPolicy(AutoShardPolicy::kData);
  EXPECT_EQ(StepsOfWorkers(3, 1, dataset), "[[[0,1]],[[4,5]]]\n[[[2,3]],[[6,7]]]\n[[[]],[[]]]\n");
}

}  // namespace
}  // namespace cairn
