// Runs every order of events for small sizes: no push is lost, none is applied twice, and the end
// can be reached from every state. The test also finds the omission of each rule.
#include "tests/worker/client/delivery/exactly_once_model.h"

#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Stripes 0 and 1 of each server, and the bits of both.
constexpr unsigned kA0 = 1, kA1 = 2, kB0 = 4, kB1 = 8, kAll = 15;

void ExpectExactlyOnce(const ModelOptions& options) {
  const ModelResult result = Explore(options);
  EXPECT_THAT(result.violation, IsEmpty());
  std::printf("%zu states\n", result.states);
}

void ExpectFound(ModelOptions options, bool Mutations::*mutation, const char* what) {
  options.mutations.*mutation = true;
  const ModelResult result = Explore(options);
  EXPECT_THAT(result.violation, HasSubstr(what));
  std::printf("%zu states; %s\n", result.states, result.violation.c_str());
}

TEST(ExactlyOnceModel, OfOneServerBothStripesCrashesOfBothSidesAndLateMessages) {
  ExpectExactlyOnce(
      {.parts = {kA0 | kA1, kA0}, .server_crashes = 1, .worker_crashes = 1, .in_flight = 2});
}

TEST(ExactlyOnceModel, OfServersThatCrashAgainInTheMiddleOfAReplay) {
  ExpectExactlyOnce({.parts = {kA0, kA0 | kA1, kA0}, .server_crashes = 2, .worker_crashes = 0});
}

TEST(ExactlyOnceModel, OfTwoServersOfWhichOneHasPartOfAPush) {
  ExpectExactlyOnce({.parts = {kA0 | kA1 | kB0, kA0}, .server_crashes = 1, .worker_crashes = 0});
}

TEST(ExactlyOnceModel, OfTwoServersAndAWorkerThatCrash) {
  ExpectExactlyOnce({.parts = {kA0 | kB0, kA0}, .server_crashes = 1, .worker_crashes = 1});
}

TEST(ExactlyOnceModel, OfPushesThatSkipServersInTurn) {
  ExpectExactlyOnce({.parts = {kA0, kB0, kA0}, .server_crashes = 1, .worker_crashes = 1});
}

TEST(ExactlyOnceModel, OfAWorkerThatCrashesTwice) {
  ExpectExactlyOnce({.parts = {kA0 | kB0, kB0}, .server_crashes = 0, .worker_crashes = 2});
}

TEST(ExactlyOnceModel, OfACallerThatNamesNoBootAndReliesOnAfter) {
  ExpectExactlyOnce(
      {.parts = {kA0 | kB0, kA0}, .server_crashes = 1, .worker_crashes = 0, .names_boot = false});
}

TEST(ExactlyOnceModel, FindsThatTheBootIsNotChecked) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0}, &Mutations::no_boot_check, "ost");
}

TEST(ExactlyOnceModel, FindsThatAfterIsNotChecked) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0, .names_boot = false}, &Mutations::no_after,
              "ost");
}

TEST(ExactlyOnceModel, FindsThatThereIsNoFence) {
  ExpectFound({.parts = {kA0, kA0}, .server_crashes = 0}, &Mutations::no_fence, "incarnation 1");
}

TEST(ExactlyOnceModel, FindsThatThereAreNoWatermarks) {
  ExpectFound({.parts = {kA0, kA0}, .server_crashes = 0, .worker_crashes = 0},
              &Mutations::no_watermarks, "doubled");
}

TEST(ExactlyOnceModel, FindsThatForgottenWatermarksAreNotKnownByNumber) {
  ExpectFound({.parts = {kA0, kA0}, .server_crashes = 0}, &Mutations::no_known_numbers, "doubled");
}

TEST(ExactlyOnceModel, FindsThatHelloDoesNotWaitForAnEpoch) {
  ExpectFound({.parts = {kA0, kA0}}, &Mutations::no_epoch_at_hello, "forgot an incarnation");
}

TEST(ExactlyOnceModel, FindsThatAnEpochPublishesBeforeItSyncs) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0}, &Mutations::publishes_unsynced, "ost");
}

TEST(ExactlyOnceModel, FindsThatAnEpochNotesTooLate) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0}, &Mutations::notes_late, "ost");
}

TEST(ExactlyOnceModel, FindsThatAnAnswerOfADeadBootCounts) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0}, &Mutations::counts_every_answer, "ost");
}

TEST(ExactlyOnceModel, FindsThatWhatIsNotDurableIsFreed) {
  ExpectFound({.parts = {kA0, kA0}, .worker_crashes = 0}, &Mutations::frees_applied, "ost");
}

}  // namespace
}  // namespace cairn::test
