// What CUDA's host code does to GPUs, threads and memory, on fake GPUs.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/deadline.h"
#include "common/host_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_memory.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/cuda_device_queue.h"
#include "worker/ops/cuda_gpus.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_rank.h"
#include "worker/ops/device_tensors.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLargeVector = size_t{1} << 20;  // bytes of a HostVector that is page-locked

TEST(FakeGpus, KeepHostThreadsOutOfTheirMemory) {
  if (!fake::IsProtected()) GTEST_SKIP() << "this processor has no protection keys";
  const auto queue = OpenGpuQueue(Gpu(1)).value();
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
  // A block of HostVectors that is given back for a larger one.
  { const HostVector<char> small(kLargeVector); }
  const size_t bytes = fake::HostBytes();
  std::thread([] { EXPECT_TRUE(IsPageLocked(HostVector<char>(4 * kLargeVector).data())); }).join();
  EXPECT_EQ(fake::HostBytes(), bytes + 3 * kLargeVector);
  EXPECT_FALSE(fake::HasContext(0));
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

// Not only with tensors: between the steps of a queue, too.
TEST(CudaGpus, AThreadMayChooseAGpuBetweenTheStepsOfAQueue) {
  std::thread([] {
    const auto queue = OpenGpuQueue(Gpu(1)).value();
    const std::vector<std::function<void()>> calls = {
        [&] { queue->FreeHost(queue->AllocateHost(64).value()); },
        [&] { queue->FreeDevice(queue->AllocateDevice(64).value()); },
        [&] { EXPECT_OK(queue->PrepareProducts()); },
    };
    auto* const x = static_cast<float*>(queue->AllocateDevice(64).value());
    for (const std::function<void()>& call : calls) {
      call();
      ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
      queue->ops().Scale(2, x, 16);
      EXPECT_OK(queue->Finish());
    }
    queue->FreeDevice(x);
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

// The rank's sums, queued as work of the test.
class RecordingRank final : public DeviceRank {
 public:
  absl::Status Reduce(absl::Span<const RankSum>, CUstream_st* stream) override {
    stream_ = stream;
    return absl::OkStatus();
  }
  absl::Status Check() override { return absl::OkStatus(); }
  void Fail(const absl::Status&) override {}
  void Abandon(const absl::Status&) override {}

  CUstream_st* stream() const { return stream_; }

 private:
  CUstream_st* stream_ = nullptr;
};

// The copy of one sum to the host must not delay the next sum, for which the other ranks wait.
TEST(CudaQueue, SumsDoNotWaitForCopiesToTheHost) {
  const auto queue = OpenGpuQueue(Gpu(1)).value();
  auto* const x = static_cast<float*>(queue->AllocateDevice(64).value());
  void* const host = queue->AllocateHost(64).value();
  RecordingRank rank;
  fake::BeginTrace();
  const RankSum sum = {x, 16, 0};
  queue->Reduce(rank, {&sum, 1});
  queue->CopyOut(x, host, 64);
  EXPECT_OK(queue->Finish());
  for (const fake::TracedCall& call : fake::EndTrace()) {
    EXPECT_TRUE(call.name != "cudaMemcpyAsync" || call.stream != rank.stream());
  }
  queue->FreeDevice(x);
  queue->FreeHost(host);
}

// But the copy waits for the sum.
TEST(CudaQueue, ACopyToTheHostWaitsForItsSum) {
  const auto queue = OpenGpuQueue(Gpu(1)).value();
  auto* const x = static_cast<float*>(queue->AllocateDevice(64).value());
  auto* const host = static_cast<float*>(queue->AllocateHost(64).value());
  class AddingRank final : public DeviceRank {
   public:
    absl::Status Reduce(absl::Span<const RankSum> sums, CUstream_st* stream) override {
      fake::Enqueue(stream, [sum = sums[0]] {
        fake::Pause(2000);
        for (size_t i = 0; i < sum.count; ++i) sum.x[i] += 5;
      });
      return absl::OkStatus();
    }
    absl::Status Check() override { return absl::OkStatus(); }
    void Fail(const absl::Status&) override {}
    void Abandon(const absl::Status&) override {}
  } rank;
  queue->ops().Zero(x, 16);
  const RankSum sum = {x, 16, 0};
  queue->Reduce(rank, {&sum, 1});
  queue->CopyOut(x, host, 64);
  EXPECT_OK(queue->Finish());
  EXPECT_EQ(host[15], 5);
  queue->FreeDevice(x);
  queue->FreeHost(host);
}

// The rank knows how long it waits for the other ranks.
TEST(CudaQueue, SumsAreWaitedForAsLongAsTheirRankWaits) {
  std::unique_ptr<CudaDeviceQueue> queue = MakeCudaQueue(Gpu(1), 1);
  ASSERT_OK(queue->Open());
  queue->set_step_timeout(absl::Milliseconds(20), /*sum_extra=*/absl::Milliseconds(20));
  class LateRank final : public DeviceRank {
   public:
    absl::Status Reduce(absl::Span<const RankSum>, CUstream_st* stream) override {
      begin_ = MonotonicNow();
      fake::Enqueue(stream, [done = done_] {
        while (!*done) fake::Pause(100);
      });
      return absl::OkStatus();
    }
    absl::Status Check() override {
      if (MonotonicNow() - begin_ > absl::Milliseconds(300)) *done_ = true;
      return absl::OkStatus();
    }
    absl::Duration limit() const override { return absl::Seconds(20); }
    void Fail(const absl::Status&) override { *done_ = true; }
    void Abandon(const absl::Status&) override { *done_ = true; }

   private:
    absl::Duration begin_;
    const std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
  } rank;
  auto* const x = static_cast<float*>(queue->AllocateDevice(64).value());
  const RankSum sum = {x, 16, RankSum::kAllRanks};
  queue->Reduce(rank, {&sum, 1});
  EXPECT_OK(queue->Finish());
  queue->FreeDevice(x);
}

uint64_t LargestKernel(const std::vector<fake::TracedCall>& calls) {
  uint64_t largest = 0;
  for (const fake::TracedCall& call : calls) {
    if (call.name == "kernel") largest = std::max(largest, call.size);
  }
  return largest;
}

// A GPU needs many threads: rows that are named several times, and long sums, must not be left to
// one thread a column.
TEST(CudaTensors, RepeatedRowsAndLongSumsAreDoneByManyThreads) {
  constexpr int64_t kIds = 4000, kRows = 1000, kWidth = 4;
  std::vector<int64_t> ids;
  std::vector<float> values;
  for (int64_t i = 0; i < kIds; ++i) {
    ids.push_back(i * 7 % kRows);
    for (int64_t c = 0; c < kWidth; ++c) values.push_back(static_cast<float>(i % 13 + c));
  }
  for (const ElementOp op : {ElementOp::kAdd, ElementOp::kSet, ElementOp::kMul}) {
    Tensor want = FullTensor(DType::kFloat32, {kRows, kWidth}, 1, Cpu(0)).value();
    Tensor got = CopyTensor(want, Gpu(0)).value();
    const Tensor rows = Tensor::Vector<int64_t>(ids);
    const Tensor terms = Tensor::Of<float>({kIds, kWidth}, values);
    ASSERT_OK(ApplyRows(op, rows, terms, &want));
    fake::BeginTrace();
    ASSERT_OK(ApplyRows(op, rows, terms, &got));
    EXPECT_GE(LargestKernel(fake::EndTrace()), static_cast<uint64_t>(kRows * kWidth));
    EXPECT_EQ(HostTensor(got)->ToDoubles(), want.ToDoubles()) << "the same order gives the bits";
  }
  const Tensor ones = FullTensor(DType::kInt64, {100'003}, 1, Gpu(0)).value();
  fake::BeginTrace();
  const Tensor sum = SumAxes(ones, {0}).value();
  EXPECT_GE(LargestKernel(fake::EndTrace()), 300u);
  EXPECT_EQ(HostTensor(sum)->ToDoubles()[0], 100'003);
}

// After a step that never ends nothing waits for the device any longer. No test after this one has
// page-locked HostVectors.
TEST(CudaQueue, AStepThatNeverEndsIsNamedAndNothingWaitsForItAgain) {
  std::unique_ptr<CudaDeviceQueue> queue = MakeCudaQueue(Gpu(2), 2);
  ASSERT_OK(queue->Open());
  queue->set_step_timeout(absl::Milliseconds(50));
  PageLockHostMemory(Gpu(2));
  auto gradient = std::make_unique<HostVector<char>>(kLargeVector);
  const char* const gradient_memory = gradient->data();
  ASSERT_TRUE(IsPageLocked(gradient_memory));
  auto* const x = static_cast<float*>(queue->AllocateDevice(64).value());
  fake::BeginTrace();
  queue->ops().Zero(x, 16);
  const cudaStream_t stream = fake::EndTrace().back().stream;
  const auto released = std::make_shared<std::atomic<bool>>(false);
  fake::Enqueue(stream, [released] {
    while (!*released) fake::Pause(100);
  });
  EXPECT_THAT(queue->Finish(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("gpu:2")));
  fake::settings().allocation_waits = true;
  EXPECT_THAT(queue->AllocateDevice(64), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  HasSubstr("start the process again")));
  EXPECT_THAT(queue->AllocateHost(64), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                HasSubstr("start the process again")));
  // A HostVector is not page-locked, and does not get memory to which the step may still copy.
  gradient.reset();
  const HostVector<char> vector(kLargeVector);
  EXPECT_FALSE(IsPageLocked(vector.data()));
  EXPECT_NE(vector.data(), gradient_memory);
  queue->FreeDevice(x);
  EXPECT_FALSE(queue->Finish().ok());
  queue.reset();
  *released = true;
  fake::settings().allocation_waits = false;
}

TEST(CudaGpus, SeveralLogicalOnesShareOne) {
  EXPECT_THAT(SetLogicalGpus({0, 4096}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4096")));
  ASSERT_OK(SetLogicalGpus({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(UsableGpuCount(), 6);
  const Tensor tensor = CopyTensor(Tensor::Vector<float>({1, 2}), Gpu(5)).value();
  EXPECT_TRUE(fake::IsDeviceMemory(tensor.data(), 1));
  const Tensor other = CopyTensor(tensor, Gpu(4)).value();
  EXPECT_EQ(other.device(), Gpu(4));
  EXPECT_EQ(HostTensor(other)->ToDoubles()[1], 2);
  ASSERT_OK(SetLogicalGpus({}));
}

TEST(CudaGpus, SeveralHaveCudaLoadKernelsAtTheStart) {
  ::unsetenv("CUDA_MODULE_LOADING");
  LoadKernelsEarly(1);
  EXPECT_EQ(std::getenv("CUDA_MODULE_LOADING"), nullptr);
  LoadKernelsEarly(2);
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  LoadKernelsEarly(2);
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "LAZY");
}

// Runs in a process of its own, in which the fake driver is that of $CAIRN_FAKE_DRIVER.
TEST(CudaDriver, ThatIsTooOldIsNamedAndNoneIsNoFault) {
  if (std::getenv("CAIRN_FAKE_DRIVER") == nullptr) GTEST_SKIP() << "run by meson test";
  EXPECT_EQ(UsableGpuCount(), 0);
  if (std::string(std::getenv("CAIRN_FAKE_DRIVER")) == "0") {
    EXPECT_OK(GpuStatus());
    return;
  }
  EXPECT_THAT(GpuStatus(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("the driver is for CUDA 12.4, this program needs "
                                              "one for 13.0")));
}

}  // namespace
}  // namespace cairn::test
