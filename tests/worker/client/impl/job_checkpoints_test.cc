// Checkpoints of jobs that close steps, or whose rows move, while the servers write their parts.
// Restores onto servers of earlier versions.
#include <atomic>

#include "tests/worker/client/fleet.h"
#include "thrift/convert.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

// During each of the first `closing` checkpoints a step closes: the part's record is from before,
// and its rows may be from after.
class StepService : public FakeService {
 public:
  StepService(int32_t index, int closing) : FakeService(index, 2), closing_(closing) {}

  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override {
    FakeService::describe(reply, request);
    reply.state.closed_step = closed_;
  }
  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest&) override {
    // Without files it would be the part of a server that has left.
    reply.files.emplace_back().name = "CURRENT";
    const int64_t recorded = closed_ - lacking_;
    if (recorded > 0) {
      reply.workers.emplace_back();
      reply.workers.back().worker = kStepWorker;
      reply.workers.back().sequence = recorded;
    }
    if (made_++ < closing_) ++closed_;
  }
  void drop_checkpoint(wire::ServerState&, const wire::CheckpointRequest&) override { ++dropped_; }

  // Parts lack the last `steps` steps; the record of closed steps, if they lack all.
  void set_lacking(int64_t steps) { lacking_ = steps; }
  int made() const { return made_; }
  int dropped() const { return dropped_; }

 private:
  const int closing_;
  std::atomic<int64_t> closed_ = 7, lacking_ = 0;
  std::atomic<int> made_ = 0, dropped_ = 0;
};

absl::StatusOr<std::vector<ServerCheckpoint>> Make(StepService& first, StepService& second) {
  const auto client =
      PsClient::ConnectInProcess(Fleet::Options(-1), {&first, &second}, Soon()).value();
  return client->Checkpoint("/checkpoints", "a", Soon());
}

TEST(JobCheckpoints, PartsDuringWhichAStepClosedAreMadeAgain) {
  StepService first(0, 1), second(1, 1);
  const auto parts = Make(first, second);
  ASSERT_OK(parts);
  for (const ServerCheckpoint& part : *parts) {
    EXPECT_EQ(FindWorker(part, kStepWorker)->sequence, 8) << part.server;
  }
  EXPECT_EQ(first.made(), 2);
  EXPECT_EQ(first.dropped(), 1);
}

TEST(JobCheckpoints, SoAreThoseOfServersThatCloseAStepOneAfterTheOther) {
  StepService first(0, 2), second(1, 2);
  wire::CheckpointReply earlier;
  first.checkpoint(earlier, {});  // the step is closed on one server only
  EXPECT_THAT(Make(first, second), StatusIs(absl::StatusCode::kAborted, HasSubstr("closed steps")));
  second.checkpoint(earlier, {});
  EXPECT_OK(Make(first, second));
}

// The servers describe the same step before and after, but one part was copied before the step
// closed there, or has no record of steps.
TEST(JobCheckpoints, APartThatLacksTheLastStepIsRefused) {
  for (const int64_t lacking : {1, 7}) {
    StepService first(0, 0), second(1, 0);
    second.set_lacking(lacking);
    EXPECT_THAT(Make(first, second),
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr(absl::StrCat("the part of ps:1 has closed step ", 7 - lacking,
                                                ", and the expected step is 7"))));
    EXPECT_EQ(second.made(), 5);
    second.set_lacking(0);
    EXPECT_OK(Make(first, second));
  }
}

TEST(JobCheckpoints, AJobThatKeepsClosingStepsHasNone) {
  StepService first(0, 1000), second(1, 1000);
  EXPECT_THAT(Make(first, second), StatusIs(absl::StatusCode::kAborted,
                                            HasSubstr("its first worker makes checkpoints")));
  EXPECT_EQ(first.made(), 5);
}

// The table's only bucket moves from ps:0 to ps:1 after the first copy of ps:1 and before that of
// ps:0.
class MovingService : public FakeService {
 public:
  explicit MovingService(int32_t index) : FakeService(index, 2), index_(index) {}

  void checkpoint(wire::CheckpointReply& reply, const wire::CheckpointRequest&) override {
    const bool moved = made_++ > 0 || index_ == 0;
    VariableSpec table = Table("t", 2);
    table.bucket_ps = {moved ? 1 : 0};
    table.map_version = moved ? 2 : 1;
    reply.files.emplace_back().name = "CURRENT";
    reply.variables.emplace_back().spec = ToWire(table);
  }
  void drop_checkpoint(wire::ServerState&, const wire::CheckpointRequest&) override { ++dropped_; }

  int made() const { return made_; }
  int dropped() const { return dropped_; }

 private:
  const int32_t index_;
  std::atomic<int> made_ = 0, dropped_ = 0;
};

TEST(JobCheckpoints, PartsBetweenWhichRowsMovedAreMadeAgain) {
  MovingService first(0), second(1);
  const auto client =
      PsClient::ConnectInProcess(Fleet::Options(-1), {&first, &second}, Soon()).value();
  ASSERT_OK(client->Checkpoint("/checkpoints", "a", Soon()));
  EXPECT_EQ(second.made(), 2);
  EXPECT_EQ(second.dropped(), 1);
}

// Restores a table whose only bucket ps:0 has given to ps:1, which never got it.
class LackingService : public FakeService {
 public:
  explicit LackingService(int32_t index) : FakeService(index, 2), index_(index) {}

  void restore(wire::RestoreReply&, const wire::RestoreRequest&) override { restored_ = true; }
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) override {
    FakeService::describe(reply, request);
    if (!restored_ || index_ != 0) return;
    VariableSpec table = Table("t", 2);
    table.bucket_ps = {1};
    table.map_version = 2;
    reply.variables.emplace_back().spec = ToWire(table);
  }
  void drop_job(wire::ServerState&, const wire::Caller&) override { restored_ = false; }

  bool restored() const { return restored_; }

 private:
  const int32_t index_;
  std::atomic<bool> restored_ = false;
};

TEST(JobCheckpoints, ARestoreWithoutRowsThatMovedIsUndone) {
  LackingService first(0), second(1);
  const auto client =
      PsClient::ConnectInProcess(Fleet::Options(-1), {&first, &second}, Soon()).value();
  RestoreSource source{.job = "job", .timeline = 1};
  source.folders = {{.path = "/a/ps-0"}, {.path = "/a/ps-1"}};
  EXPECT_THAT(client->Restore(source, Soon()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lacks rows that moved")));
  EXPECT_FALSE(first.restored());
  EXPECT_FALSE(second.restored());
}

// Servers that do not know RestoreRequest.verify_only. The first holds the job, the second does
// not.
class EarlierService : public FakeService {
 public:
  explicit EarlierService(int32_t index) : FakeService(index, 2), holds_job_(index == 0) {}

  void restore(wire::RestoreReply&, const wire::RestoreRequest&) override {
    if (holds_job_) {
      wire::ServerError error;
      error.code = wire::ErrorCode::ALREADY_EXISTS;
      throw error;
    }
    ++restored_;
  }
  void drop_job(wire::ServerState&, const wire::Caller&) override { ++dropped_; }

  int restored() const { return restored_; }
  int dropped() const { return dropped_; }

 private:
  const bool holds_job_;
  std::atomic<int> restored_ = 0, dropped_ = 0;
};

TEST(JobCheckpoints, AVerificationLeavesNothingOnServersOfEarlierVersions) {
  EarlierService first(0), second(1);
  const auto client =
      PsClient::ConnectInProcess(Fleet::Options(-1), {&first, &second}, Soon()).value();
  RestoreSource source{.job = "job", .timeline = 1};
  source.folders = {{.path = "/a/ps-0"}, {.path = "/a/ps-1"}};
  EXPECT_OK(client->VerifyRestore(source, Soon()));
  EXPECT_EQ(first.dropped(), 0);
  EXPECT_EQ(second.restored(), 1);
  EXPECT_EQ(second.dropped(), 1);
}

}  // namespace
}  // namespace cairn::test
