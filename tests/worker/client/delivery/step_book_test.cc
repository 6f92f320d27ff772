// The client keeps decisions in order, for the servers that may lack them, and no longer.
#include "worker/client/delivery/step_book.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

wire::StepDecision Decision(int64_t step, std::vector<int64_t> sequences_of_worker_0 = {}) {
  wire::StepDecision decision;
  decision.step = step;
  for (const int64_t sequence : sequences_of_worker_0) {
    wire::Contribution& named = decision.contributions.emplace_back();
    named.worker = 0;
    named.sequence = sequence;
  }
  return decision;
}

std::vector<int64_t> StepsOf(const std::vector<wire::StepDecision>& decisions) {
  std::vector<int64_t> steps;
  for (const wire::StepDecision& decision : decisions) steps.push_back(decision.step);
  return steps;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A server that has joined may lack decisions that all others have.
TEST(StepBook, AsksAgainForWhatItHasForgotten) {
  StepBook book;
  book.Begin(6, 2);
  book.Learn({Decision(3), Decision(4), Decision(5)}, 6);
  book.NeedAfter(3);
  EXPECT_EQ(book.last_decided(), 5);  // it has all of them
  book.Forget(4);
  book.NeedAfter(4);
  EXPECT_EQ(book.last_decided(), 5);
  book.NeedAfter(3);
  EXPECT_EQ(book.last_decided(), 3);
  book.Learn({Decision(4), Decision(5), Decision(6)}, 7);
  EXPECT_THAT(StepsOf(book.Decisions(3, 6)), ElementsAre(4, 5, 6));
  book.NeedAfter(3);
  EXPECT_EQ(book.last_decided(), 6);
}

TEST(StepBook, TellsWhatLiesBetweenAServerAndAStep) {
  StepBook book;
  book.Begin(6, 2);
  EXPECT_EQ(book.open(), 6);
  EXPECT_EQ(book.last_decided(), 2);
  book.Learn({Decision(3), Decision(4), Decision(5)}, 6);
  EXPECT_EQ(book.last_decided(), 5);
  EXPECT_THAT(StepsOf(book.Decisions(3, 5)), ElementsAre(4, 5));
  EXPECT_THAT(StepsOf(book.Decisions(2, 3)), ElementsAre(3));
  EXPECT_THAT(book.Decisions(5, 5), IsEmpty());
  // A server may be ahead of the step that a call concerns.
  EXPECT_THAT(book.Decisions(4, 3), IsEmpty());
  EXPECT_THAT(book.Decisions(9, 2), IsEmpty());
  book.Forget(4);
  EXPECT_THAT(StepsOf(book.Decisions(0, 9)), ElementsAre(5));
}

// ps:0 forgets decisions that every server has durably, even if this client was not notified.
TEST(StepBook, GoesOnBehindWhatIsForgotten) {
  StepBook book;
  book.Begin(1, 0);
  book.Contributed(1, 0, 10);
  EXPECT_EQ(book.Learn({Decision(3), Decision(4)}, 5), 0);
  EXPECT_EQ(book.last_decided(), 4);
  EXPECT_EQ(book.Learn({}, 9), 0);
  EXPECT_EQ(book.last_decided(), 8);
  EXPECT_THAT(StepsOf(book.Decisions(0, 9)), ElementsAre(3, 4));
}

TEST(StepBook, CountsOwnContributionsThatADecisionLeavesOut) {
  StepBook book;
  book.Begin(1, 0);
  book.Contributed(1, 0, 10);
  book.Contributed(2, 0, 11);
  book.Contributed(3, 0, 12);
  EXPECT_EQ(book.Learn({Decision(1, {10}), Decision(2)}, 3), 1);
  EXPECT_EQ(book.Learn({Decision(2)}, 3), 0);  // already known
  EXPECT_EQ(book.Learn({Decision(3, {11, 12})}, 4), 0);
}

TEST(StepBook, OneCallIsToldNoMoreThanItMayHold) {
  StepBook book;
  book.Begin(1, 0);
  for (int64_t step = 1; step <= kMaxDecisionsPerCall + 5; ++step)
    book.Learn({Decision(step)}, step + 1);
  EXPECT_EQ(book.Decisions(0, 1 << 20).size(), static_cast<size_t>(kMaxDecisionsPerCall));
  StepBook wide;
  wide.Begin(1, 0);
  const std::vector<int64_t> half(kMaxContributionsPerCall / 2 + 1, 1);
  wide.Learn({Decision(1, half), Decision(2, half)}, 3);
  EXPECT_THAT(StepsOf(wide.Decisions(0, 2)), ElementsAre(1));
}

}  // namespace
}  // namespace cairn
