// Collectives between GPUs give the sums that the CPU gives. Needs a GPU for each rank: as many
// ranks as there are GPUs, at most four, and skipped where there is none.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/nccl_group.h"

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

TEST_F(NcclDevices, AllReduceBroadcastAndGatherAgreeWithTheCpu) {
  InProcessGroups bootstrap = InProcessGroups::Create(CpuDevices(ranks_)).value();
  InProcessGroups oracle = InProcessGroups::Create(CpuDevices(ranks_)).value();
  OnRanks(ranks_, [&](int r) {
    const auto group = ConnectNccl(bootstrap.rank(r), {.device = r}, Soon());
    ASSERT_OK(group);
    std::vector<float> want = test::Values(r, 100'003);
    const OnDevice in(want);
    const OnDevice out(std::vector<float>(want.size()));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      want = test::Values(r, want.size());
      ASSERT_OK(oracle.rank(r).AllReduce(op, Into(want), Soon()));
      ASSERT_OK((*group)->AllReduce(op, in.buffer(), out.buffer(), Soon()));
      const std::vector<float> got = out.Values();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6F * want[i]);
    }
    ASSERT_OK((*group)->Broadcast(ranks_ - 1, in.buffer(), Soon()));
    EXPECT_EQ(in.Values(), test::Values(ranks_ - 1, want.size()));

    const OnDevice part(std::vector<float>(static_cast<size_t>(r) + 1, static_cast<float>(r)));
    const OnDevice all(std::vector<float>(static_cast<size_t>(ranks_ * (ranks_ + 1) / 2)));
    const auto place = [&](absl::Span<const int64_t>) -> absl::StatusOr<MutableBuffer> {
      return all.buffer();
    };
    ASSERT_OK((*group)->AllGatherV(part.buffer(), place, Soon()));
    EXPECT_EQ(all.Values().back(), static_cast<float>(ranks_ - 1));
  });
}

TEST_F(NcclDevices, WrongArgumentsAreRefusedAndTheGroupGoesOn) {
  InProcessGroups bootstrap = InProcessGroups::Create(CpuDevices(ranks_)).value();
  OnRanks(ranks_, [&](int r) {
    const auto group = ConnectNccl(bootstrap.rank(r), {.device = r}, Soon());
    ASSERT_OK(group);
    const OnDevice four(std::vector<float>(4));
    const OnDevice five(std::vector<float>(5));
    EXPECT_THAT((*group)->AllReduce(ReduceOp::kSum, four.buffer(), five.buffer(), Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("all_reduce")));
    EXPECT_OK((*group)->AllReduce(ReduceOp::kSum, four.buffer(), Soon()));
  });
}

}  // namespace
}  // namespace cairn::test
