// Clients that keep step through real servers (ps_server/CONSISTENCY.md): how far ahead one may be,
// the error of an expired wait, and how the others continue when a worker ends, is lost or a server
// restarts.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ps_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

struct Worker {
  std::unique_ptr<PsClient> client;
  int64_t steps = 0;

  PsClient* operator->() const { return client.get(); }
  // The next step: pulls "a", and after the first step pushes 1 to it.
  absl::Status Step(absl::Duration timeout = absl::Seconds(60)) {
    const float gradient = 1;
    std::vector<PushSource> sources;
    if (steps++ > 0) {
      sources.push_back({.variable = "a", .values = AsBytes(absl::MakeConstSpan(&gradient, 1))});
    }
    float value = 0;
    return client->Step(sources, "",
                        {{.variable = "a", .out = AsWritableBytes(absl::MakeSpan(&value, 1))}},
                        Deadline::In(timeout));
  }
};

class StepClientsTest : public ::testing::Test {
 protected:
  // Starts two servers; "a" and "b" are on one each.
  void Start(const std::string& lease_seconds = "300") {
    for (int32_t s = 0; s < 2; ++s) {
      options_[s].data_dir = folder_.Join(absl::StrCat("ps", s));
      options_[s].task_index = s;
      options_[s].ps_count = 2;
      options_[s].flags.push_back("--lease_seconds=" + lease_seconds);
      auto started = PsProcess::Start(options_[s]);
      ASSERT_OK(started);
      servers_[s] = *std::move(started);
      options_[s].port = servers_[s]->port();
    }
  }

  // Exits the test program if it cannot connect.
  Worker Join(int32_t worker, int64_t bound, WorkerLoss loss = WorkerLoss::kContinue) {
    ClientOptions options = OptionsOf(worker);
    options.consistency = {
        .mode = ConsistencyMode::kSsp, .staleness_bound_steps = bound, .on_worker_loss = loss};
    return Connect(options);
  }
  ClientOptions OptionsOf(int32_t worker) {
    ClientOptions options;
    options.job = "job";
    options.worker = worker;
    options.task = absl::StrCat("worker:", worker);
    options.servers = {servers_[0]->address(), servers_[1]->address()};
    return options;
  }
  static Worker Connect(const ClientOptions& options) {
    Worker joined{PsClient::Connect(options, Soon()).value()};
    std::vector<VariableSpec> specs(2);
    for (int32_t s = 0; s < 2; ++s) {
      specs[s].name = s == 0 ? "a" : "b";
      specs[s].shape = {1};
      specs[s].optimizer.learning_rate.arguments["learning_rate"] = 1;
      specs[s].shards = {{.first_row = 0, .rows = 1, .ps = s}};
    }
    EXPECT_OK(joined->Create(specs, Soon()));
    return joined;
  }

  // One of two workers of a synchronous job.
  Worker JoinSync(const std::string& job, int32_t worker,
                  int64_t retained_bytes = ClientOptions{}.retained_bytes,
                  int32_t replicas_to_aggregate = 0) {
    ClientOptions options = OptionsOf(worker);
    options.job = job;
    options.retained_bytes = retained_bytes;
    options.consistency = {.mode = ConsistencyMode::kSync,
                           .replicas_to_aggregate = replicas_to_aggregate};
    options.expected_workers = 2;
    return Connect(options);
  }
  // Pushes the gradient to both variables (push 0: nothing), and begins the next step.
  static absl::Status StepBoth(Worker& worker, int64_t push, float gradient = 1) {
    const auto bytes = AsBytes(absl::MakeConstSpan(&gradient, 1));
    std::vector<PushSource> sources = {{.variable = "a", .values = bytes},
                                       {.variable = "b", .values = bytes}};
    if (push == 0) sources.clear();
    return worker->Step(sources, absl::StrCat(push), {}, Soon());
  }
  void Restart(int32_t server) {
    servers_[server]->Kill();
    auto started = PsProcess::Start(options_[server]);
    ASSERT_OK(started);
    servers_[server] = *std::move(started);
  }

  const TempDir folder_;
  PsOptions options_[2];
  std::unique_ptr<PsProcess> servers_[2];
};

// While the slow worker pauses, the fast one begins exactly the steps that the bound allows: it
// runs step c + s while the slow one runs step c, and begins no further step.
TEST_F(StepClientsTest, TheLargestGapIsExactlyTheBound) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const int64_t bound : {0, 1, 4}) {
    Worker fast = Join(0, bound), slow = Join(1, bound);
    constexpr int64_t kSteps = 20;
    absl::Status status;
    std::thread runner([&] {
      for (int64_t step = 0; step < kSteps && status.ok(); ++step) status = fast.Step();
      if (status.ok()) status = fast->EndSteps(Soon());
    });
    for (const Deadline deadline = Soon(); fast->LargestStepGap(Soon()).value_or(-1) != bound;) {
      if (deadline.Expired()) break;  // the last check fails
    }
    for (int64_t step = 1; step <= kSteps; ++step) EXPECT_OK(slow.Step());
    runner.join();
    EXPECT_OK(status);
    EXPECT_EQ(fast->LargestStepGap(Soon()).value_or(-1), bound);
    EXPECT_LE(slow->LargestStepGap(Soon()).value_or(99), bound);
    EXPECT_OK(fast->Leave(Soon()));
    EXPECT_OK(slow->Leave(Soon()));
  }
}

TEST_F(StepClientsTest, AnExpiredStepNamesWaiterStepAndWhoIsMissing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Worker fast = Join(0, 1), slow = Join(1, 1);
  ASSERT_OK(fast.Step());
  // The server waits for four fifths of the time, and its answer arrives within the rest.
  EXPECT_THAT(fast.Step(absl::Seconds(5)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("worker 0 of job job has waited"),
                             HasSubstr("to begin step 2"), HasSubstr("missing: worker 1 ("),
                             HasSubstr("which is at step 0 and was last seen"))));
}

TEST_F(StepClientsTest, AWorkerThatEndedItsStepsIsNotWaitedForOnAnyServer) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Worker fast = Join(0, 0), done = Join(1, 0);
  absl::Status ended;
  std::thread other([&] {
    ended = done.Step();
    if (ended.ok()) ended = done->EndSteps(Soon());
  });
  for (int step = 0; step < 20; ++step) ASSERT_OK(fast.Step());
  other.join();
  EXPECT_OK(ended);
}

// A killed server loses the clocks; the clients send theirs again, and keep step.
TEST_F(StepClientsTest, ClocksOutliveARestartOfAServer) {
  // The server waits for both workers to call again: a worker sends three heartbeats in each lease.
  ASSERT_NO_FATAL_FAILURE(Start("15"));
  Worker fast = Join(0, 2), slow = Join(1, 2);
  for (int step = 0; step < 5; ++step) {
    ASSERT_OK(fast.Step());
    ASSERT_OK(slow.Step());
  }
  ASSERT_NO_FATAL_FAILURE(Restart(1));
  ASSERT_OK(slow.Step());  // 6
  ASSERT_OK(fast.Step());
  ASSERT_OK(fast.Step());
  ASSERT_OK(fast.Step());  // 8
  EXPECT_THAT(fast.Step(absl::Seconds(5)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("which is at step 6")));
}

// All servers are restarted and know no clocks, and a new start of a third worker comes first. It
// begins at the others' steps: they do not wait while it repeats all steps.
TEST_F(StepClientsTest, TheFirstStartOnRestartedServersBeginsAtTheOthersSteps) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr int64_t kBound = 1, kSteps = 40;
  Worker a = Join(0, kBound), b = Join(1, kBound);
  for (int64_t step = 0; step < kSteps; ++step) {
    ASSERT_OK(a.Step());
    ASSERT_OK(b.Step());
  }
  for (const int32_t s : {0, 1}) ASSERT_NO_FATAL_FAILURE(Restart(s));
  Worker late = Join(2, kBound);
  EXPECT_OK(late.Step());
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_OK(a.Step());
    ASSERT_OK(b.Step());
    ASSERT_OK(late.Step());
  }
  EXPECT_LE(a->LargestStepGap(Soon()).value_or(99), kBound);
}

TEST_F(StepClientsTest, ALateJoinerBeginsAtTheSlowestAndDelaysNoWorker) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Worker early = Join(0, 0);
  for (int step = 0; step < 50; ++step) ASSERT_OK(early.Step());
  Worker late = Join(1, 0);
  absl::Status status;
  std::thread other([&] { status = late.Step(); });
  EXPECT_OK(early.Step());
  other.join();
  EXPECT_OK(status);
  EXPECT_EQ(late->LargestStepGap(Soon()).value_or(-1), 0);
}

// The client of a lost worker is destroyed without leaving, as a killed process would.
TEST_F(StepClientsTest, ALostWorkerIsWaitedForNoLongerThanItsLease) {
  ASSERT_NO_FATAL_FAILURE(Start("3"));
  Worker stays = Join(0, 0);
  { const Worker lost = Join(1, 0); }
  EXPECT_OK(stays.Step());
}

TEST_F(StepClientsTest, UnderFailTheLossOfAWorkerEndsTheStepOfTheOthers) {
  ASSERT_NO_FATAL_FAILURE(Start("3"));
  Worker stays = Join(0, 0, WorkerLoss::kFail);
  { const Worker lost = Join(1, 0, WorkerLoss::kFail); }
  EXPECT_THAT(stays.Step(), StatusIs(StatusCode::kAborted,
                                     AllOf(HasSubstr("worker 1 of job job ("), HasSubstr("is lost"),
                                           HasSubstr("start all workers of the job again"))));
}

// A server and a worker are killed together: the worker's next start computes again the
// contributions that the server lost, and they count for the same steps as before.
TEST_F(StepClientsTest, UnderSyncANewStartRecomputesLostContributions) {
  for (PsOptions& options : options_) options.flags = {"--snapshot_interval_seconds=3600"};
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const int32_t lost : {1, 0}) {
    const std::string job = absl::StrCat("sync", lost);
    const auto steps = [&](int32_t worker, int64_t last) {
      Worker joined = JoinSync(job, worker);
      int64_t done = 0;
      if (!joined->position().empty()) {
        EXPECT_TRUE(absl::SimpleAtoi(joined->position(), &done));
      }
      EXPECT_LT(done, last);
      EXPECT_OK(StepBoth(joined, 0));
      while (done < last) EXPECT_OK(StepBoth(joined, ++done));
      return joined;
    };
    Worker stays, again;
    {
      // Destroyed without leaving, as by a kill.
      Worker killed;
      std::thread other([&] { killed = steps(0, 3); });
      stays = steps(1, 3);
      other.join();
    }
    ASSERT_NO_FATAL_FAILURE(Restart(lost));
    std::thread other([&] { again = steps(0, 5); });
    for (int64_t step = 4; step <= 5; ++step) EXPECT_OK(StepBoth(stays, step));
    other.join();
    for (const char* variable : {"a", "b"}) {
      float value = 0;
      EXPECT_OK(stays->Pull(
          {{.variable = variable, .out = AsWritableBytes(absl::MakeSpan(&value, 1))}}, Soon()));
      EXPECT_EQ(value, -5) << variable;
    }
    EXPECT_EQ(again->counters().pushes_late, 0);
    EXPECT_OK(again->Leave(Soon()));
    EXPECT_OK(stays->Leave(Soon()));
  }
}

// A late push keeps its number, whichever start computes it: another server may have lost a
// contribution that the previous start sent under the next number.
TEST_F(StepClientsTest, UnderSyncEveryStartNumbersItsPushesTheSameWay) {
  for (PsOptions& options : options_) options.flags = {"--snapshot_interval_seconds=3600"};
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto join = [&](int32_t worker) {
    return JoinSync("sync", worker, ClientOptions{}.retained_bytes, /*replicas_to_aggregate=*/1);
  };
  // The gradient is the push's number, so that the result shows which pushes count.
  const auto push = [](Worker& worker, int64_t number) {
    return StepBoth(worker, number, static_cast<float>(number));
  };
  Worker first = join(0);
  {
    Worker late = join(1);
    ASSERT_OK(StepBoth(first, 0));
    ASSERT_OK(StepBoth(late, 0));
    ASSERT_OK(push(first, 100));
    ASSERT_OK(push(late, 1));  // the step is decided without it
    EXPECT_EQ(late->counters().pushes_late, 1);
  }
  ASSERT_NO_FATAL_FAILURE(Restart(0));
  {
    // ps:0 has lost that push 1 is void; ps:1 knows it.
    Worker again = join(1);
    EXPECT_EQ(again->position(), "");
    ASSERT_OK(StepBoth(again, 0));
    ASSERT_OK(push(again, 1));
    ASSERT_OK(push(again, 2));
  }
  ASSERT_NO_FATAL_FAILURE(Restart(1));
  Worker last = join(1);
  EXPECT_EQ(last->position(), "1");
  ASSERT_OK(StepBoth(last, 0));
  for (const int64_t number : {2, 3}) ASSERT_OK(push(last, number));
  float values[2] = {};
  ASSERT_OK(last->Pull({{.variable = "a", .out = AsWritableBytes(absl::MakeSpan(&values[0], 1))},
                        {.variable = "b", .out = AsWritableBytes(absl::MakeSpan(&values[1], 1))}},
                       Soon()));
  EXPECT_EQ(values[0], -105);
  EXPECT_EQ(values[1], -105);
}

// Each push waits until the previous one is durable; on a restarted server it becomes durable only
// after the other worker has also sent its contribution again.
TEST_F(StepClientsTest, UnderSyncAPushWaitsForSpaceUntilOthersHaveResentTheirs) {
  for (PsOptions& options : options_) options.flags = {"--snapshot_interval_seconds=3600"};
  ASSERT_NO_FATAL_FAILURE(Start());
  Worker small = JoinSync("sync", 0, /*retained_bytes=*/1), other = JoinSync("sync", 1);
  absl::Status status;
  const auto step_of_other = [&](int64_t push) {
    return std::thread([&, push] { status.Update(StepBoth(other, push)); });
  };
  for (int64_t push = 0; push <= 3; ++push) {
    std::thread thread = step_of_other(push);
    EXPECT_OK(StepBoth(small, push));
    thread.join();
  }
  ASSERT_NO_FATAL_FAILURE(Restart(1));
  std::thread thread([&] {
    // Nothing is sent again if the flush that push 3 requested came after it.
    const Deadline deadline = Deadline::In(absl::Seconds(5));
    while (small->counters().replayed_pushes == 0 && !deadline.Expired()) std::this_thread::yield();
    status.Update(StepBoth(other, 4));
  });
  EXPECT_OK(StepBoth(small, 4));
  thread.join();
  EXPECT_OK(status);
}

}  // namespace
}  // namespace cairn::test
