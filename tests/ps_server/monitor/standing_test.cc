#include "ps_server/monitor/standing.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

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

TEST(Standing, TheLossIsTheMeanOfThoseThatAreHeard) {
  std::vector<wire::WorkerStanding> workers = {Worker("live", 0, true), Worker("live", 0, true),
                                               Worker("live", kMissingSeconds + 1, true),
                                               Worker("left", 0, true), Worker("live", 0, false)};
  EXPECT_EQ(MeanLoss(workers), std::nullopt);
  double loss = 1;
  for (wire::WorkerStanding& worker : workers) worker.vitals.__set_loss(loss *= 2);
  EXPECT_EQ(MeanLoss(workers), 3.0);
}

}  // namespace
}  // namespace cairn
