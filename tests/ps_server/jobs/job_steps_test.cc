// The calls that wait for a synchronous step, as `why` lists them.
#include "ps_server/jobs/job_steps.h"

#include <algorithm>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class JobStepsTest : public ::testing::Test {
 protected:
  // Worker 0 of a synchronous job of `expected` workers says hello, and `waiting` calls of it wait.
  wire::WhyReply WhyOf(int32_t expected, int waiting, size_t* count) {
    Cohort cohort("job");
    JobSteps steps("job", &cohort, {});
    steps.Begin(0);
    const auto session = std::make_shared<Session>("job", 0, false);
    session->Admit(1, "host/0");
    session->Renew(absl::Minutes(5));
    EXPECT_OK(cohort
                  .Join(session, {.consistency = Consistency{.mode = ConsistencyMode::kSync},
                                  .step = 1,
                                  .fresh = true,
                                  .expected_workers = expected})
                  .status());
    EXPECT_OK(cohort.Await(*session, 1, 2, Deadline::In(absl::ZeroDuration())));
    for (int i = 0; i < waiting; ++i) steps.AddWaiter({.worker = 0, .step = 2});
    wire::WhyReply reply;
    *count = steps.FillWhy(reply, kMaxWaitsListed);
    return reply;
  }
};

TEST_F(JobStepsTest, WhyListsEveryMissingWorkerOfAFewCalls) {
  size_t count = 0;
  const wire::WhyReply reply = WhyOf(/*expected=*/17, /*waiting=*/2, &count);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(reply.waiting.size(), 2u);
  for (const wire::WaitingCall& call : reply.waiting) {
    EXPECT_EQ(call.missing.size(), 16u);
    EXPECT_FALSE(call.__isset.more_missing);
    EXPECT_THAT(call.text, HasSubstr("worker 16, which has not said hello yet"));
    EXPECT_THAT(call.text, Not(HasSubstr("more workers")));
  }
}

// One worker can have hundreds of calls that wait, in a job that expects thousands of workers.
TEST_F(JobStepsTest, AReplyToWhyIsSmallHoweverManyCallsWaitForHoweverManyWorkers) {
  size_t count = 0;
  const wire::WhyReply reply = WhyOf(/*expected=*/8192, /*waiting=*/1000, &count);
  EXPECT_EQ(count, 1000u);
  EXPECT_EQ(reply.waiting.size(), kMaxWaitsListed);
  size_t missing = 0, bytes = 0;
  for (const wire::WaitingCall& call : reply.waiting) {
    missing += call.missing.size();
    bytes += sizeof(call) + call.text.size() + call.missing.size() * sizeof(wire::WorkerStanding);
    EXPECT_EQ(call.missing.size() + static_cast<size_t>(call.more_missing), 8191u);
    EXPECT_THAT(call.text, EndsWith("worker 16, which has not said hello yet and 8175 more "
                                    "workers"));
  }
  EXPECT_LE(missing, kMaxMissingListed);
  EXPECT_LE(bytes, size_t{2} << 20);
}

}  // namespace
}  // namespace cairn
