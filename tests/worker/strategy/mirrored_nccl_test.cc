// MirroredStrategy adds up by NCCL between fake GPUs: how many calls, how many bytes, which values.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/refusing_threads.h"
#include "tests/worker/strategy/case_support.h"
#include "worker/strategy/gpu_ranks.h"
#include "worker/strategy/variable_optimizer.h"

namespace cairn::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Device> Gpus(int32_t count) {
  std::vector<Device> gpus;
  for (int32_t i = 0; i < count; ++i) gpus.push_back(Gpu(i));
  return gpus;
}

// A tensor of `count` times `value` on the replica's GPU.
Value OnOwnGpu(int64_t count, double value) {
  return FullTensor(DType::kFloat32, {count}, value, Gpu(ReplicaId())).value();
}

// Calls of `name` during `work`.
int64_t CallsOf(const std::string& name, const std::function<void()>& work) {
  const int64_t before = fake::Calls(name);
  work();
  return fake::Calls(name) - before;
}

void AllReduceThree(Strategy& strategy, ReduceOp op, double first, double second, double third) {
  const auto sums = strategy.Run([op](absl::Span<const Value>) {
    const double own = ReplicaId() + 1;
    return GetReplicaContext()->AllReduce(
        op, Value::List({OnOwnGpu(3, own), OnOwnGpu(1000, 10 * own), OnOwnGpu(70, 100 * own)}));
  });
  ASSERT_OK(sums);
  const std::vector<Value> of_replicas = strategy.LocalResults(*sums).value();
  for (size_t r = 0; r < of_replicas.size(); ++r) {
    const auto items = of_replicas[r].items();
    EXPECT_EQ(items[1].tensor().device(), Gpu(static_cast<int32_t>(r)));
    EXPECT_THAT(Doubles(items[0]), Each(::testing::DoubleNear(first, 1e-5)));
    EXPECT_THAT(Doubles(items[1]), Each(::testing::DoubleNear(second, 1e-4)));
    EXPECT_THAT(Doubles(items[2]), Each(::testing::DoubleNear(third, 1e-3)));
    EXPECT_EQ(Doubles(items[2]).size(), 70u);
  }
}

TEST(MirroredNccl, GradientsOfACallArePackedInOneSum) {
  const auto strategy = MirroredStrategy::Create(Gpus(3)).value();
  EXPECT_EQ(strategy->cross_device_ops(), CrossDeviceOps::kNccl);
  AllReduceThree(*strategy, ReduceOp::kSum, 6, 60, 600);
  const int64_t copies = fake::Calls("cudaMemcpyPeerAsync");
  const int64_t bytes = fake::NcclBytes(), kernels = fake::NcclKernels();
  EXPECT_EQ(
      CallsOf("ncclAllReduce", [&] { AllReduceThree(*strategy, ReduceOp::kSum, 6, 60, 600); }), 3)
      << "one a GPU";
  EXPECT_EQ(fake::NcclKernels() - kernels, 3);
  // 3, 1000 and 70 floats, each rounded up to 64.
  EXPECT_EQ(fake::NcclBytes() - bytes, 3 * (64 + 1024 + 128) * 4);
  EXPECT_EQ(fake::Calls("cudaMemcpyPeerAsync"), copies) << "no copies between GPUs";
  AllReduceThree(*strategy, ReduceOp::kMean, 2, 20, 200);
}

TEST(MirroredNccl, PacksHaveAboutTheRequestedSizeAndGoInOneGroup) {
  const auto strategy = MirroredStrategy::Create(Gpus(2), {.bytes_per_pack = 1024}).value();
  AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
  int64_t sums = 0;
  // The last gradient and the second are more than 1024 bytes together.
  EXPECT_EQ(CallsOf("ncclGroupStart",
                    [&] {
                      sums = CallsOf("ncclAllReduce", [&] {
                        AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
                      });
                    }),
            2);
  EXPECT_EQ(sums, 2 * 2);
}

TEST(MirroredNccl, OtherOpsCanBeChosen) {
  for (const CrossDeviceOps ops :
       {CrossDeviceOps::kHierarchicalCopy, CrossDeviceOps::kReductionToOneDevice}) {
    const auto strategy = MirroredStrategy::Create(Gpus(4), {.cross_device_ops = ops}).value();
    EXPECT_EQ(
        CallsOf("ncclAllReduce", [&] { AllReduceThree(*strategy, ReduceOp::kSum, 10, 100, 1000); }),
        0);
    AllReduceThree(*strategy, ReduceOp::kMean, 2.5, 25, 250);
  }
}

TEST(MirroredNccl, IsRefusedWhereTheDevicesAreNotDifferentGpus) {
  const MirroredOptions nccl = {.cross_device_ops = CrossDeviceOps::kNccl};
  EXPECT_THAT(MirroredStrategy::Create({Cpu(0), Cpu(1)}, nccl),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cpu:0 is no GPU")));
  EXPECT_THAT(MirroredStrategy::Create({Gpu(0)}, nccl),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("more than one GPU")));
  EXPECT_THAT(MirroredStrategy::Create(Gpus(2), {.cross_device_ops = CrossDeviceOps::kRing}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NcclAllReduce")));
  EXPECT_THAT(MirroredStrategy::Create(Gpus(2), {.bytes_per_pack = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack")));
}

TEST(MirroredNccl, F8_DefaultFollowsFromTheDevices) {
  const auto of = [](std::vector<Device> devices) {
    return MirroredStrategy::Create(std::move(devices)).value()->cross_device_ops();
  };
  EXPECT_EQ(of({Gpu(0), Gpu(1)}), CrossDeviceOps::kNccl);
  for (const std::vector<Device>& devices : std::vector<std::vector<Device>>{
           {Cpu(0), Cpu(1)}, {Gpu(0), Cpu(0)}, {Gpu(0)}, {Gpu(0), Gpu(99)}}) {
    EXPECT_EQ(of(devices), CrossDeviceOps::kReductionToOneDevice);
  }
}

// Every GPU updates its copy with the sum that it has.
TEST(MirroredNccl, OptimizersUpdateEveryCopyFromItsOwnSum) {
  const auto strategy = MirroredStrategy::Create(Gpus(3)).value();
  const VariablePtr w =
      VariableOf(*strategy, Tensor::Vector<float>({1, 2}), VariableAggregation::kSum);
  const auto optimizer =
      VariableOptimizer::Create({.type = "sgd", .learning_rate = ConstantRate(0.5)}).value();
  const auto step = [&] {
    return OnReplicas(*strategy, [&]() -> absl::Status {
      return optimizer->ApplyGradients({{OnOwnGpu(2, ReplicaId()), w}});
    });
  };
  ASSERT_OK(step());
  const int64_t copies = fake::Calls("cudaMemcpyPeerAsync");
  ASSERT_OK(step());
  EXPECT_EQ(fake::Calls("cudaMemcpyPeerAsync"), copies);
  EXPECT_THAT(Copies(w), ElementsAre(-2, -2, -2));
}

// A call of any GPU fails: the step says so, no replica hangs, and the next step is right.
TEST(MirroredNccl, AnyFailedCallIsTheStepsErrorAndTheNextStepIsRight) {
  const auto strategy = MirroredStrategy::Create(Gpus(2)).value();
  const auto reduce = [&] {
    return strategy->Run([](absl::Span<const Value>) {
      return GetReplicaContext()->AllReduce(ReduceOp::kSum, OnOwnGpu(100, 1));
    });
  };
  ASSERT_OK(reduce());
  int failures = 0;
  for (int n = 1; n <= 60; n += 3) {
    fake::settings().fail_at = n;
    failures += reduce().ok() ? 0 : 1;
    fake::settings().fail_at = 0;
    AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
  }
  EXPECT_GT(failures, 5);
}

// Each sum needs both GPUs.
TEST(MirroredNccl, TwoStrategiesOfTheSameGpusMaySumInTwoThreads) {
  const auto reduce = [] {
    const auto strategy = MirroredStrategy::Create(Gpus(2)).value();
    for (int i = 0; i < 100; ++i) AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
  };
  std::thread other(reduce);
  reduce();
  other.join();
}

// An allocation may wait for the work of all GPUs. Here it never waits for a sum that waits for the
// GPU that allocates.
TEST(MirroredNccl, TensorsMayBeMadeDuringASum) {
  const auto strategy = MirroredStrategy::Create(Gpus(2)).value();
  AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
  fake::settings().allocation_waits = true;
  std::atomic<bool> done = false;
  std::thread maker([&done] {
    for (int64_t i = 1; !done; ++i) {
      EXPECT_OK(FullTensor(DType::kFloat32, {i % 300 * 4099}, 1, Gpu(1)));
    }
  });
  for (int i = 0; i < 20; ++i) AllReduceThree(*strategy, ReduceOp::kSum, 3, 30, 300);
  done = true;
  maker.join();
  fake::settings().allocation_waits = false;
}

TEST(MirroredNccl, LogicalGpusAreCountedAsSuch) {
  ASSERT_OK(SetLogicalGpus({2, 3}));
  EXPECT_OK(CheckNccl({Gpu(0), Gpu(1)}));
  EXPECT_THAT(CheckNccl({Gpu(0), Gpu(2)}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("shares a GPU with another")));
  EXPECT_THAT(CheckNccl({Gpu(0), Gpu(4)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it can use 2 here")));
  ASSERT_OK(SetLogicalGpus({}));
}

// The other GPUs would wait for the one that has no thread.
TEST(MirroredNccl, AThreadThatTheSystemRefusesIsTheStepsErrorAndTheNextStepIsRight) {
  const auto strategy = MirroredStrategy::Create(Gpus(3)).value();
  AllReduceThree(*strategy, ReduceOp::kSum, 6, 60, 600);
  absl::Status refused;
  {
    const NoThreads no_threads;  // the threads of replicas run already
    refused = strategy
                  ->Run([](absl::Span<const Value>) {
                    return GetReplicaContext()->AllReduce(ReduceOp::kSum, OnOwnGpu(100, 1));
                  })
                  .status();
  }
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("starting the thread of gpu:1")));
  AllReduceThree(*strategy, ReduceOp::kSum, 6, 60, 600);
}

}  // namespace
}  // namespace cairn::test
