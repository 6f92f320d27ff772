// The order in which servers get a push that an earlier start of the worker has sent to some of
// them.
#include "worker/client/moves/moved_updates.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int32_t kServers = 3;

class Recorder : public wire::ParameterServerNull {
 public:
  Recorder(int32_t server, std::vector<std::string>* calls) : server_(server), calls_(*calls) {}
  void push(wire::PushReply&, const wire::PushRequest& request) override {
    calls_.push_back(absl::StrCat("ps:", server_, request.late ? " late" : ""));
  }
  void step(wire::StepReply&, const wire::StepRequest&) override {
    calls_.push_back(absl::StrCat("ps:", server_, " waits"));
  }

 private:
  const int32_t server_;
  std::vector<std::string>& calls_;
};

class MovedUpdatesTest : public ::testing::Test, private MovedUpdates::Host {
 protected:
  // `had`: by server, the last push of an earlier start.
  MovedUpdatesTest() : sessions_(MakeSessions()) {}

  void Begin(std::vector<int64_t> had, const ResumePoint& point) {
    for (int32_t s = 0; s < kServers; ++s) {
      wire::HelloReply reply;
      reply.state.boot_id = 1;
      reply.state.durable = had[s];
      sessions_[s].Begin(reply, 1, point.last_part[s], point.sequence);
    }
    order_.Reset(point.sequence, "");
    moved_updates_.Begin(point);
  }
  // The worker's calls are steps, which wait for other workers.
  absl::Status Push(bool* moved) {
    std::vector<Exchange> exchanges(kServers);
    std::vector<Exchange*> all;
    for (int32_t s = 0; s < kServers; ++s) {
      exchanges[s].session = &sessions_[s];
      exchanges[s].call.kind = CallKind::kStep;
      exchanges[s].call.request.push.items.resize(1);
      all.push_back(&exchanges[s]);
    }
    const absl::string_view position;
    EXPECT_OK(order_.TakeTurn(Deadline::In(absl::Seconds(10))));
    EXPECT_OK(order_.Number(all, &position));
    const Deadline deadline = Deadline::In(absl::Seconds(10));
    const auto run = [&](absl::Span<Exchange* const> some) {
      return fan_out_.Run(
          some, /*finish_all=*/true, deadline,
          [&](Exchange& exchange) {
            EXPECT_TRUE(order_.Answered(exchange));
            return absl::OkStatus();
          },
          &retries_);
    };
    const absl::Status status = moved_updates_.SendNumbered(all, run, deadline, moved);
    order_.Settle(all, status);
    order_.EndTurn();
    return status;
  }

  std::vector<std::string> calls_;
  absl::Status known_;  // the result of KnowServersOf
  MovedUpdates& moved_updates() { return moved_updates_; }

 private:
  std::vector<std::unique_ptr<ServerSession>> MakeSessions() {
    std::vector<std::unique_ptr<ServerSession>> sessions;
    for (int32_t s = 0; s < kServers; ++s) {
      const std::string name = absl::StrCat("ps:", s);
      services_.push_back(std::make_unique<Recorder>(s, &calls_));
      sessions.push_back(std::make_unique<ServerSession>(
          s, name, InProcessLink(name, services_.back().get()), &identity_));
    }
    return sessions;
  }
  absl::Status CheckOpen(absl::string_view, Deadline) const override { return absl::OkStatus(); }
  absl::Status KnowServersOf(const VariableSpec&, Deadline) override { return known_; }
  void CountRetries(int64_t) override {}

  const ClientIdentity identity_{.job = "job", .worker = 0, .server_count = kServers};
  const FanOut::Limits limits_{absl::Seconds(10), absl::Seconds(10)};
  int64_t retries_ = 0;
  std::vector<std::unique_ptr<Recorder>> services_;
  ServerTable sessions_;
  PushOrder order_{sessions_};
  FanOut fan_out_{&limits_};
  ClientVariableMap variables_;
  MovedUpdates moved_updates_{identity_, sessions_, order_, fan_out_, variables_, *this};
};

// ps:0 has push 5. Its position asks ps:1 for the push, but not ps:2, which now has rows of ps:1.
// If ps:1 got the push before ps:2 has it durably, the next start would assume that all servers
// have it.
TEST_F(MovedUpdatesTest, WhoIsNotAskedForAPushHasItBeforeThoseThatAre) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 0}};
  point.unasked = {{}, {}, {{.after = 4, .through = 5}}};
  Begin({5, 4, 0}, point);
  bool moved = false;
  ASSERT_OK(Push(&moved));
  ASSERT_EQ(calls_.size(), 4u);
  EXPECT_EQ(calls_[0], "ps:0");
  EXPECT_EQ(calls_[1], "ps:2 late");
  EXPECT_THAT(std::vector<std::string>(calls_.begin() + 2, calls_.end()),
              UnorderedElementsAre("ps:1", "ps:2"));
  EXPECT_TRUE(moved) << "no call has waited for others, so the pulls are to follow";
  // No server has the next one.
  calls_.clear();
  moved = false;
  ASSERT_OK(Push(&moved));
  EXPECT_THAT(calls_, UnorderedElementsAre("ps:0 waits", "ps:1 waits", "ps:2 waits"));
  EXPECT_FALSE(moved);
}

// The servers that must have it durably first still go first.
TEST_F(MovedUpdatesTest, APushThatOnlyTheUnaskedLackIsSentAheadToThem) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 0}};
  point.unasked = {{}, {}, {{.after = 0, .through = 5}}};
  Begin({5, 5, 0}, point);
  bool moved = false;
  ASSERT_OK(Push(&moved));
  EXPECT_THAT(std::vector<std::string>(calls_.end() - 2, calls_.end()),
              ElementsAre("ps:2 late", "ps:2"));
}

// A server that every position asks for the push blocks these positions until it has the push.
TEST_F(MovedUpdatesTest, WhoIsAskedForAPushGetsItWithTheOthersThatLackIt) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 4}};
  point.unasked.resize(kServers);
  Begin({5, 4, 4}, point);
  bool moved = false;
  ASSERT_OK(Push(&moved));
  ASSERT_EQ(calls_.size(), 3u);
  EXPECT_EQ(calls_[0], "ps:0");
}

// The address of a server in a map belongs to another server. Each time it is asked, the former
// owner says at once that it no longer has the rows.
TEST_F(MovedUpdatesTest, AMapWhoseServerCannotBeGreetedIsAskedForSeldomAndNamed) {
  VariableSpec map;
  map.name = "w";
  map.shape = {2};
  const absl::Status moved = MovedError("\"w\" has moved", {ToWire(map)});
  known_ = absl::FailedPreconditionError("ps:2 (host:1) of 3 says that it is ps:0 of 1");
  int asked = 0;
  for (const Deadline deadline = Deadline::In(absl::Milliseconds(500)); !deadline.Expired();) {
    moved_updates().LearnMaps(moved, deadline);
    ++asked;
  }
  EXPECT_LE(asked, 8);  // 10 ms, doubling
  EXPECT_EQ(moved_updates().failure(), known_);
  known_ = absl::OkStatus();
  moved_updates().LearnMaps(moved, Deadline::In(absl::Seconds(10)));
  EXPECT_OK(moved_updates().failure());
}

}  // namespace
}  // namespace cairn::test
