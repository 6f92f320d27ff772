// Collectives between GPUs give the same sums as the CPU. Uses one GPU for each rank: as many ranks
// as there are GPUs, at most four; skipped without a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_queue.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

// A copy of host memory on the current device.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(float), cudaMemcpyHostToDevice),
              cudaSuccess);
    // The copy may have returned when its source was staged; other streams do not wait for it.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  MutableBuffer buffer() const { return {DType::kFloat32, data_, static_cast<int64_t>(count_)}; }
  std::vector<float> Values() const {
    std::vector<float> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  const size_t count_;
};

class NcclDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU here";
    ranks_ = std::min(gpus, 4);
  }
  int ranks_ = 0;
};

// A stream of GPU `device`; waits for its work at most 60 s.
class OfDevice {
 public:
  explicit OfDevice(int device) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~OfDevice() { cudaStreamDestroy(stream_); }
  OfDevice(const OfDevice&) = delete;
  OfDevice& operator=(const OfDevice&) = delete;

  cudaStream_t get() const { return stream_; }
  // Waits until the stream's work is done or `rank` has an error.
  absl::Status Await(DeviceRank& rank) const {
    const Deadline deadline = Soon();
    for (;;) {
      // First: a query may wait for what another rank's failure has left running.
      const absl::Status status = rank.Check();
      if (!status.ok()) return status;
      if (cudaStreamQuery(stream_) != cudaErrorNotReady) return rank.Check();
      if (deadline.Expired()) return absl::DeadlineExceededError("the stream's work");
    }
  }

 private:
  cudaStream_t stream_ = nullptr;
};

std::vector<Device> Gpus(int count) {
  std::vector<Device> gpus;
  for (int r = 0; r < count; ++r) gpus.push_back(Gpu(r));
  return gpus;
}

TEST_F(NcclDevices, RanksAddUpOnTheirStreamsAndTheRootHasTheSum) {
  const auto ranks = JoinByNccl(Gpus(ranks_));
  ASSERT_OK(ranks);
  OnRanks(ranks_, [&](int r) {
    DeviceRank& rank = *(*ranks)[static_cast<size_t>(r)];
    const OfDevice stream(r);
    const OnDevice a(test::Values(r, 100'003)), b(test::Values(r + 1, 17));
    for (int step = 0; step < 2; ++step) {
      const RankSum sums[] = {{static_cast<float*>(a.buffer().data), 100'003, 0},
                              {static_cast<float*>(b.buffer().data), 17, ranks_ - 1}};
      ASSERT_OK(rank.Reduce(sums, stream.get()));
      ASSERT_OK(stream.Await(rank));
      if (step > 0) break;
      std::vector<float> want(100'003), last(17);
      for (int other = 0; other < ranks_; ++other) {
        const std::vector<float> x = test::Values(other, 100'003), y = test::Values(other + 1, 17);
        for (size_t i = 0; i < want.size(); ++i) want[i] += x[i];
        for (size_t i = 0; i < last.size(); ++i) last[i] += y[i];
      }
      const std::vector<float> got = a.Values(), got_last = b.Values();
      for (size_t i = 0; r == 0 && i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5F);
      for (size_t i = 0; r == ranks_ - 1 && i < last.size(); ++i) {
        ASSERT_NEAR(got_last[i], last[i], 1e-5F);
      }
    }
  });
}

// Each worker has one GPU, or two.
TEST_F(NcclDevices, WorkersHaveTheSumOverTheGpusOfAll) {
  for (const int each : {1, 2}) {
    const int count = ranks_ / each;
    if (count == 0) continue;
    Ranks workers(count), oracle(count * each);
    OnRanks(count, [&](int worker) {
      const std::vector<Device> own = {Gpu(worker * each), Gpu(worker * each + each - 1)};
      const auto ranks = JoinByNccl(absl::MakeConstSpan(own).first(static_cast<size_t>(each)),
                                    {.workers = &workers[worker]});
      ASSERT_OK(ranks);
      OnRanks(each, [&](int local) {
        const int r = worker * each + local;
        DeviceRank& rank = *(*ranks)[static_cast<size_t>(local)];
        const OfDevice stream(r);
        std::vector<float> want = test::Values(r, 100'003);
        const OnDevice x(want);
        ASSERT_OK(oracle[r].AllReduce(ReduceOp::kSum, Into(want), Soon()));
        const RankSum sum = {static_cast<float*>(x.buffer().data), want.size(), RankSum::kAllRanks};
        ASSERT_OK(rank.Reduce({&sum, 1}, stream.get()));
        ASSERT_OK(stream.Await(rank));
        const std::vector<float> got = x.Values();
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6F * want[i]);
      });
      EXPECT_OK(workers[worker].Barrier(Soon()));
    });
  }
}

// Ops that write the inputs of a sum run before it, and copies of the sum after it.
TEST_F(NcclDevices, QueuesAddUpBetweenTheirOpsAndTheirCopiesOut) {
  constexpr size_t kCount = 70'001, kBytes = kCount * sizeof(float);
  const auto ranks = JoinByNccl(Gpus(ranks_));
  ASSERT_OK(ranks);
  std::vector<float> want(kCount);
  for (int r = 0; r < ranks_; ++r) {
    const std::vector<float> values = test::Values(r, kCount);
    for (size_t i = 0; i < kCount; ++i) want[i] += 3 * values[i];
  }
  OnRanks(ranks_, [&](int r) {
    const auto queue = OpenGpuQueue(Gpu(r));
    ASSERT_OK(queue);
    auto* const x = static_cast<float*>((*queue)->AllocateDevice(kBytes).value());
    auto* const host = static_cast<float*>((*queue)->AllocateHost(kBytes).value());
    for (int root = 0; root < ranks_; ++root) {
      const std::vector<float> values = test::Values(r, kCount);
      std::copy(values.begin(), values.end(), host);
      (*queue)->AwaitCopy((*queue)->CopyIn(host, x, kBytes));
      (*queue)->ops().Scale(3, x, kCount);
      const RankSum sum = {x, kCount, root};
      (*queue)->Reduce(*(*ranks)[static_cast<size_t>(r)], {&sum, 1});
      if (r == root) (*queue)->CopyOut(x, host, kBytes);
      EXPECT_OK((*queue)->Finish());
      for (size_t i = 0; r == root && i < kCount; ++i) ASSERT_NEAR(host[i], want[i], 1e-4F);
    }
    (*queue)->FreeDevice(x);
    (*queue)->FreeHost(host);
  });
}

TEST_F(NcclDevices, ARankThatGivesUpEndsTheOthersQueuedWork) {
  if (ranks_ < 2) GTEST_SKIP() << "needs two GPUs";
  const auto ranks = JoinByNccl(Gpus(ranks_));
  ASSERT_OK(ranks);
  Ranks host(ranks_);
  OnRanks(ranks_, [&](int r) {
    DeviceRank& rank = *(*ranks)[static_cast<size_t>(r)];
    const OfDevice stream(r);
    const OnDevice x(test::Values(r, 1000));
    const RankSum sum = {static_cast<float*>(x.buffer().data), 1000, 0};
    ASSERT_OK(rank.Reduce({&sum, 1}, stream.get()));
    ASSERT_OK(stream.Await(rank));
    // A rank that only sends is done before the others.
    ASSERT_OK(host[r].Barrier(Soon()));
    if (r == 1) return rank.Fail(absl::InternalError("no more"));
    absl::Status status = rank.Reduce({&sum, 1}, stream.get());
    if (status.ok()) status = stream.Await(rank);
    // The root waits for every rank. One that only sends may be done.
    if (r == 0 || !status.ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("no more")));
    }
  });
}

}  // namespace
}  // namespace cairn::test
