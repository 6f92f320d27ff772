// Acknowledgements and restarts of a server in every order: no acknowledgement of an ended boot
// counts, and no acknowledged push is forgotten.
#include "worker/client/delivery/server_session.h"

#include <utility>

#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

class ServerSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::HelloReply reply;
    ASSERT_OK(session_.Hello(0, 0, Soon(), &reply).status);
    session_.Begin(reply, reply.incarnation, 0, 0);
  }
  Outcome Push(int64_t sequence) {
    wire::PushRequest request;
    boot_id_ = session_.FillCaller(&request.caller);
    request.sequence.sequence = sequence;
    request.sequence.after = session_.last_part();
    Channel* channel = nullptr;
    EXPECT_OK(session_.link().Take(Soon(), &channel).status);
    return channel->Call(
        "push",
        [&](wire::ParameterServerIf& service) {
          wire::PushReply reply;
          service.push(reply, request);
        },
        Soon());
  }
  bool Answered(int64_t sequence, int64_t boot_id) {
    DataCall call;
    call.kind = CallKind::kPush;
    call.request.push.sequence.sequence = sequence;
    return session_.PushAnswered(call, boot_id);
  }
  RetryDecision ClassifyOutcome(Outcome outcome) {
    const RetryDecision decision = session_.ClassifyOutcome(&outcome, true, boot_id_, Soon());
    status_ = outcome.status;
    return decision;
  }

  FakeService fake_;
  const ClientIdentity identity_{.job = "job", .task = "worker:0", .worker = 0, .server_count = 1};
  ServerSession session_{0, "ps:0", InProcessLink("ps:0", &fake_), &identity_};
  int64_t boot_id_ = 0;  // carried by the last push
  absl::Status status_;
};

TEST_F(ServerSessionTest, WhoeverMayBeSlowIsNotGone) {
  const auto judge = [&](absl::Status status, bool slow_is_down) {
    Outcome outcome{Progress::kUnknown, std::move(status)};
    EXPECT_EQ(session_.ClassifyOutcome(&outcome, true, 1, Soon(), slow_is_down),
              RetryDecision::kAgainLater);
    return session_.down();
  };
  EXPECT_FALSE(judge(absl::DeadlineExceededError("no answer"), false));
  EXPECT_TRUE(judge(absl::DeadlineExceededError("no answer"), true));
  ASSERT_OK(Push(1).status);
  boot_id_ = 0;
  EXPECT_EQ(ClassifyOutcome({Progress::kAnswered, absl::OkStatus()}), RetryDecision::kDone);
  EXPECT_FALSE(session_.down());
  EXPECT_TRUE(judge(absl::UnavailableError("refused"), false));
}

TEST_F(ServerSessionTest, AnAcknowledgementOfADeadBootIsVoid) {
  ASSERT_OK(Push(1).status);  // applied; the answer is in flight …
  const int64_t old_boot = boot_id_;
  fake_.Reboot(/*durable=*/0);
  // … while another thread notices the restart. The server has all acknowledged pushes: none.
  wire::Caller caller;
  boot_id_ = session_.FillCaller(&caller);
  EXPECT_EQ(ClassifyOutcome(Push(1)), RetryDecision::kAgain);
  // Then the answer arrives: the push must be sent again.
  EXPECT_FALSE(Answered(1, old_boot));
  EXPECT_EQ(session_.last_part(), 0);
  ASSERT_OK(Push(1).status);
  EXPECT_TRUE(Answered(1, boot_id_));
  EXPECT_EQ(fake_.applied(0), 1);
}

TEST_F(ServerSessionTest, AnExceptionDuringARenewalDoesNotEndLaterOnes) {
  struct Thrown {};  // not a std::exception, of which links make errors
  ASSERT_OK(Push(1).status);
  fake_.Reboot(/*durable=*/1);
  fake_.before = [](absl::string_view method) {
    if (method == "hello") throw Thrown{};
  };
  EXPECT_THROW(ClassifyOutcome(Push(2)), Thrown);
  fake_.before = nullptr;
  Outcome rebooted = Push(2);
  EXPECT_EQ(
      session_.ClassifyOutcome(&rebooted, true, boot_id_, Deadline::In(absl::Milliseconds(200))),
      RetryDecision::kAgain);
  EXPECT_OK(Push(2).status);
}

// Without a Retention no push can be sent again.
TEST_F(ServerSessionTest, ARestartThatForgotAnAcknowledgedPushIsFound) {
  ASSERT_OK(Push(1).status);
  ASSERT_TRUE(Answered(1, boot_id_));
  fake_.Reboot(/*durable=*/0);
  EXPECT_EQ(ClassifyOutcome(Push(2)), RetryDecision::kFail);
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("without acknowledged push 1")));
  // Asking again does not help.
  EXPECT_EQ(ClassifyOutcome(Push(2)), RetryDecision::kFail);
}

TEST_F(ServerSessionTest, OnlyWhatMayPassIsTriedAgain) {
  const auto judge = [&](Progress progress, absl::Status status, bool repeatable) {
    Outcome outcome{progress, std::move(status)};
    return session_.ClassifyOutcome(&outcome, repeatable, 1, Soon());
  };
  const auto gone = absl::UnavailableError("gone");
  EXPECT_EQ(judge(Progress::kAnswered, absl::OkStatus(), false), RetryDecision::kDone);
  EXPECT_EQ(judge(Progress::kAnswered, absl::NotFoundError("x"), true), RetryDecision::kFail);
  EXPECT_EQ(judge(Progress::kNotSent, gone, false), RetryDecision::kAgainLater);
  EXPECT_EQ(judge(Progress::kUnknown, gone, true), RetryDecision::kAgainLater);
  EXPECT_EQ(judge(Progress::kUnknown, gone, false), RetryDecision::kFail);
  EXPECT_EQ(judge(Progress::kUnknown, absl::InternalError("no reply"), true), RetryDecision::kFail);
  EXPECT_EQ(judge(Progress::kNotSent, absl::InvalidArgumentError("port"), true),
            RetryDecision::kFail);
  const auto stopping = WithReason(gone, wire::ErrorReason::STOPPING);
  EXPECT_EQ(judge(Progress::kAnswered, stopping, true), RetryDecision::kAgainLater);
  EXPECT_EQ(judge(Progress::kAnswered, stopping, false), RetryDecision::kFail);
}

// The server's port was taken while it was down. The other server may go away again.
TEST_F(ServerSessionTest, AnotherServerAtItsAddressIsNamedAndWaitedFor) {
  ASSERT_OK(Push(1).status);
  fake_.Reboot(/*durable=*/1);
  fake_.answers_as = 3;
  EXPECT_EQ(ClassifyOutcome(Push(2)), RetryDecision::kAgainLater);
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("another server answers there, which says that it is "
                                          "ps:3 of 1")));
  EXPECT_TRUE(session_.down());
  EXPECT_TRUE(session_.replaced());
  EXPECT_THAT(session_.GiveUpError({Progress::kNotSent, status_}, /*deadline_passed=*/false),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another server answers there")));
  fake_.answers_as = -1;
  EXPECT_EQ(ClassifyOutcome(Push(2)), RetryDecision::kAgain);
  EXPECT_FALSE(session_.down());
  EXPECT_FALSE(session_.replaced());
  EXPECT_OK(Push(2).status);
}

TEST_F(ServerSessionTest, CallersOfAToolNameNoBoot) {
  const ClientIdentity tool{.job = "job", .task = "tool", .server_count = 1};
  ServerSession session(0, "ps:0", InProcessLink("ps:0", &fake_), &tool);
  wire::HelloReply reply;
  ASSERT_OK(session.Hello(0, 0, Soon(), &reply).status);
  session.Begin(reply, 0, 0, 0);
  wire::Caller caller;
  EXPECT_EQ(session.FillCaller(&caller), 0);
  EXPECT_EQ(caller.worker, -1);
  EXPECT_EQ(caller.boot_id, 0);
}

}  // namespace
}  // namespace cairn::test
