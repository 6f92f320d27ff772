// Checkpoints of a synchronous job, which may close steps while the servers write their parts.
#include <atomic>

#include "tests/worker/client/fleet.h"

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
    reply.workers.emplace_back();
    reply.workers.back().worker = kStepWorker;
    reply.workers.back().sequence = closed_;
    if (made_++ < closing_) ++closed_;
  }
  void drop_checkpoint(wire::ServerState&, const wire::CheckpointRequest&) override { ++dropped_; }

  int made() const { return made_; }
  int dropped() const { return dropped_; }

 private:
  const int closing_;
  std::atomic<int64_t> closed_ = 7;
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

TEST(JobCheckpoints, AJobThatKeepsClosingStepsHasNone) {
  StepService first(0, 1000), second(1, 1000);
  EXPECT_THAT(Make(first, second), StatusIs(absl::StatusCode::kAborted,
                                            HasSubstr("its first worker makes checkpoints")));
  EXPECT_EQ(first.made(), 5);
}

}  // namespace
}  // namespace cairn::test
