// Requesting NCCL without NCCL or without a GPU is refused on every worker with the reason.
#include "worker/collective/nccl_ranks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

void ExpectReason(const absl::Status& status, const std::string& device) {
  if (HasNccl() && !NcclStatus().ok()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCL")));
  } else if (HasNccl()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr(device + ": CUDA: ")));
  } else {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("-Dcuda=enabled")));
  }
}

TEST(NcclRanks, WithoutNcclOrGpuNoRankConnects) {
  ExpectReason(JoinByNccl({Gpu(9998), Gpu(9999)}).status(), "gpu:9998");
}

TEST(NcclRanks, WithoutNcclOrGpuEveryWorkerFailsAndTheGroupStaysUsable) {
  Ranks workers(2);
  OnRanks(2, [&](int r) {
    ExpectReason(JoinByNccl({Gpu(9998 + r)}, {.workers = &workers[r]}).status(),
                 Gpu(9998 + r).text());
    EXPECT_OK(workers[r].Barrier(Soon()));
  });
}

}  // namespace
}  // namespace cairn::test
