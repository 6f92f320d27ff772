// What CUDA's host code does to GPUs, threads and memory, on fake GPUs.
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_memory.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_tensors.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

TEST(FakeGpus, KeepHostThreadsOutOfTheirMemory) {
  if (!fake::IsProtected()) GTEST_SKIP() << "this processor has no protection keys";
  const auto queue = OpenGpuQueue(Gpu(0)).value();
  auto* const x = static_cast<volatile float*>(queue->AllocateDevice(4).value());
  EXPECT_DEATH(
      {
        const float read = *x;
        static_cast<void>(read);
      },
      "");
  queue->FreeDevice(const_cast<float*>(x));
}

// A process that computes on gpu:3 must not take memory on gpu:0, nor be refused there. In a thread
// that has used no GPU before.
TEST(CudaGpus, WorkOnOneGpuCreatesNoContextOnAnother) {
  ASSERT_FALSE(fake::HasContext(0)) << "this test must run first";
  fake::settings().forbidden = 0;
  std::thread([] {
    const absl::StatusOr<Tensor> tensor = CopyTensor(Tensor::Vector<float>({1, 2, 3}), Gpu(3));
    ASSERT_OK(tensor);
    for (int i = 0; i < 3; ++i) {
      const absl::StatusOr<Tensor> sum = SumAxes(*tensor, {0});
      ASSERT_OK(sum);
      EXPECT_EQ(HostTensor(*sum)->ToDoubles()[0], 6);
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left to the thread's own CUDA calls";
  }).join();
  // Page-locked memory that another thread frees.
  {
    const auto queue = OpenGpuQueue(Gpu(3)).value();
    void* const memory = queue->AllocateHost(64).value();
    std::thread([&] { queue->FreeHost(memory); }).join();
    EXPECT_OK(queue->Finish());
  }
  EXPECT_TRUE(fake::HasContext(3));
  EXPECT_FALSE(fake::HasContext(0));
  fake::settings().forbidden = -1;
}

TEST(CudaGpus, AThreadKeepsTheGpuThatItHasChosen) {
  std::thread([] {
    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
    ASSERT_OK(CopyTensor(Tensor::Vector<float>({1}), Gpu(1)));
    int device = -1;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 2);
  }).join();
}

TEST(CudaGpus, CopiesBetweenThemGoDirectly) {
  const int64_t staged = fake::StagedPeerCopies();
  for (int32_t from = 0; from < 3; ++from) {
    const Tensor tensor = CopyTensor(Tensor::Vector<float>({1, 2}), Gpu(from)).value();
    for (int32_t to = 0; to < 3; ++to) {
      const Tensor copy = CopyTensor(tensor, Gpu(to)).value();
      EXPECT_EQ(HostTensor(copy)->ToDoubles()[1], 2);
    }
  }
  EXPECT_EQ(fake::StagedPeerCopies(), staged);
}

}  // namespace
}  // namespace cairn::test
