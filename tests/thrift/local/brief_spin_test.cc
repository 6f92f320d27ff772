// Polling continues while it succeeds, and is skipped for longer and longer while it does not.
#include "thrift/local/brief_spin.h"

#include <chrono>
#include <cstdint>

#include "gtest/gtest.h"

namespace cairn {
namespace {

// The number of attempts in a row that Try skips.
int SkippedBefore(BriefSpin& spin, bool comes) {
  for (int skipped = 0;; ++skipped) {
    bool looked = false;
    const bool found = spin.Try([&] {
      looked = true;
      return comes;
    });
    EXPECT_EQ(found, looked && comes);
    if (looked) return skipped;
  }
}

TEST(BriefSpin, ASuccessfulPollIsRepeated) {
  BriefSpin spin;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(SkippedBefore(spin, true), 0);
}

TEST(BriefSpin, AfterUnsuccessfulPollsMoreAndMoreAreSkipped) {
  BriefSpin spin;
  EXPECT_EQ(SkippedBefore(spin, false), 0);
  for (int32_t skipped = BriefSpin::kMinSkipped; skipped < BriefSpin::kMaxSkipped; skipped *= 2) {
    EXPECT_EQ(SkippedBefore(spin, false), skipped);
  }
  EXPECT_EQ(SkippedBefore(spin, false), BriefSpin::kMaxSkipped);
  EXPECT_EQ(SkippedBefore(spin, true), BriefSpin::kMaxSkipped);
  EXPECT_EQ(SkippedBefore(spin, false), 0);
  EXPECT_EQ(SkippedBefore(spin, false), BriefSpin::kMinSkipped);
}

TEST(BriefSpin, APollEndsSoon) {
  BriefSpin spin;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(spin.Try([] { return false; }));
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, BriefSpin::kLongest);
  EXPECT_LT(took, std::chrono::seconds(5));
}

}  // namespace
}  // namespace cairn
