// Which step a worker may begin, which workers it waits for, and the errors of waits
// (ps_server/CONSISTENCY.md). There is no server: each worker is a session whose lease the test
// begins and ends.
#include "ps_server/jobs/cohort.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

auto Expired() { return StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("missing: worker")); }

constexpr absl::Duration kLease = absl::Minutes(5);

Consistency Ssp(int64_t bound, WorkerLoss loss = WorkerLoss::kContinue) {
  return {.mode = ConsistencyMode::kSsp, .staleness_bound_steps = bound, .on_worker_loss = loss};
}

class CohortTest : public ::testing::Test {
 protected:
  std::shared_ptr<Session> Make(int32_t worker) {
    auto session = std::make_shared<Session>("job", worker, false);
    session->Admit(1, "host/" + std::to_string(worker));
    session->Renew(kLease);
    return session;
  }
  std::shared_ptr<Session> Join(int32_t worker, const Consistency& consistency,
                                int64_t* clock = nullptr) {
    std::shared_ptr<Session> session = Make(worker);
    const auto step = cohort_.Join(session, {.consistency = consistency, .fresh = true});
    EXPECT_OK(step.status());
    if (clock != nullptr) *clock = step.value_or(-1);
    return session;
  }
  // Does not wait.
  absl::Status Begin(const Session& session, int64_t step) {
    return cohort_.Await(session, session.incarnation(), step, Deadline::In(absl::ZeroDuration()));
  }
  // Ends the worker's lease, as the server's clock would.
  void Lose(Session& session) {
    session.Renew(absl::ZeroDuration());
    ASSERT_TRUE(session.LeaseRanOut());
    cohort_.Lose(session.worker());
  }
  wire::WhyReply Why() {
    wire::WhyReply reply;
    cohort_.FillWhy(reply, 100);
    return reply;
  }
  // Waits until `count` calls wait.
  void AwaitWaiters(size_t count) {
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    while (Why().waiting.size() != count && !deadline.Expired()) std::this_thread::yield();
    ASSERT_EQ(Why().waiting.size(), count);
  }

  Cohort cohort_{"job"};
};

TEST_F(CohortTest, UnderAsyncNoWorkerWaitsAndTheGapIsMeasured) {
  const auto a = Join(0, {}), b = Join(1, {});
  for (int64_t step = 1; step <= 9; ++step) EXPECT_OK(Begin(*a, step));
  EXPECT_OK(Begin(*b, 1));
  EXPECT_EQ(Why().largest_step_gap, 9);
  EXPECT_EQ(Why().workers[0].largest_step_gap, 9);
  EXPECT_EQ(Why().workers[1].largest_step_gap, 0);
}

TEST_F(CohortTest, WithBoundSAStepBeginsOnceTheOthersAreAtMostSStepsBehind) {
  for (const int64_t bound : {0, 1, 3}) {
    Cohort cohort("job");
    const auto join = [&](int32_t worker) {
      std::shared_ptr<Session> session = Make(worker);
      EXPECT_OK(cohort.Join(session, {.consistency = Ssp(bound), .fresh = true}).status());
      return session;
    };
    const auto fast = join(0), slow = join(1);
    const auto begin = [&](const Session& session, int64_t step) {
      return cohort.Await(session, 1, step, Deadline::In(absl::ZeroDuration()));
    };
    for (int64_t slow_step = 0; slow_step < 5; ++slow_step) {
      if (slow_step > 0) {
        EXPECT_OK(begin(*slow, slow_step));
      }
      if (slow_step + bound > 0) {
        EXPECT_OK(begin(*fast, slow_step + bound)) << "bound " << bound;
      }
      EXPECT_THAT(begin(*fast, slow_step + bound + 1), Expired())
          << "bound " << bound << ", slow worker at " << slow_step;
    }
    wire::WhyReply why;
    cohort.FillWhy(why, 100);
    EXPECT_EQ(why.largest_step_gap, bound);
  }
}

TEST_F(CohortTest, AnExpiredWaitNamesWaiterStepAndMissingWorkersWithTheirLastSeenTime) {
  const auto a = Join(0, Ssp(2)), b = Join(1, Ssp(2)), c = Join(2, Ssp(2));
  EXPECT_OK(Begin(*c, 2));
  EXPECT_OK(Begin(*b, 1));
  const absl::Status status = Begin(*a, 4);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WAIT_EXPIRED);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("worker 0 of job job has waited"),
                                     HasSubstr("to begin step 4"), HasSubstr("for step 2"),
                                     HasSubstr("missing: worker 1 (host/1), which is at step 1 and "
                                               "was last seen"),
                                     Not(HasSubstr("worker 2")))));
}

TEST_F(CohortTest, AnExpiredWaitNamesTheServersThatTheMissingWorkerCannotReach) {
  const auto a = Join(0, Ssp(0)), b = Join(1, Ssp(0));
  wire::WorkerVitals vitals;
  vitals.__set_servers_gone({1, 3});
  b->Beat(absl::Seconds(10), vitals);
  EXPECT_THAT(Begin(*a, 1), StatusIs(StatusCode::kDeadlineExceeded,
                                     HasSubstr(" ago and gets no answer from ps:1, ps:3")));
  vitals.__set_servers_replaced({3});
  b->Beat(absl::Seconds(10), vitals);
  EXPECT_THAT(Begin(*a, 1),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("no answer from ps:1, ps:3 (another server answers at the address "
                                 "of ps:3)")));
  b->Beat(absl::Seconds(10), {});
  EXPECT_THAT(Begin(*a, 1), StatusIs(StatusCode::kDeadlineExceeded, Not(HasSubstr("no answer"))));
}

TEST_F(CohortTest, AWaitEndsWhenTheLastMissingWorkerBeginsItsStep) {
  const auto a = Join(0, Ssp(0)), b = Join(1, Ssp(0));
  absl::Status status = absl::UnknownError("still waits");
  std::thread waiter([&] { status = cohort_.Await(*a, 1, 1, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  const wire::WhyReply why = Why();
  EXPECT_EQ(why.waiting[0].worker, 0);
  EXPECT_EQ(why.waiting[0].waits_for, "step");
  EXPECT_THAT(why.waiting[0].text, HasSubstr("missing: worker 1 (host/1)"));
  ASSERT_EQ(why.waiting[0].missing.size(), 1u);
  EXPECT_EQ(why.waiting[0].missing[0].worker, 1);
  EXPECT_EQ(why.waiting[0].missing[0].state, "live");
  EXPECT_OK(Begin(*b, 1));
  waiter.join();
  EXPECT_OK(status);
  EXPECT_TRUE(Why().waiting.empty());
}

TEST_F(CohortTest, AWaitForManyWorkersNamesTheSlowestAndSaysHowManyMoreThereAre) {
  std::vector<std::shared_ptr<Session>> workers;
  for (int32_t worker = 0; worker < 40; ++worker) workers.push_back(Join(worker, Ssp(2)));
  for (int32_t worker = 1; worker <= 20; ++worker) EXPECT_OK(Begin(*workers[worker], 1));
  absl::Status status = absl::UnknownError("still waits");
  std::thread waiter(
      [&] { status = cohort_.Await(*workers[30], 1, 4, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  wire::WhyReply why = Why();
  EXPECT_EQ(why.waiting[0].missing.size(), 39u);
  EXPECT_FALSE(why.waiting[0].__isset.more_missing);
  EXPECT_THAT(why.waiting[0].text,
              AllOf(HasSubstr("missing: worker 0 (host/0)"), HasSubstr(", worker 21 (host/21)"),
                    Not(HasSubstr("worker 1 ")), HasSubstr(" ago and 23 more workers")));
  for (const auto& worker : workers) {
    if (worker->worker() == 30) continue;
    EXPECT_OK(Begin(*worker, 2));
  }
  waiter.join();
  EXPECT_OK(status);
  EXPECT_THAT(
      Begin(*workers[30], 5),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("missing: worker 0 (host/0)"), HasSubstr("worker 15 (host/15)"),
                     Not(HasSubstr("worker 16")), HasSubstr(" and 23 more workers"))));
}

TEST_F(CohortTest, NoWorkerWaitsForFinishedDepartedOrLostWorkers) {
  const auto a = Join(0, Ssp(0)), ends = Join(1, Ssp(0)), leaves = Join(2, Ssp(0));
  const auto lost = Join(3, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = cohort_.Await(*a, 1, 1, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  EXPECT_EQ(Why().waiting[0].missing.size(), 3u);
  EXPECT_OK(Begin(*ends, -1));
  EXPECT_EQ(Why().waiting[0].missing.size(), 2u);
  cohort_.Leave(2);
  EXPECT_EQ(Why().waiting[0].missing.size(), 1u);
  Lose(*lost);
  waiter.join();
  EXPECT_OK(status);
  const wire::WhyReply why = Why();
  EXPECT_EQ(why.workers[1].state, "finished");
  EXPECT_EQ(why.workers[2].state, "left");
  EXPECT_EQ(why.workers[3].state, "lost");
}

TEST_F(CohortTest, ALateWorkerBeginsAtTheSlowestLiveWorkersStep) {
  const auto a = Join(0, Ssp(3)), b = Join(1, Ssp(3));
  for (int64_t step = 1; step <= 5; ++step) {
    EXPECT_OK(Begin(*a, step));
    EXPECT_OK(Begin(*b, step));
  }
  EXPECT_OK(Begin(*a, 7));
  int64_t clock = -1;
  const auto late = Join(2, Ssp(3), &clock);
  EXPECT_EQ(clock, 5);
  EXPECT_OK(Begin(*a, 8));
  EXPECT_THAT(Begin(*a, 9), Expired());  // b and late are at step 5
}

TEST_F(CohortTest, ALostWorkerMustSayHelloAndContinuesAtTheSlowestWorkersStep) {
  const auto a = Join(0, Ssp(1)), b = Join(1, Ssp(1));
  EXPECT_OK(Begin(*b, 1));
  Lose(*b);
  EXPECT_TRUE(b->stopped());
  EXPECT_TRUE(b->left());
  EXPECT_OK(Begin(*a, 9));
  const absl::Status status = Begin(*b, 2);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::LEASE_ENDED);
  EXPECT_THAT(std::string(status.message()), HasSubstr("say hello again"));
  b->Renew(kLease);
  b->Admit(1, "host/1");
  EXPECT_EQ(cohort_.Join(b, {.consistency = Ssp(1), .step = 1}).value_or(-1), 9);
  EXPECT_FALSE(b->stopped());
  EXPECT_FALSE(b->left());
  EXPECT_OK(Begin(*b, 10));
}

// The hello of a worker's new start is admitted, and the old lease runs out before it has joined.
TEST_F(CohortTest, AWorkerWhoseLeaseRunsOutDuringItsHelloHasNotLeft) {
  const auto a = Join(0, Ssp(1));
  a->Admit(2, "host/0");
  Lose(*a);
  EXPECT_TRUE(a->left());
  a->Renew(kLease);
  ASSERT_OK(cohort_.Join(a, {.consistency = Ssp(1), .fresh = true}));
  EXPECT_FALSE(a->left());
}

// A worker that joins a server later continues at its own step, not at the others'.
TEST_F(CohortTest, AWorkerThatKeepsItsStepIsWaitedForAtThatStep) {
  const auto a = Join(0, Ssp(2));
  ASSERT_OK(Begin(*a, 6));
  const auto b = Make(1);
  const auto step =
      cohort_.Join(b, {.consistency = Ssp(2), .step = 5, .fresh = true, .keeps_step = true});
  ASSERT_OK(step);
  EXPECT_EQ(*step, 5);
  ASSERT_OK(Begin(*a, 7));
  EXPECT_THAT(Begin(*a, 8), Expired());
  ASSERT_OK(Begin(*b, 6));
  ASSERT_OK(Begin(*a, 8));
}

// As after a restart of the server, for which lost workers have left.
TEST_F(CohortTest, UnderSyncARunThatIsStartedAgainWaitsForItsLostWorkersToo) {
  const Consistency sync{.mode = ConsistencyMode::kSync};
  const auto counts = [&] {
    std::vector<int32_t> workers;
    for (const QuorumMember& member : cohort_.Quorum()) {
      if (member.counts) workers.push_back(member.worker);
    }
    return workers;
  };
  const auto a = Join(0, sync), b = Join(1, sync);
  Lose(*b);
  EXPECT_THAT(counts(), ElementsAre(0));
  Lose(*a);
  EXPECT_OK(cohort_.Join(Make(0), {.consistency = sync, .fresh = true, .expected_workers = 2}));
  EXPECT_THAT(counts(), ElementsAre(0, 1));
  const std::vector<int32_t> missing = {1};
  EXPECT_THAT(cohort_.Describe(missing), HasSubstr("worker 1, which has not said hello since all"));
  Join(1, sync);
  EXPECT_THAT(counts(), ElementsAre(0, 1));
}

TEST_F(CohortTest, UnderAsyncALostWorkerIsTakenBackByItsNextCall) {
  const auto a = Join(0, {}), b = Join(1, {});
  Lose(*b);
  EXPECT_TRUE(b->stopped());
  EXPECT_OK(cohort_.Check(*b));
  EXPECT_FALSE(b->stopped());
  EXPECT_EQ(Why().workers[1].state, "live");
}

TEST_F(CohortTest, ALeaseRenewedBeforeTheLossIsHandledLosesNoWorker) {
  const auto a = Join(0, Ssp(1, WorkerLoss::kFail)), b = Join(1, Ssp(1, WorkerLoss::kFail));
  b->Renew(absl::ZeroDuration());
  ASSERT_TRUE(b->LeaseRanOut());
  b->Renew(kLease);
  cohort_.Lose(1);
  EXPECT_EQ(Why().workers[1].state, "live");
  EXPECT_FALSE(a->stopped());
}

TEST_F(CohortTest, OnWorkerLossFailEndsAllCallsIncludingTheLostWorkers) {
  const Consistency fail = Ssp(0, WorkerLoss::kFail);
  const auto a = Join(0, fail), b = Join(1, fail), lost = Join(2, fail);
  EXPECT_THAT(Begin(*b, 1), Expired());
  absl::Status waited;
  std::thread waiter([&] { waited = cohort_.Await(*a, 1, 1, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  Lose(*lost);
  waiter.join();
  for (const absl::Status& status : {waited, cohort_.Check(*b), cohort_.Check(*lost)}) {
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WORKER_LOST);
    EXPECT_THAT(status, StatusIs(StatusCode::kAborted,
                                 AllOf(HasSubstr("worker 2 of job job (host/2) is lost"),
                                       HasSubstr("at step 0"), HasSubstr("on_worker_loss"))));
  }
  // A new start of all workers continues.
  const auto again = Join(0, fail);
  EXPECT_OK(cohort_.Check(*again));
}

TEST_F(CohortTest, OnWorkerLossFailIgnoresAFinishedWorker) {
  const Consistency fail = Ssp(0, WorkerLoss::kFail);
  const auto a = Join(0, fail), done = Join(1, fail);
  EXPECT_OK(Begin(*done, -1));
  Lose(*done);
  EXPECT_OK(Begin(*a, 1));
}

TEST_F(CohortTest, WorkersFromBeforeARestartAreWaitedForUntilTheyReportTheirStep) {
  const auto a = Make(0), b = Make(1);
  cohort_.Return(a);
  cohort_.Return(b);
  EXPECT_EQ(cohort_.Join(a, {.consistency = Ssp(1), .step = 40}).value_or(-1), 40);
  const absl::Status status = Begin(*a, 41);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WAIT_EXPIRED);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker 1, which has not said hello since this server was started"));
  EXPECT_EQ(cohort_.Join(b, {.consistency = Ssp(1), .step = 40}).value_or(-1), 40);
  EXPECT_OK(Begin(*a, 41));
}

TEST_F(CohortTest, ARestartedServerLearnsThatAWorkerTakesNoMoreSteps) {
  const auto a = Make(0), b = Make(1);
  cohort_.Return(a);
  cohort_.Return(b);
  ASSERT_OK(cohort_.Join(a, {.consistency = Ssp(0), .step = 40}).status());
  ASSERT_OK(cohort_.Join(b, {.consistency = Ssp(0), .step = -1}).status());
  EXPECT_EQ(Why().workers[1].state, "finished");
  EXPECT_OK(Begin(*a, 41));
}

TEST_F(CohortTest, AWorkerFromBeforeTheRestartDoesNotHoldBackANewOne) {
  const auto a = Make(0);
  cohort_.Return(a);
  int64_t clock = -1;
  Join(1, Ssp(0), &clock);
  EXPECT_EQ(clock, 0);
}

// A new start of worker 2 says hello to a restarted server before the others do. It must not run
// all their steps again while they wait.
TEST_F(CohortTest, AWorkerThatJoinsBeforeTheReturningOnesBeginsAtTheirStep) {
  const auto a = Make(0), b = Make(1);
  cohort_.Return(a);
  cohort_.Return(b);
  int64_t clock = -1;
  const auto late = Join(2, Ssp(1), &clock);
  EXPECT_EQ(clock, 0);
  EXPECT_EQ(Why().workers[2].state, "joining");
  EXPECT_OK(Begin(*late, 1));
  ASSERT_OK(cohort_.Join(a, {.consistency = Ssp(1), .step = 41}).status());
  EXPECT_OK(Begin(*late, 1));  // b's step is still unknown
  ASSERT_OK(cohort_.Join(b, {.consistency = Ssp(1), .step = 40}).status());
  EXPECT_TRUE(late->stopped());
  EXPECT_EQ(ReasonOf(Begin(*late, 2)), wire::ErrorReason::LEASE_ENDED);
  EXPECT_EQ(ReasonOf(cohort_.Check(*late)), wire::ErrorReason::LEASE_ENDED);
  EXPECT_EQ(cohort_.Join(late, {.consistency = Ssp(1), .step = 2}).value_or(-1), 40);
  EXPECT_EQ(Why().workers[2].state, "live");
  EXPECT_OK(Begin(*late, 41));
  EXPECT_OK(Begin(*a, 41));
  EXPECT_LE(Why().largest_step_gap, 1);
}

TEST_F(CohortTest, AJoiningWorkerRunsAloneIfNoWorkerReturns) {
  const auto a = Make(0);
  cohort_.Return(a);
  const auto late = Join(1, Ssp(0));
  Lose(*a);
  EXPECT_EQ(Why().workers[1].state, "live");
  for (int64_t step = 1; step <= 3; ++step) EXPECT_OK(Begin(*late, step));
}

TEST_F(CohortTest, AWorkerWithoutConsistencyIsNotWaitedForBeforeItTakesSteps) {
  const auto a = Join(0, Ssp(0)), plain = Make(1);
  ASSERT_OK(cohort_.Join(plain, {.fresh = true}).status());
  EXPECT_OK(Begin(*a, 1));
  EXPECT_OK(Begin(*plain, 1));
  EXPECT_THAT(Begin(*a, 2), Expired());
}

TEST_F(CohortTest, LiveWorkersAgreeOnOneConsistency) {
  const auto a = Join(0, Ssp(2));
  const absl::Status status = cohort_.Agree(Ssp(3), 1);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::CONSISTENCY_CONFLICT);
  EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("worker 1 of job job asks for"),
                                     HasSubstr("staleness_bound_steps 3"),
                                     HasSubstr("worker 0 (host/0, last seen"),
                                     HasSubstr("staleness_bound_steps 2"))));
  EXPECT_EQ(ReasonOf(cohort_.Join(Make(1), {.consistency = Ssp(3)}).status()),
            wire::ErrorReason::CONSISTENCY_CONFLICT);
  EXPECT_OK(cohort_.Agree(Ssp(3), 0));  // as the only worker it may change its settings
  cohort_.Leave(0);
  EXPECT_OK(cohort_.Agree(Ssp(3), 1));
}

TEST_F(CohortTest, ANewerStartEndsTheWaitOfTheOlder) {
  const auto a = Join(0, Ssp(0)), b = Join(1, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = cohort_.Await(*a, 1, 1, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  a->Admit(2, "host/new");
  ASSERT_OK(cohort_.Join(a, {.consistency = Ssp(0), .fresh = true}).status());
  waiter.join();
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::FENCED);
}

TEST_F(CohortTest, AClosedCohortEndsWaitsWithTheGivenError) {
  const auto a = Join(0, Ssp(0)), b = Join(1, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = cohort_.Await(*a, 1, 1, Deadline::In(absl::Seconds(60))); });
  AwaitWaiters(1);
  cohort_.Close(absl::UnavailableError("ps:0 is shutting down"));
  waiter.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_THAT(Begin(*a, 1), StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
}

}  // namespace
}  // namespace cairn
