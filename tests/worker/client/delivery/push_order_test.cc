// Sequence numbers of pushes: each push names the previous number of its server. The number of a
// failed push is used again, is void, or ends the order, if its fate is unknown.
#include "worker/client/delivery/push_order.h"

#include <thread>

#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"
#include "worker/client/delivery/position.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PushOrderTest : public ::testing::Test {
 protected:
  PushOrderTest() {
    for (int32_t s = 0; s < 2; ++s) {
      exchanges_[s].session = &sessions_[s];
      exchanges_[s].call.kind = CallKind::kPush;
    }
    order_.Reset(0, "");
  }
  // Numbers a push to `servers` and ends it: answered, or with the given outcome.
  wire::Sequence Push(std::vector<int> servers, Outcome outcome = {}, bool sent = true,
                      absl::string_view position = "p") {
    std::vector<Exchange*> exchanges;
    for (const int s : servers) exchanges.push_back(&exchanges_[s]);
    status_ = order_.Number(exchanges, &position);
    if (!status_.ok()) return {};
    for (Exchange* exchange : exchanges) {
      exchange->sent = sent;
      exchange->done = outcome.progress == Progress::kAnswered;
      exchange->outcome = outcome;
      exchange->boot_id = 1;
      if (outcome.status.ok()) {
        EXPECT_TRUE(order_.Answered(*exchange));
      }
    }
    order_.Settle(exchanges, outcome.status);
    return exchanges[0]->call.request.push.sequence;
  }
  // Every server has answered hello.
  void SetUp() override {
    wire::HelloReply reply;
    reply.state.boot_id = 1;
    for (int s = 0; s < 2; ++s) sessions_[s].Begin(reply, 1, 0, 0);
  }
  int64_t Through(int server) {
    wire::Caller caller;
    sessions_[server].FillCaller(&caller);
    return caller.through;
  }

  FakeService fake_;
  const ClientIdentity identity_{.job = "job", .worker = 0, .server_count = 2};
  const ServerTable sessions_{[this] {
    std::vector<std::unique_ptr<ServerSession>> sessions;
    for (int32_t s = 0; s < 2; ++s) {
      sessions.push_back(
          std::make_unique<ServerSession>(s, "ps", InProcessLink("ps", &fake_), &identity_));
    }
    return sessions;
  }()};
  Exchange exchanges_[2];
  PushOrder order_{sessions_};
  absl::Status status_;
};

TEST_F(PushOrderTest, NamesTheNumberBeforeOnThatServer) {
  EXPECT_EQ(Push({0, 1}).sequence, 1);
  EXPECT_EQ(Push({0}).sequence, 2);
  EXPECT_EQ(Through(1), 2);  // 2 has no part on this server
  const wire::Sequence third = Push({1});
  EXPECT_EQ(third.sequence, 3);
  EXPECT_EQ(third.after, 1);
  std::string expected;
  EncodePosition(3, std::vector<int64_t>{2, 3}, "p", &expected);
  EXPECT_EQ(third.position, expected);
}

// A program may push twice a step, and give only one of the pushes a position.
TEST_F(PushOrderTest, APushWithoutAPositionKeepsTheOneBefore) {
  Push({0, 1}, {}, true, "seven");
  const wire::Sequence second = Push({0, 1}, {}, true, "");
  std::string expected;
  EncodePosition(2, std::vector<int64_t>{2, 2}, "seven", &expected);
  EXPECT_EQ(second.position, expected);
  order_.Reset(2, "");
  EncodePosition(3, std::vector<int64_t>{3, 3}, "", &expected);
  EXPECT_EQ(Push({0, 1}, {}, true, "").position, expected);
}

TEST_F(PushOrderTest, TakesANumberBackThatNoServerCanHaveSeen) {
  const Outcome not_sent{Progress::kNotSent, absl::UnavailableError("gone")};
  EXPECT_EQ(Push({0}, not_sent, /*sent=*/false).sequence, 1);
  EXPECT_EQ(Through(1), 0);
  EXPECT_EQ(Push({1}).sequence, 1);
}

TEST_F(PushOrderTest, GoesOnAfterARefusal) {
  EXPECT_EQ(Push({0}, {Progress::kAnswered, absl::InvalidArgumentError("no")}).sequence, 1);
  const wire::Sequence second = Push({0});
  EXPECT_EQ(second.sequence, 2);
  EXPECT_EQ(second.after, 0);  // 1 is void: the server may or may not have recorded it
}

TEST_F(PushOrderTest, EndsWhereTheFateOfAPushIsNotKnown) {
  Push({0, 1}, {Progress::kUnknown, absl::UnavailableError("connection reset")});
  EXPECT_EQ(Through(0), 0);
  Push({0});
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("unknown which servers have push 1")));
  EXPECT_THAT(status_.message(), HasSubstr("connection reset"));
}

// One server knows the newer start; the other would still accept this one's pushes.
TEST_F(PushOrderTest, EndsWhereAPushIsFenced) {
  Push({0, 1}, {Progress::kAnswered,
                WithReason(absl::FailedPreconditionError("newer"), wire::ErrorReason::FENCED)});
  Push({1});
  EXPECT_EQ(ReasonOf(status_), wire::ErrorReason::FENCED);
}

TEST_F(PushOrderTest, WaitsForItsTurnUntilTheDeadline) {
  ASSERT_OK(order_.Acquire(Soon()));
  EXPECT_THAT(order_.Acquire(Deadline::In(absl::Milliseconds(10))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("push: waited until the deadline for another push of this client, "
                                 "which waits for its servers, since ")));
  order_.WaitsFor("room");
  EXPECT_THAT(order_.Acquire(Deadline::In(absl::Milliseconds(10))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("waits for room, since ")));
  std::thread waiter([&] {
    EXPECT_OK(order_.Acquire(Soon()));
    order_.Release();
  });
  order_.Release();
  waiter.join();
}

}  // namespace
}  // namespace cairn::test
