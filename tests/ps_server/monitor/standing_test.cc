#include "ps_server/monitor/standing.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

wire::WorkerStanding Worker(const std::string& state, double seconds_since_seen, bool tells) {
  wire::WorkerStanding worker;
  worker.state = state;
  worker.seconds_since_seen = seconds_since_seen;
  if (tells) worker.__set_vitals({});
  return worker;
}

TEST(Standing, AWorkerIsMissingLongBeforeItsLeaseEnds) {
  EXPECT_FALSE(IsMissing(Worker("live", kMissingSeconds, true)));
  EXPECT_TRUE(IsMissing(Worker("live", kMissingSeconds + 0.1, true)));
  EXPECT_TRUE(IsMissing(Worker("finished", kMissingSeconds + 0.1, true)));
  EXPECT_TRUE(IsMissing(Worker("lost", 0, false)));
}

TEST(Standing, OneThatHasLeftOrNeverTellsIsNot) {
  EXPECT_FALSE(IsMissing(Worker("left", 100, true)));
  EXPECT_FALSE(IsMissing(Worker("returning", 100, true)));
  EXPECT_FALSE(IsMissing(Worker("live", 5, false)));
}

}  // namespace
}  // namespace cairn
