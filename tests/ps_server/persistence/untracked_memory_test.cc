// How much of a process's resident memory is charged to its memory budget.
#include "ps_server/persistence/untracked_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace cairn {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLimit = 1024 * kMiB;
constexpr int64_t kUsual = 48 * kMiB;
constexpr int64_t kCalls = kLimit / 20;  // the share of the budget for calls

class ResidentRestTest : public ::testing::Test {
 protected:
  // Notes `bytes` beside 600 MiB of rows and 100 MiB of other charges.
  int64_t NoteBeside(int64_t bytes, absl::Duration at) {
    return untracked_.Note({.resident_bytes = 700 * kMiB + bytes,
                            .charged_bytes = 700 * kMiB,
                            .rows_bytes = 600 * kMiB,
                            .at = at});
  }

  UntrackedMemory untracked_{kLimit};
};

TEST_F(ResidentRestTest, UnchargedMemoryIsChargedExceptTheShareOfCalls) {
  EXPECT_EQ(NoteBeside(150 * kMiB, absl::Seconds(1)), 150 * kMiB - kCalls);
  EXPECT_EQ(NoteBeside(170 * kMiB, absl::Seconds(1)), 170 * kMiB - kCalls);
}

TEST_F(ResidentRestTest, IdleMemoryOfRowsIsNotCharged) {
  EXPECT_EQ(untracked_.Note({.resident_bytes = 900 * kMiB,
                             .idle_bytes = 60 * kMiB,
                             .charged_bytes = 700 * kMiB,
                             .rows_bytes = 600 * kMiB,
                             .at = absl::Seconds(1)}),
            140 * kMiB - kCalls);
}

TEST_F(ResidentRestTest, CallsThatUseTheirShareKeepIt) {
  const auto note = [&](int64_t charged) {
    return untracked_.Note({.resident_bytes = charged + 100 * kMiB,
                            .charged_bytes = charged,
                            .rows_bytes = charged,
                            .at = absl::Seconds(1)});
  };
  EXPECT_EQ(note(900 * kMiB), 100 * kMiB - kCalls);
  EXPECT_EQ(note(940 * kMiB), 116 * kMiB - kCalls);
  EXPECT_EQ(note(1000 * kMiB), 100 * kMiB);
}

TEST_F(ResidentRestTest, TheChargeFallsSlowly) {
  ASSERT_EQ(NoteBeside(160 * kMiB, absl::Seconds(1)), 160 * kMiB - kCalls);
  EXPECT_EQ(NoteBeside(100 * kMiB, absl::Seconds(2)), 152 * kMiB - kCalls);
  EXPECT_EQ(NoteBeside(100 * kMiB, absl::Seconds(2)), 152 * kMiB - kCalls);
  EXPECT_EQ(NoteBeside(100 * kMiB, absl::Seconds(100)), 100 * kMiB - kCalls);
}

TEST_F(ResidentRestTest, TheUsualAmountIsChargedAtOnceAndExpectedBefore) {
  EXPECT_EQ(untracked_.expected_bytes(), kUsual);
  EXPECT_EQ(NoteBeside(0, absl::Seconds(1)), kUsual);
  EXPECT_EQ(untracked_.expected_bytes(), 0);
  EXPECT_EQ(UntrackedMemory(64 * kMiB).expected_bytes(), 16 * kMiB);
}

TEST_F(ResidentRestTest, NothingIsChargedUntilHalfOfTheBudgetIsResident) {
  EXPECT_EQ(untracked_.Note({.resident_bytes = kLimit / 2,
                             .charged_bytes = 10 * kMiB,
                             .rows_bytes = 0,
                             .at = absl::Seconds(1)}),
            0);
  EXPECT_EQ(untracked_.expected_bytes(), kUsual);
}

// However much memory the process uses, some is left for rows and calls.
TEST_F(ResidentRestTest, TheChargeLeavesAnEighthAndFortyMiBButMayTakeAQuarter) {
  EXPECT_EQ(NoteBeside(2000 * kMiB, absl::Seconds(1)), kLimit * 7 / 8 - 100 * kMiB);
  EXPECT_EQ(untracked_.Note({.resident_bytes = 2000 * kMiB,
                             .charged_bytes = 900 * kMiB,
                             .rows_bytes = 0,
                             .at = absl::Seconds(2)}),
            kLimit / 4);
  for (const auto& [limit, rest] : {std::pair(128 * kMiB, 68 * kMiB), {64 * kMiB, 16 * kMiB}}) {
    EXPECT_EQ(UntrackedMemory(limit).Note({.resident_bytes = 2000 * kMiB,
                                           .charged_bytes = 50 * kMiB,
                                           .rows_bytes = 30 * kMiB,
                                           .at = absl::Seconds(1)}),
              rest);
  }
}

}  // namespace
}  // namespace cairn
