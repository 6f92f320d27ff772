// A list of gradients is reduced as each gradient alone would be, in any packing.
#include "worker/collective/batch_all_reduce.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/collective/ranks.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

TEST(BatchAllReduce, EveryPackingEqualsSeparateReductions) {
  for (const int64_t bytes_per_pack : {0, 1, 300, 1 << 20}) {
    Ranks groups(3);
    OnRanks(3, [&](int r) {
      std::vector<std::vector<float>> floats;
      for (const size_t count : {3, 50'000, 0, 100, 17}) floats.push_back(Values(r, count));
      std::vector<int64_t> ints = {r, 10 * r};
      std::vector<MutableBuffer> gradients;
      for (std::vector<float>& values : floats) gradients.push_back(Into(values));
      gradients.insert(gradients.begin() + 2, Into(ints));
      ASSERT_OK(BatchAllReduce(groups[r], ReduceOp::kSum, gradients,
                               {.bytes_per_pack = bytes_per_pack}, Soon()));
      EXPECT_EQ(ints, (std::vector<int64_t>{3, 30}));
      for (const std::vector<float>& got : floats) {
        std::vector<float> want = Values(r, got.size());
        ASSERT_OK(groups[r].AllReduce(ReduceOp::kSum, Into(want), Soon()));
        EXPECT_EQ(got, want) << bytes_per_pack;
      }
    });
  }
}

TEST(BatchAllReduce, TheTimeoutOfTheOptionsApplies) {
  Ranks groups(2);
  std::vector<float> values(10);
  EXPECT_THAT(BatchAllReduce(groups[0], ReduceOp::kSum, {Into(values)},
                             {.timeout = absl::Milliseconds(20)}, Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 1 (")));
  EXPECT_THAT(BatchAllReduce(groups[0], ReduceOp::kSum, {}, {.bytes_per_pack = -1}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes_per_pack")));
}

}  // namespace
}  // namespace cairn::test
