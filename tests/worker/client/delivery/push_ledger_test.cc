// After a restart a server is sent exactly the retained pushes that it lacks, in order; lost pushes
// are reported.
#include "worker/client/delivery/push_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RetainedPart PartOf(int64_t sequence, int64_t bytes = 10) {
  return {.sequence = sequence, .bytes = bytes, .since = absl::FromUnixSeconds(sequence)};
}

std::vector<int64_t> Numbers(const std::vector<RetainedPart>& parts) {
  std::vector<int64_t> numbers;
  for (const RetainedPart& part : parts) numbers.push_back(part.sequence);
  return numbers;
}

constexpr int64_t kBoot = 1, kNextBoot = 2;

std::vector<int64_t> Replayed(const PushLedger& ledger, int64_t applied, int64_t boot = kNextBoot) {
  const ReplayPlan plan = ledger.PlanReplay(boot, applied);
  EXPECT_EQ(plan.first_lost, 0);
  return Numbers(plan.parts);
}

// Parts 1, 2 and 4; push 3 has no part here.
PushLedger Ledger() {
  PushLedger ledger;
  ledger.Begin(kBoot, 0, 0);
  ledger.Acknowledged(PartOf(1));
  ledger.Acknowledged(PartOf(2, 20));
  ledger.NoPart(3);
  ledger.Acknowledged(PartOf(4, 40));
  return ledger;
}

TEST(PushLedger, SendsAgainWhatTheServerDoesNotHaveInOrder) {
  const PushLedger ledger = Ledger();
  EXPECT_THAT(Replayed(ledger, 0), ElementsAre(1, 2, 4));
  EXPECT_THAT(Replayed(ledger, 1), ElementsAre(2, 4));
  EXPECT_THAT(Replayed(ledger, 3), ElementsAre(4));
  EXPECT_THAT(Replayed(ledger, 4), IsEmpty());
  // A push whose answer was lost.
  EXPECT_THAT(Replayed(ledger, 5), IsEmpty());
}

// A contribution extended by rows that were another server's.
TEST(PushLedger, TheLastPartOfASequenceTakesThePlaceOfTheFirst) {
  PushLedger ledger = Ledger();
  EXPECT_EQ(ledger.Acknowledged(PartOf(4, 50)), 40);
  EXPECT_EQ(ledger.bytes(), 80);
  EXPECT_EQ(ledger.Acknowledged(PartOf(5, 1)), 0);
  EXPECT_THAT(Replayed(ledger, 0), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(ledger.PlanReplay(kNextBoot, 2).parts[0].bytes, 50);
}

TEST(PushLedger, KeepsWhatIsNotDurable) {
  PushLedger ledger = Ledger();
  EXPECT_EQ(ledger.bytes(), 70);
  EXPECT_EQ(ledger.oldest(), 1);
  EXPECT_EQ(ledger.oldest_since(), absl::FromUnixSeconds(1));
  EXPECT_THAT(Numbers(ledger.TakeDurable(0)), IsEmpty());
  EXPECT_THAT(Numbers(ledger.TakeDurable(3)), ElementsAre(1, 2));
  EXPECT_EQ(ledger.bytes(), 40);
  EXPECT_EQ(ledger.oldest(), 4);
  EXPECT_EQ(ledger.released(), 2);
  EXPECT_THAT(Replayed(ledger, 2), ElementsAre(4));
  EXPECT_THAT(Numbers(ledger.TakeDurable(9)), ElementsAre(4));
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_EQ(ledger.oldest(), 0);
  EXPECT_EQ(ledger.oldest_since(), absl::InfiniteFuture());
}

TEST(PushLedger, SaysWhatCannotBeSentAgain) {
  PushLedger ledger = Ledger();
  ledger.TakeDurable(2);
  const ReplayPlan plan = ledger.PlanReplay(kNextBoot, /*applied=*/0);
  EXPECT_EQ(plan.first_lost, 1);
  EXPECT_EQ(plan.last_lost, 2);
  EXPECT_THAT(plan.parts, IsEmpty());
}

TEST(PushLedger, TakesAServerThatForgotWithoutARestartForLost) {
  const PushLedger ledger = Ledger();
  EXPECT_THAT(Replayed(ledger, 4, kBoot), IsEmpty());
  const ReplayPlan plan = ledger.PlanReplay(kBoot, /*applied=*/1);
  EXPECT_EQ(plan.first_lost, 2);
  EXPECT_EQ(plan.last_lost, 4);
}

TEST(PushLedger, WhatWasNotKeptMakesWhatCameBeforeUseless) {
  PushLedger ledger = Ledger();
  ledger.AcknowledgedUnretained(5);
  EXPECT_EQ(ledger.PlanReplay(kNextBoot, 4).last_lost, 5);
  EXPECT_THAT(Replayed(ledger, 5), IsEmpty());
}

TEST(PushLedger, NamesTheLastPartAndWhatIsThroughApart) {
  PushLedger ledger = Ledger();
  ledger.NoPart(5);
  EXPECT_EQ(ledger.last_part(), 4);
  EXPECT_EQ(ledger.through(), 5);
  EXPECT_EQ(PushLedger::ThroughOf(PartOf(4)), 3);
}

TEST(PushLedger, AnswersCountOfTheBootThatHasEverything) {
  PushLedger ledger = Ledger();
  EXPECT_TRUE(ledger.Counts(kBoot));
  EXPECT_FALSE(ledger.Counts(kNextBoot));
  ledger.BeginRenewal();
  EXPECT_FALSE(ledger.Counts(kBoot));
  EXPECT_FALSE(ledger.Counts(kNextBoot));
  ledger.GiveUpRenewal();
  EXPECT_TRUE(ledger.Counts(kBoot));
  ledger.BeginRenewal();
  ledger.EndRenewal(kNextBoot);
  EXPECT_FALSE(ledger.Counts(kBoot));
  EXPECT_TRUE(ledger.Counts(kNextBoot));
}

TEST(PushLedger, AStartGoesOnAfterWhatEveryServerHas) {
  PushLedger ledger = Ledger();
  ledger.Begin(kBoot, /*last_part=*/7, /*through=*/9);
  EXPECT_EQ(ledger.last_part(), 7);
  EXPECT_EQ(ledger.through(), 9);
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_EQ(ledger.PlanReplay(kNextBoot, 6).last_lost, 7);
  EXPECT_THAT(Replayed(ledger, 7), IsEmpty());
}

}  // namespace
}  // namespace cairn::test
