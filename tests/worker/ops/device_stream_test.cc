// Users' kernels and streams beside Cairn's, on fake GPUs.
#include "worker/ops/device_stream.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "worker/ops/tensor_math.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A kernel that doubles `count` floats.
cudaError_t LaunchDouble(cudaStream_t stream, float* x, uint64_t count) {
  return fake::Launch(stream, count, [=](int thread, int threads) {
    for (auto i = static_cast<uint64_t>(thread); i < count; i += static_cast<uint64_t>(threads)) {
      x[i] *= 2;
    }
  });
}

TEST(DeviceStream, AUsersKernelRunsBetweenTheOpsBeforeAndAfter) {
  Tensor x = FullTensor(DType::kFloat32, {3}, 5, Gpu(1)).value();
  auto* const data = static_cast<float*>(x.mutable_data());
  ASSERT_OK(ComputeOnStream(Gpu(1), [&](CUstream_st* stream) -> absl::Status {
    int current = -1;
    cudaGetDevice(&current);
    EXPECT_EQ(current, 1);
    EXPECT_EQ(LaunchDouble(stream, data, 3), cudaSuccess);
    return absl::OkStatus();
  }));
  EXPECT_THAT(HostTensor(x)->ToDoubles(), ElementsAre(10, 10, 10));
  EXPECT_THAT(HostTensor(SumAxes(x, {0}).value())->ToDoubles(), ElementsAre(30));
}

// DLPack's rule for a consumer: wait for the producer's stream.
TEST(DeviceStream, OpsFollowTheStreamOfAnotherFramework) {
  Tensor x = FullTensor(DType::kFloat32, {2}, 1, Gpu(2)).value();
  auto* const data = static_cast<float*>(x.mutable_data());
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  cudaStream_t own = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
  for (const cudaStream_t stream : {own, cudaStream_t{nullptr}}) {
    const std::vector<float> values = {7, stream == nullptr ? 9.0F : 8.0F};
    if (stream != nullptr) fake::Enqueue(stream, [] { fake::Pause(20000); });
    ASSERT_EQ(cudaMemcpyAsync(data, values.data(), 8, cudaMemcpyHostToDevice, stream), cudaSuccess);
    ASSERT_OK(AwaitStream(Gpu(2), stream));
    EXPECT_THAT(HostTensor(x)->ToDoubles(), ElementsAre(values[0], values[1]));
  }
  EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
}

TEST(DeviceStream, ErrorsAreTheCallersAndTheNextCallIsWell) {
  const auto nothing = [](CUstream_st*) { return absl::OkStatus(); };
  EXPECT_THAT(ComputeOnStream(Cpu(0), nothing),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cpu:0")));
  EXPECT_THAT(AwaitStream(Cpu(0), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cpu:0")));
  EXPECT_FALSE(ComputeOnStream(Gpu(4096), nothing).ok());
  EXPECT_THAT(
      ComputeOnStream(Gpu(1), [](CUstream_st*) { return absl::AbortedError("the user's"); }),
      StatusIs(absl::StatusCode::kAborted, HasSubstr("the user's")));
  EXPECT_OK(ComputeOnStream(Gpu(1), nothing));
}

}  // namespace
}  // namespace cairn::test
