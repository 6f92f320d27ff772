// Requesting NCCL without NCCL or without a GPU is refused on every rank with the reason.
#include "worker/collective/nccl_group.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/nccl_ranks.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(NcclGroup, WithoutNcclOrGpuEveryRankFailsAndTheBootstrapStaysUsable) {
  Ranks bootstrap(2);
  OnRanks(2, [&](int r) {
    CollectiveGroup& group = bootstrap[r];
    const absl::Status status = ConnectNccl(group, {.device = 9998 + r}, Soon()).status();
    if (HasNccl() && !NcclStatus().ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCL")));
    } else if (HasNccl()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("CUDA: gpu:999")));
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("-Dcuda=enabled")));
    }
    EXPECT_OK(group.Barrier(Soon()));
  });
}

TEST(NcclRanks, WithoutNcclOrGpuNoRankConnects) {
  const absl::Status status = JoinByNccl({Gpu(9998), Gpu(9999)}).status();
  if (HasNccl() && !NcclStatus().ok()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCL")));
  } else if (HasNccl()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("gpu:9998: CUDA: ")));
  } else {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("-Dcuda=enabled")));
  }
}

}  // namespace
}  // namespace cairn::test
