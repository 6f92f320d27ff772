// A server limits how many jobs and workers clients may create, charges each to the memory budget,
// and forgets jobs and workers whose loss does no harm when it needs the place.
#include "ps_server/base/quota.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/timeline.h"
#include "ps_server/jobs/registry.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Quota, PlaceReturnsItsChargeToTheBudget) {
  MemoryBudget budget(1000, absl::ZeroDuration());
  Quota quota(
      {.server = "ps:0", .what = "jobs", .flag = "--max_jobs", .limit = 1, .charge_bytes = 400},
      budget);
  {
    const absl::StatusOr<Quota::Place> place = quota.Take("job a", Quota::For::kCaller);
    ASSERT_OK(place);
    EXPECT_TRUE(quota.full());
    EXPECT_EQ(budget.used_bytes(), 400);
    const absl::Status second = quota.Take("job b", Quota::For::kCaller).status();
    EXPECT_THAT(second, StatusIs(StatusCode::kResourceExhausted,
                                 HasSubstr("ps:0 keeps 1 jobs, job b would be one more; 1 are "
                                           "allowed: drop finished jobs")));
    EXPECT_EQ(ReasonOf(second), wire::ErrorReason::LIMIT);
    EXPECT_EQ(budget.used_bytes(), 400);
    ASSERT_OK(quota.Take("job b", Quota::For::kStore));
    ASSERT_OK(budget.Acquire(300, "something else"));
    EXPECT_EQ(ReasonOf(quota.Take("job c", Quota::For::kStore).status()),
              wire::ErrorReason::MEMORY_BUDGET);
  }
  EXPECT_FALSE(quota.full());
  EXPECT_EQ(budget.used_bytes(), 300);
}

class QuotaTest : public ServerTest {
 protected:
  void Open(int32_t max_jobs, int32_t max_workers) {
    options_.max_jobs = max_jobs;
    options_.max_workers = max_workers;
    options_.snapshot_interval = absl::Hours(1);
    ASSERT_NO_FATAL_FAILURE(Start());
  }
  TestClient Of(const std::string& job, int32_t worker) {
    TestClient client = Client(worker);
    client.caller().job = job;
    return client;
  }
  absl::Status Hello(const std::string& job, int32_t worker = 0) {
    return Of(job, worker).Hello().status();
  }
  absl::Status Create(const std::string& job) {
    return Of(job, -1).Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))});
  }
  // The server's own clock ends leases of a few milliseconds.
  absl::Status HelloOnceThereIsRoom(const std::string& job) {
    const Deadline deadline = Deadline::In(absl::Seconds(30));
    absl::Status status = Hello(job);
    while (!status.ok() && !deadline.Expired()) status = Hello(job);
    return status;
  }
  // Expects that worker 0 of `job` keeps its first incarnation although other jobs ask for its
  // place for 50 leases.
  void ExpectNeverForgotten(const std::string& job) {
    const Deadline deadline = Deadline::In(50 * options_.lease);
    while (!deadline.Expired()) ASSERT_FALSE(Hello("other").ok());
    EXPECT_EQ(StartsOf(Of(job, 0).Hello()->incarnation), 2);
  }
  int64_t Used() { return Client().Describe()->memory_used_bytes; }
};

TEST_F(QuotaTest, JobsBeyondTheLimitAreRefusedAndTheOthersGoOn) {
  ASSERT_NO_FATAL_FAILURE(Open(2, 100));
  TestClient first = Of("a", 0);
  ASSERT_OK(first.Hello());
  ASSERT_OK(first.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(Create("b"));
  const absl::Status hello = Hello("c");
  EXPECT_THAT(hello, StatusIs(StatusCode::kResourceExhausted,
                              AllOf(HasSubstr("job c"), HasSubstr("--max_jobs"))));
  EXPECT_EQ(ReasonOf(hello), wire::ErrorReason::LIMIT);
  EXPECT_THAT(Create("c"), StatusIs(StatusCode::kResourceExhausted, HasSubstr("--max_jobs")));
  EXPECT_OK(first.Push("w", {1, 1}));
  EXPECT_OK(Hello("b"));

  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, Of("b", -1).caller()); }));
  EXPECT_OK(Create("c"));
}

TEST_F(QuotaTest, WorkersBeyondTheLimitAreRefusedInEveryJob) {
  ASSERT_NO_FATAL_FAILURE(Open(100, 3));
  ASSERT_OK(Hello("a", 0));
  ASSERT_OK(Hello("a", 1 << 30));
  ASSERT_OK(Hello("b", 0));
  const absl::Status hello = Hello("a", 2);
  EXPECT_THAT(hello, StatusIs(StatusCode::kResourceExhausted,
                              AllOf(HasSubstr("worker 2 of job a"), HasSubstr("--max_workers"))));
  EXPECT_EQ(ReasonOf(hello), wire::ErrorReason::LIMIT);
  EXPECT_OK(Hello("a", 1 << 30));  // it starts again
}

// Otherwise the callers of one job could keep out every other job.
TEST(Registry, AJobMayHaveHalfOfTheWorkers) {
  MemoryBudget budget(int64_t{1} << 30, absl::ZeroDuration());
  constexpr int64_t kWorkers = 2 * kMinWorkersLimitOfJob + 200;
  Registry registry("ps:0", {.jobs = 10, .workers = kWorkers}, budget);
  EXPECT_EQ(registry.max_workers_of_job(), kWorkers / 2);
  const auto add = [&](const std::string& job, int64_t worker, Quota::For whom) {
    const auto there = *registry.FindOrMake(job, whom);
    return there
        ->AddSession(std::make_shared<Session>(job, static_cast<int32_t>(worker), false), whom)
        .status();
  };
  for (int64_t w = 0; w < kWorkers / 2; ++w) ASSERT_OK(add("a", w, Quota::For::kCaller));
  const absl::Status refused = add("a", kWorkers, Quota::For::kCaller);
  EXPECT_THAT(refused, StatusIs(StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("ps:0 keeps 1124 workers of job a, worker 2248"),
                                      HasSubstr("1124 of the 2248"), HasSubstr("--max_workers"))));
  EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::LIMIT);
  EXPECT_OK(add("a", 7, Quota::For::kCaller));  // this worker exists already
  EXPECT_OK(add("a", kWorkers, Quota::For::kStore));
  EXPECT_OK(add("b", 0, Quota::For::kCaller));
  EXPECT_EQ(Registry("ps:0", {.jobs = 1, .workers = 7}, budget).max_workers_of_job(), 7);
}

TEST_F(QuotaTest, JobsAndWorkersAreChargedUntilTheJobIsDropped) {
  ASSERT_NO_FATAL_FAILURE(Open(100, 100));
  const int64_t before = Used();
  for (int32_t worker = 0; worker < 5; ++worker) ASSERT_OK(Hello("a", worker));
  EXPECT_EQ(Used(), before + kJobChargeBytes + 5 * kWorkerChargeBytes);
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(Used(), before + kJobChargeBytes + 5 * kWorkerChargeBytes);
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, Of("a", -1).caller()); }));
  EXPECT_EQ(Used(), before);
}

TEST_F(QuotaTest, RefusedCreateMakesNoJob) {
  ASSERT_NO_FATAL_FAILURE(Open(100, 100));
  const int64_t before = Used();
  EXPECT_FALSE(Of("a", -1).Create({DenseSpec("w", {-2}, WireOptimizer("sgd", 1))}).ok());
  EXPECT_OK(Of("b", -1).Create({}));
  EXPECT_EQ(Used(), before);
}

TEST_F(QuotaTest, LoweredLimitsKeepJobsAndWorkersThatAreOnDisk) {
  ASSERT_NO_FATAL_FAILURE(Open(100, 100));
  ASSERT_OK(Create("a"));
  ASSERT_OK(Create("b"));
  ASSERT_OK(Hello("b", 0));
  ASSERT_OK(Hello("b", 1));
  options_.max_jobs = 1;
  options_.max_workers = 1;
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_OK(Of("a", -1).Pull("w"));
  EXPECT_OK(Hello("b", 1));
  EXPECT_FALSE(Hello("b", 2).ok());
}

TEST_F(QuotaTest, JobsWithoutVariablesWhoseWorkersAreAwayMakeRoom) {
  options_.lease = absl::Milliseconds(20);
  ASSERT_NO_FATAL_FAILURE(Open(2, 100));
  ASSERT_OK(Create("kept"));
  ASSERT_OK(Hello("forgotten"));
  EXPECT_OK(HelloOnceThereIsRoom("next"));
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());  // the disk agrees
  EXPECT_OK(Of("kept", -1).Pull("w"));
  EXPECT_EQ(StartsOf(Of("next", 0).Hello()->incarnation), 2);
  EXPECT_OK(HelloOnceThereIsRoom("forgotten"));
  EXPECT_EQ(StartsOf(Of("forgotten", 0).Hello()->incarnation), 2)
      << "its second start since it was made";
}

TEST_F(QuotaTest, WorkersOfForgottenJobsMakeRoomToo) {
  options_.lease = absl::Milliseconds(20);
  ASSERT_NO_FATAL_FAILURE(Open(100, 2));
  ASSERT_OK(Hello("a", 0));
  ASSERT_OK(Hello("a", 1));
  EXPECT_OK(HelloOnceThereIsRoom("b"));
}

TEST_F(QuotaTest, JobOfALiveWorkerIsNotForgotten) {
  ASSERT_NO_FATAL_FAILURE(Open(1, 100));  // the lease of 10 s does not end during the test
  ASSERT_OK(Hello("live"));
  EXPECT_EQ(ReasonOf(Hello("next")), wire::ErrorReason::LIMIT);
}

// The server judges the worker's pushes by its incarnation and sequence.
TEST_F(QuotaTest, JobOfAWorkerThatHasPushedIsNeverForgotten) {
  options_.lease = absl::Milliseconds(1);
  ASSERT_NO_FATAL_FAILURE(Open(1, 100));
  TestClient pushed = Of("pushed", 0);
  ASSERT_OK(pushed.Hello());
  EXPECT_FALSE(pushed.Push("absent", {1}).ok());  // its sequence is void, but counts
  ASSERT_NO_FATAL_FAILURE(ExpectNeverForgotten("pushed"));
}

// It grants incarnations for all servers, and another server may have variables of the job.
TEST_F(QuotaTest, CoordinatorOfSeveralServersForgetsNoWorkerWithAnIncarnation) {
  options_.lease = absl::Milliseconds(1);
  options_.server_count = 2;
  ASSERT_NO_FATAL_FAILURE(Open(1, 100));
  TestClient worker = Of("a", 0);
  ASSERT_OK(worker.Hello());
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().leave(state, worker.caller()); }));
  ASSERT_NO_FATAL_FAILURE(ExpectNeverForgotten("a"));
}

TEST_F(QuotaTest, MoreExpectedWorkersThanTheLimitAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Open(100, 100));
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = "a";
  request.expected_workers = 101;
  wire::HelloReply reply;
  const absl::Status hello = CallStatus([&] { service().hello(reply, request); });
  EXPECT_THAT(hello, StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 100")));
  EXPECT_EQ(ReasonOf(hello), wire::ErrorReason::LIMIT);
}

TEST_F(QuotaTest, LimitsOutOfRangeAreRefused) {
  options_.max_workers = 0;
  EXPECT_THAT(OpenStatus(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--max_workers is 0; 1 to")));
}

}  // namespace
}  // namespace cairn
