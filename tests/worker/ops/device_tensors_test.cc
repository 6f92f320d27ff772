// Memory of tensors on devices: owner, reuse, and failed allocations.
#include "worker/ops/device_tensors.h"

#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/device_kinds.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor OnGpu(std::vector<float> values) {
  return CopyTensor(Tensor::Vector<float>(values), Gpu(0)).value();
}

// The assumption of every test here: the host cannot access a device's memory unnoticed.
TEST(DeviceTensorsDeathTest, TheHostDoesNotReachADevicesMemory) {
  const LoopDevices loops;
  const Tensor tensor = OnGpu({1, 2});
  EXPECT_DEATH(
      {
        const volatile float number = *static_cast<const float*>(tensor.data());
        (void)number;
      },
      "");
}

TEST(DeviceTensors, AllocatesAgainWhatIsFree) {
  const LoopDevices loops;
  const void* first = nullptr;
  {
    const Tensor tensor = OnGpu({1, 2});
    first = tensor.data();
  }
  const Tensor again = OnGpu({3});
  EXPECT_EQ(again.data(), first);
  const Tensor other = OnGpu({4});
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(HostTensor(again)->ToDoubles(), std::vector<double>{3});
}

TEST(DeviceTensors, WhatIsFreeIsGivenBackWhereMemoryIsShort) {
  auto queue = std::make_unique<LoopQueue>(/*guarded=*/true);
  LoopQueue& device = *queue;
  const auto tensors = std::make_shared<DeviceTensors>(Gpu(0), std::move(queue));
  const Tensor kept = tensors->Uninitialized(DType::kFloat32, {100}).value();
  { const Tensor freed = tensors->Uninitialized(DType::kFloat32, {1000}).value(); }
  device.LimitAllocations(0);
  // The first attempt fails, free blocks are released, and the second attempt succeeds.
  EXPECT_OK(tensors->Uninitialized(DType::kFloat32, {3000}));
  EXPECT_EQ(device.allocated(), 2) << "the kept one, and the one that is free again";
  // No block is free, so there is no second attempt.
  const Tensor all = tensors->Uninitialized(DType::kFloat32, {3000}).value();
  device.LimitAllocations(0);
  EXPECT_THAT(tensors->Uninitialized(DType::kFloat32, {3000}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many")));
}

TEST(DeviceTensors, ManyFreeBlocksAreGivenBack) {
  auto queue = std::make_unique<LoopQueue>(/*guarded=*/true);
  LoopQueue& device = *queue;
  const auto tensors = std::make_shared<DeviceTensors>(Gpu(0), std::move(queue));
  {
    std::vector<Tensor> many;
    for (int i = 0; i < 10; ++i) {
      many.push_back(tensors->Uninitialized(DType::kFloat32, {4 << 20}).value());
    }
    EXPECT_EQ(device.allocated(), 10);
  }
  // 160 MiB; 64 MiB may be kept.
  EXPECT_LE(device.allocated(), 4);
}

TEST(DeviceTensors, TheDevicesErrorIsTheCallersAndTheNextCallIsWell) {
  auto queue = std::make_unique<LoopQueue>();
  const auto tensors = std::make_shared<DeviceTensors>(Gpu(0), std::move(queue));
  EXPECT_THAT(tensors->Compute([](DeviceQueue& on) { on.Fail(absl::InternalError("no power")); }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no power")));
  EXPECT_OK(tensors->Compute([](DeviceQueue&) {}));
}

TEST(DeviceTensors, TensorsOutliveTheDevicesOfATest) {
  auto loops = std::make_unique<LoopDevices>();
  const Tensor tensor = OnGpu({1});
  loops.reset();
  EXPECT_EQ(tensor.device(), Gpu(0));
}

TEST(DeviceTensors, ThreadsTakeTurns) {
  const LoopDevices loops;
  std::vector<std::thread> threads;
  std::vector<double> sums(4);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&sums, t] {
      const auto own = static_cast<float>(t);
      for (int i = 0; i < 50; ++i) {
        const Tensor tensor = OnGpu({own, own, own});
        const Tensor sum = SumAxes(AddTensors({{tensor, tensor}}).value(), {0}).value();
        sums[t] += HostTensor(sum)->ToDoubles()[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 300.0 * static_cast<double>(t));
}

TEST(DeviceTensors, WhatCannotBeThereIsRefused) {
  if (UsableGpuCount() == 0) {
    const absl::Status refused = NewTensor(DType::kFloat32, {1}, Gpu(0)).status();
    EXPECT_EQ(refused.code(), OpenGpuQueue(Gpu(0)).status().code());
    EXPECT_THAT(refused.message(), HasSubstr("gpu:0"));
  }
  const LoopDevices loops;
  EXPECT_THAT(CopyTensor(Tensor::Texts({1}, {"a"}), Gpu(0)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("text [1]"), HasSubstr("gpu:0"))));
}

}  // namespace
}  // namespace cairn::test
