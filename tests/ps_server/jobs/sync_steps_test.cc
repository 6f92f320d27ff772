// Which contributions count for a step, when a step closes, and what happens to the other
// contributions, while workers and servers are lost and return at any moment.
#include "ps_server/jobs/sync_steps.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Added = SyncSteps::Added;

NamedContribution Name(int32_t worker, int64_t sequence, int64_t incarnation = 1) {
  return {worker, incarnation, sequence, 10, "at " + std::to_string(sequence)};
}

PendingContribution To(int64_t step, const NamedContribution& name) {
  // The pointer is never dereferenced.
  return {step, name,
          std::shared_ptr<const ContributionParts>(reinterpret_cast<const ContributionParts*>(1),
                                                   [](const auto*) {})};
}

SyncSteps::Missing Nobody(const NamedContribution&) { return SyncSteps::Missing::kAwaited; }
SyncSteps::Missing Everybody(const NamedContribution&) { return SyncSteps::Missing::kLost; }

class SyncStepsTest : public ::testing::Test {
 protected:
  // Decides the open step, learns the decision, and returns its workers; {-1}: not decided.
  std::vector<int32_t> DecideNow(const std::vector<QuorumMember>& members, int32_t aggregate = 0) {
    std::optional<DecisionRecord> decision = steps_.Decide(members, aggregate);
    if (!decision) return {-1};
    std::vector<int32_t> workers;
    for (const NamedContribution& name : decision->contributions) workers.push_back(name.worker);
    EXPECT_TRUE(steps_.Learn(*std::move(decision)));
    return workers;
  }

  SyncSteps steps_;
};

TEST_F(SyncStepsTest, AStepIsDecidedWhenEveryWorkerHasAnnouncedTheNext) {
  steps_.Begin(0, {});
  EXPECT_EQ(steps_.Add(To(1, Name(0, 1))), Added::kPending);
  EXPECT_EQ(steps_.Add(To(1, Name(1, 1))), Added::kPending);
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 1, true}}), ElementsAre(-1));
  EXPECT_THAT(steps_.Undecided({{{0, 2, true}, {1, 1, true}}}), ElementsAre(1));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 2, true}}), ElementsAre(0, 1));
  EXPECT_EQ(steps_.decided(), 1);
  EXPECT_EQ(steps_.closed(), 0);
  EXPECT_EQ(steps_.NextClosing(Nobody)->present.size(), 2u);
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(1, 1)));
  EXPECT_EQ(steps_.closed(), 1);
  EXPECT_EQ(steps_.pending_count(), 0u);
  EXPECT_FALSE(steps_.NextClosing(Nobody).has_value());
}

// The lost worker's push may have reached only this server.
TEST_F(SyncStepsTest, AnUnannouncedContributionIsNotNamedEvenIfItsWorkerIsLost) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Add(To(1, Name(1, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 1, false}}), ElementsAre(0));
  const SyncSteps::Closed closed = steps_.Close();
  EXPECT_THAT(closed.named, ElementsAre(Name(0, 1)));
  EXPECT_THAT(closed.dropped, ElementsAre(Name(1, 1)));
}

TEST_F(SyncStepsTest, AnAnnouncedContributionOfALostWorkerIsNamed) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Add(To(1, Name(1, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 2, false}}), ElementsAre(0, 1));
}

TEST_F(SyncStepsTest, AWorkerThatAnnouncesWithoutAContributionIsNotWaitedFor) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(1, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 2, true}}), ElementsAre(1));
  EXPECT_THAT(DecideNow({{0, 3, true}, {1, 3, true}}), IsEmpty());
}

TEST_F(SyncStepsTest, WithBackupWorkersTheFirstContributionsCountAndLateOnesAreVoid) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 1, true}, {2, 1, true}}, 2), ElementsAre(-1));
  steps_.Add(To(1, Name(2, 1)));
  EXPECT_EQ(steps_.Add(To(1, Name(1, 1))), Added::kPending);  // here, but not announced
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 1, true}, {2, 2, true}}, 2), ElementsAre(0, 2));
  EXPECT_EQ(steps_.Add(To(1, Name(1, 1))), Added::kDropped);  // sent again
  EXPECT_EQ(steps_.Add(To(1, Name(3, 1))), Added::kDropped);
  const SyncSteps::Closed closed = steps_.Close();
  EXPECT_THAT(closed.named, ElementsAre(Name(0, 1), Name(2, 1)));
  EXPECT_THAT(closed.dropped, ElementsAre(Name(1, 1), Name(3, 1)));
  EXPECT_EQ(steps_.Add(To(1, Name(4, 1))), Added::kLate);
  EXPECT_EQ(steps_.pending_count(), 0u);
}

TEST_F(SyncStepsTest, FewerContributionsAreEnoughIfNoOtherWorkerIsLeft) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 1, false}}, 2), ElementsAre(0));
}

TEST_F(SyncStepsTest, AWorkerMayContributeTwiceToAStep) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 2)));
  steps_.Add(To(1, Name(0, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}}), ElementsAre(0, 0));
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(0, 2)));
}

// A restarted server receives pushes of several steps from one worker, and the decisions from
// another.
TEST_F(SyncStepsTest, ReplayedStepsCloseInOrderOnceTheirContributionsArrive) {
  steps_.Begin(7, {});
  EXPECT_EQ(steps_.Add(To(8, Name(0, 20))), Added::kPending);
  EXPECT_EQ(steps_.Add(To(9, Name(0, 21))), Added::kPending);
  EXPECT_FALSE(steps_.Learn({"", 9, {Name(0, 21)}}));  // the decision before it is missing
  EXPECT_TRUE(steps_.Learn({"", 8, {Name(0, 20), Name(1, 30)}}));
  EXPECT_FALSE(steps_.Learn({"", 8, {}}));  // known already
  EXPECT_TRUE(steps_.Learn({"", 9, {Name(0, 21)}}));
  const auto waiting = steps_.NextClosing(Nobody);
  EXPECT_EQ(waiting->present.size(), 1u);
  ASSERT_EQ(waiting->awaited.size(), 1u);
  EXPECT_EQ(waiting->awaited[0]->worker, 1);
  EXPECT_EQ(steps_.Add(To(8, Name(1, 30))), Added::kPending);
  EXPECT_THAT(steps_.NextClosing(Nobody)->awaited, IsEmpty());
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 20), Name(1, 30)));
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 21)));
}

TEST_F(SyncStepsTest, ANamedContributionThatNoWorkerWillResendIsLost) {
  steps_.Begin(0, {});
  steps_.Learn({"", 1, {Name(0, 1), Name(1, 1)}});
  steps_.Add(To(1, Name(0, 1)));
  const auto closing = steps_.NextClosing(Everybody);
  EXPECT_THAT(closing->awaited, IsEmpty());
  ASSERT_EQ(closing->lost.size(), 1u);
  EXPECT_EQ(closing->lost[0]->worker, 1);
  EXPECT_EQ(closing->present.size(), 1u);
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(1, 1)));
}

// The worker pushed it before it knew this server.
TEST_F(SyncStepsTest, AContributionWithoutAPartHereIsNeitherAwaitedNorLost) {
  steps_.Begin(7, {});
  EXPECT_EQ(steps_.open(), 8);
  steps_.Add(To(8, Name(0, 1)));
  EXPECT_TRUE(steps_.Learn({"", 8, {Name(0, 1), Name(1, 1)}}));
  const auto closing = steps_.NextClosing([](const auto&) { return SyncSteps::Missing::kNoPart; });
  EXPECT_THAT(closing->awaited, IsEmpty());
  EXPECT_THAT(closing->lost, IsEmpty());
  EXPECT_EQ(closing->present.size(), 1u);
  EXPECT_EQ(closing->rows_elsewhere, 10);  // its rows still count for the weights
}

// Another server kept it, and so the decision names it.
TEST_F(SyncStepsTest, ANamedContributionThatThisServerAloneRejectedHasNoPart) {
  steps_.Begin(0, {});
  EXPECT_EQ(steps_.Add({1, Name(0, 1), nullptr}), Added::kDropped);
  steps_.Add(To(1, Name(1, 1)));
  steps_.Learn({"", 1, {Name(0, 1), Name(1, 1)}});
  const auto closing = steps_.NextClosing(Nobody);
  EXPECT_THAT(closing->awaited, IsEmpty());
  EXPECT_THAT(closing->lost, IsEmpty());
  EXPECT_EQ(closing->present.size(), 1u);
  EXPECT_EQ(closing->rows_elsewhere, 10);
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(1, 1)));
  // A newer start's push is another one, and replaces it.
  steps_.Add({2, Name(0, 2), nullptr});
  steps_.Learn({"", 2, {Name(0, 2, 2)}});
  EXPECT_EQ(steps_.NextClosing(Nobody)->awaited.size(), 1u);
}

TEST_F(SyncStepsTest, ANewStartContinuesAfterTheLastNamedPushAndUnnamedPushesNeverCount) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Add(To(2, Name(0, 2)));
  steps_.Add(To(1, Name(1, 1)));
  EXPECT_THAT(DecideNow({{0, 2, true}, {1, 2, true}}), ElementsAre(0, 1));
  steps_.Restart(0);
  EXPECT_EQ(steps_.LastNamed(0), 1);
  EXPECT_EQ(steps_.pending_count(), 2u);  // its push for step 2 is gone
  EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(1, 1)));
  EXPECT_EQ(steps_.Add(To(2, Name(0, 2, 2))), Added::kPending);
  steps_.Restart(5);
  EXPECT_EQ(steps_.LastNamed(5), 0);
}

// Another server does not know whether the older push was named, so the newer one replaces it.
TEST_F(SyncStepsTest, ANewStartsPushReplacesAnOlderUnnamedOne) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  EXPECT_EQ(steps_.Add(To(1, Name(0, 1))), Added::kRepeated);
  EXPECT_EQ(steps_.Add(To(1, Name(0, 1, 2))), Added::kPending);
  EXPECT_EQ(steps_.Add(To(1, Name(0, 1))), Added::kRepeated);  // from the older start: nothing
                                                               // changes
  steps_.Learn({"", 1, {Name(0, 1, 2)}});
  EXPECT_EQ(steps_.NextClosing(Nobody)->present[0].name.incarnation, 2);
}

// For example after rows of the contribution have moved here from another server.
TEST_F(SyncStepsTest, AContributionMayBeReplacedUntilItIsNamed) {
  steps_.Begin(0, {});
  NamedContribution first = Name(0, 1), second = Name(0, 1), third = Name(0, 1);
  first.rows = 1, second.rows = 2, third.rows = 3;
  EXPECT_EQ(steps_.Add(To(1, first)), Added::kPending);
  EXPECT_EQ(steps_.Add(To(1, second), /*replaces=*/true), Added::kPending);
  EXPECT_EQ(steps_.Add(To(1, third)), Added::kRepeated);
  EXPECT_EQ(steps_.Add(To(1, Name(1, 1)), /*replaces=*/true), Added::kPending);  // none before
  steps_.Learn({"", 1, {Name(0, 1), Name(1, 1)}});
  EXPECT_EQ(steps_.Add(To(1, third), /*replaces=*/true), Added::kRepeated);
  EXPECT_EQ(steps_.NextClosing(Nobody)->present[0].name.rows, 2);
  EXPECT_EQ(steps_.pending_count(), 2u);
}

TEST_F(SyncStepsTest, ADroppedContributionStaysDroppedWhenReplaced) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Learn({"", 1, {Name(1, 1)}});
  EXPECT_EQ(steps_.Add(To(1, Name(0, 1)), /*replaces=*/true), Added::kDropped);
}

TEST_F(SyncStepsTest, LastPendingFindsTheLastStepWithAContributionThatCanCount) {
  const auto all = [](const PendingContribution&) { return true; };
  steps_.Begin(3, {});
  EXPECT_EQ(steps_.LastPending(all), 0);
  steps_.Add(To(4, Name(0, 1)));
  steps_.Add(To(5, Name(0, 2)));
  steps_.Add({6, Name(0, 3), nullptr});
  EXPECT_EQ(steps_.LastPending(all), 5);
  EXPECT_EQ(steps_.LastPending([](const auto& pending) { return pending.step != 5; }), 4);
}

TEST_F(SyncStepsTest, ANamedPushIsNotReplaced) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Learn({"", 1, {Name(0, 1)}});
  EXPECT_EQ(steps_.Add(To(2, Name(0, 1, 2))), Added::kRepeated);
  EXPECT_EQ(steps_.NextClosing(Nobody)->present[0].name.incarnation, 1);
}

// A server that lost a named push accepts it when a new start computes it again, whatever step the
// push states, and whether or not the server knows the decision by then.
TEST_F(SyncStepsTest, ANamedPushThatANewStartRecomputesCounts) {
  for (const bool knows : {false, true}) {
    steps_.Begin(0, {});
    const auto learn = [&] {
      EXPECT_TRUE(steps_.Learn({"", 1, {Name(0, 1), Name(1, 1)}}));
      EXPECT_TRUE(steps_.Learn({"", 2, {Name(1, 2)}}));
    };
    if (knows) learn();
    steps_.Add(To(1, Name(1, 1)));
    EXPECT_EQ(steps_.Add(To(2, Name(0, 1, 2))), Added::kPending);
    // No decision names this one.
    EXPECT_EQ(steps_.Add(To(2, Name(0, 2, 2))), knows ? Added::kDropped : Added::kPending);
    if (!knows) learn();
    EXPECT_THAT(steps_.NextClosing(Nobody)->present, ::testing::SizeIs(2));
    EXPECT_THAT(steps_.Close().named, ElementsAre(Name(0, 1), Name(1, 1)));
    steps_.Add(To(2, Name(1, 2)));
    EXPECT_THAT(steps_.NextClosing(Nobody)->present, ::testing::SizeIs(1));
    const SyncSteps::Closed closed = steps_.Close();
    EXPECT_THAT(closed.named, ElementsAre(Name(1, 2)));
    EXPECT_THAT(closed.dropped, ElementsAre(Name(0, 2, 2)));
  }
}

// An older start's push may differ from the newer start's push with the same sequence.
TEST_F(SyncStepsTest, AnOlderStartsPushDoesNotCountForANewerStartsName) {
  steps_.Begin(0, {});
  steps_.Add(To(1, Name(0, 1)));
  steps_.Learn({"", 1, {Name(0, 1, 2)}});
  EXPECT_THAT(steps_.NextClosing(Nobody)->present, IsEmpty());
}

TEST_F(SyncStepsTest, TheCoordinatorKeepsDecisionsUntilTheyAreForgotten) {
  steps_.Begin(0, {});
  for (int64_t step = 1; step <= 4; ++step) {
    steps_.Learn({"", step, {Name(0, step), Name(1, step)}});
    steps_.Close();
  }
  EXPECT_EQ(steps_.DecisionsAfter(0, 10, 100).size(), 4u);
  EXPECT_EQ(steps_.DecisionsAfter(2, 10, 100)[0]->step, 3);
  EXPECT_EQ(steps_.DecisionsAfter(0, 3, 100).size(), 3u);
  EXPECT_EQ(steps_.DecisionsAfter(0, 10, 5).size(), 2u);
  EXPECT_EQ(steps_.DecisionsAfter(0, 10, 1).size(), 1u);
  steps_.Forget(3);
  EXPECT_EQ(steps_.DecisionsAfter(0, 10, 100).size(), 1u);
  EXPECT_EQ(steps_.forgotten(), 3);
}

TEST_F(SyncStepsTest, BeginLoadsStoredDecisionsAndOpensTheStepAfterThem) {
  steps_.Begin(1, {{"", 1, {Name(0, 1)}}, {"", 2, {Name(0, 2)}}, {"", 3, {Name(0, 3)}}});
  EXPECT_EQ(steps_.closed(), 1);
  EXPECT_EQ(steps_.open(), 4);
  EXPECT_EQ(steps_.DecisionsAfter(0, 10, 100).size(), 3u);
  steps_.Restart(0);
  EXPECT_EQ(steps_.LastNamed(0), 3);
  steps_.Add(To(2, Name(0, 2)));
  EXPECT_THAT(steps_.NextClosing(Nobody)->awaited, IsEmpty());
}

}  // namespace
}  // namespace cairn
