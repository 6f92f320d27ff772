// The order in which servers get a push that an earlier start of the worker has sent to some of
// them.
#include "worker/client/moves/deliverer.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int32_t kServers = 3;

// Not a std::exception: links turn those into errors. Stands for a std::bad_alloc of the client.
struct Thrown {};

wire::Member MemberAt(int32_t server, const std::string& address) {
  wire::Member member;
  member.index = server;
  member.address = address;
  return member;
}

// A list that has only the server `last`.
wire::Members MembersUpTo(int32_t last, const std::string& address = "host:1") {
  wire::Members members;
  members.version = 1;
  members.server_count = last + 1;
  members.members.push_back(MemberAt(last, address));
  return members;
}

class Recorder : public wire::ParameterServerNull {
 public:
  Recorder(int32_t server, std::vector<std::string>* calls) : server_(server), calls_(*calls) {}
  void push(wire::PushReply& reply, const wire::PushRequest& request) override {
    if (throws_) throw Thrown{};
    if (before_push) before_push(request);
    reply.items.resize(request.items.size());
    calls_.push_back(absl::StrCat("ps:", server_, request.late ? " late" : ""));
  }
  void step(wire::StepReply& reply, const wire::StepRequest& request) override {
    if (throws_) throw Thrown{};
    reply.push.items.resize(request.push.items.size());
    calls_.push_back(absl::StrCat("ps:", server_, " waits"));
  }
  void members(wire::Members& members, const wire::Caller&) override { members = told; }

  void Throw(bool throws) { throws_ = throws; }

  std::function<void(const wire::PushRequest&)> before_push;  // may throw
  // By default a server that is not in the table yet has joined.
  wire::Members told = MembersUpTo(kServers);

 private:
  const int32_t server_;
  std::vector<std::string>& calls_;
  bool throws_ = false;
};

// In process, to a server that a test can make unreachable for good.
class CuttableLink : public ServerLink {
 public:
  CuttableLink(std::string name, wire::ParameterServerIf* service, const bool* cut)
      : link_(InProcessLink(std::move(name), service)), cut_(*cut) {}
  Outcome Take(Deadline deadline, Channel** channel) override {
    if (cut_) return {Progress::kNotSent, absl::PermissionDeniedError("cut")};
    return link_->Take(deadline, channel);
  }
  void Release(Channel* channel) override { link_->Release(channel); }
  void Discard(Channel* channel) override { link_->Discard(channel); }
  bool in_process() const override { return true; }

 private:
  const std::unique_ptr<ServerLink> link_;
  const bool& cut_;
};

class DelivererTest : public ::testing::Test {
 protected:
  DelivererTest() : sessions_(MakeSessions()) {
    VariableSpec spec;
    spec.name = "w";
    spec.shape = {kServers};
    spec.optimizer.type = "sgd";
    for (int32_t s = 0; s < kServers; ++s) spec.shards.push_back({.rows = 1, .ps = s});
    variables_.Insert(std::move(spec));
  }

  // `had`: by server, the last push of an earlier start.
  void Begin(std::vector<int64_t> had, const ResumePoint& point) {
    for (int32_t s = 0; s < kServers; ++s) {
      wire::HelloReply reply;
      reply.state.boot_id = 1;
      reply.state.durable = had[s];
      sessions_[s].Begin(reply, 1, point.last_part[s], point.sequence);
    }
    order_.Reset(point.sequence, "");
    deliverer_.Begin(point);
  }
  // The worker's calls are steps, which wait for other workers.
  absl::Status Push(bool* moved) {
    const float values[kServers] = {};
    DataPlan plan(sessions_, limits_of_plans_);
    EXPECT_OK(plan.AddPush(variables_.Find("w"),
                           {.variable = "w", .values = AsBytes(absl::MakeConstSpan(values))}));
    plan.BeginStep(1, /*everywhere=*/true);
    const absl::string_view position;
    return deliverer_.Deliver(plan, /*updates=*/true, &position, Deadline::In(absl::Seconds(10)),
                              moved);
  }

  // A push with a part on ps:1 only, by the first map.
  absl::Status PushToOne() {
    if (variables_.Find("one") == nullptr) variables_.Insert(MapOfOne(0, 1));
    const float value = 0;
    DataPlan plan(sessions_, limits_of_plans_);
    EXPECT_OK(plan.AddPush(variables_.Find("one"),
                           {.variable = "one", .values = AsBytes(absl::MakeConstSpan(&value, 1))}));
    const absl::string_view position;
    bool moved = false;
    return deliverer_.Deliver(plan, /*updates=*/true, &position, Deadline::In(absl::Seconds(10)),
                              &moved);
  }
  static VariableSpec MapOfOne(int64_t version, int32_t server) {
    VariableSpec map;
    map.name = "one";
    map.shape = {1};
    map.optimizer.type = "sgd";
    map.map_version = version;
    map.shards = {{.rows = 1, .ps = server}};
    return map;
  }
  void Cut(int32_t server) { cut_[server] = true; }

  std::vector<std::string> calls_;
  absl::Status reached_;  // of servers that join
  bool reaching_throws_ = false;
  Membership& membership() { return membership_; }
  MapFollower& maps() { return maps_; }
  const ClientGate& gate() const { return gate_; }
  Recorder& service(int32_t server) { return *services_[server]; }

 private:
  std::vector<std::unique_ptr<ServerSession>> MakeSessions() {
    std::vector<std::unique_ptr<ServerSession>> sessions;
    for (int32_t s = 0; s < kServers; ++s) {
      const std::string name = absl::StrCat("ps:", s);
      services_.push_back(std::make_unique<Recorder>(s, &calls_));
      sessions.push_back(std::make_unique<ServerSession>(
          s, name, std::make_unique<CuttableLink>(name, services_.back().get(), &cut_[s]),
          &identity_));
    }
    return sessions;
  }
  ReachServer Reach() {
    return [this](int32_t server, const std::string&) -> absl::StatusOr<ReachedServer> {
      if (reaching_throws_) throw Thrown{};
      RETURN_IF_ERROR(reached_);
      return ReachedServer{absl::StrCat("ps:", server), InProcessLink("", services_[0].get())};
    };
  }

  const ClientIdentity identity_{
      .job = "job", .worker = 0, .server_count = kServers, .ps_wait = absl::Seconds(10)};
  const FanOut::Limits limits_{absl::Seconds(10), absl::Seconds(10)};
  PlanLimits limits_of_plans_{1 << 20, 1000, 1000};
  bool cut_[kServers] = {};
  std::vector<std::unique_ptr<Recorder>> services_;
  ServerTable sessions_;
  PushOrder order_{sessions_};
  FanOut fan_out_{&limits_};
  ClientVariableMap variables_;
  ClientGate gate_{identity_};
  ServerCalls calls_of_servers_{identity_, limits_, fan_out_, sessions_};
  Retention retention_{0};
  RetentionGate retention_gate_{identity_, retention_, sessions_, order_, calls_of_servers_};
  Membership::Flags flags_;
  Membership membership_{identity_, Reach(),          sessions_, order_,           variables_,
                         flags_,    limits_of_plans_, fan_out_,  calls_of_servers_};
  MapFollower maps_{identity_, sessions_, variables_, membership_, gate_};
  UpdateReplanner replanner_{sessions_, order_, variables_};
  StalenessCounter staleness_;
  Deliverer deliverer_{{identity_, sessions_, order_, fan_out_, maps_, replanner_, gate_,
                        retention_gate_, staleness_}};
};

// ps:0 has push 5. Its position asks ps:1 for the push, but not ps:2, which now has rows of ps:1.
// If ps:1 got the push before ps:2 has it durably, the next start would assume that all servers
// have it.
TEST_F(DelivererTest, WhoIsNotAskedForAPushHasItBeforeThoseThatAre) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 0}};
  point.assumed_complete = {{}, {}, {{.after = 4, .through = 5}}};
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
TEST_F(DelivererTest, APushThatOnlyTheUnaskedLackIsSentAheadToThem) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 0}};
  point.assumed_complete = {{}, {}, {{.after = 0, .through = 5}}};
  Begin({5, 5, 0}, point);
  bool moved = false;
  ASSERT_OK(Push(&moved));
  EXPECT_THAT(std::vector<std::string>(calls_.end() - 2, calls_.end()),
              ElementsAre("ps:2 late", "ps:2"));
}

// A server that every position asks for the push blocks these positions until it has the push.
TEST_F(DelivererTest, WhoIsAskedForAPushGetsItWithTheOthersThatLackIt) {
  ResumePoint point{.sequence = 4, .last_part = {4, 4, 4}};
  point.assumed_complete.resize(kServers);
  Begin({5, 4, 4}, point);
  bool moved = false;
  ASSERT_OK(Push(&moved));
  ASSERT_EQ(calls_.size(), 3u);
  EXPECT_EQ(calls_[0], "ps:0");
}

// The servers before the one that threw have the push, so its number must not be given to another.
TEST_F(DelivererTest, APushDuringWhichSomethingThrowsIsFollowedByNoOther) {
  Begin({4, 4, 4}, {.sequence = 4, .last_part = {4, 4, 4}});
  bool moved = false;
  ASSERT_OK(Push(&moved));
  service(1).Throw(true);
  EXPECT_THROW(Push(&moved).IgnoreError(), Thrown);
  service(1).Throw(false);
  calls_.clear();
  EXPECT_THAT(Push(&moved), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("unknown which servers have push 6")));
  EXPECT_THAT(calls_, IsEmpty());
}

// ps:2 has the rows and the number, which ps:1 has only refused. Another push with this number
// would be a repeated one for ps:2.
TEST_F(DelivererTest, APushWhoseRowsMovedIsFollowedByNoOtherIfItsServerIsLost) {
  Begin({4, 4, 4}, {.sequence = 4, .last_part = {4, 4, 4}});
  service(1).before_push = [](const wire::PushRequest&) {
    throw ToServerError(MovedError("\"one\" has moved", {ToWire(MapOfOne(1, 2))}));
  };
  service(2).before_push = [this](const wire::PushRequest&) { Cut(1); };
  EXPECT_THAT(PushToOne(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("cut")));
  EXPECT_THAT(calls_, ElementsAre("ps:2 late"));
  calls_.clear();
  EXPECT_THAT(PushToOne(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("unknown which servers have push 5")));
  EXPECT_THAT(calls_, IsEmpty());
}

// The address of a server in a map belongs to another server. Each time it is asked, the former
// owner says at once that it no longer has the rows.
TEST_F(DelivererTest, AMapWhoseServerCannotBeGreetedIsAskedForSeldomAndNamed) {
  VariableSpec map;
  map.name = "w";
  map.shape = {2};
  map.map_version = 1;
  map.shards = {{.rows = 2, .ps = kServers}};
  const absl::Status moved = MovedError("\"w\" has moved", {ToWire(map)});
  reached_ = absl::FailedPreconditionError("ps:3 (host:1) of 4 says that it is ps:0 of 1");
  int asked = 0;
  for (const Deadline deadline = Deadline::In(absl::Milliseconds(500)); !deadline.Expired();) {
    maps().Learn(moved, deadline);
    ++asked;
  }
  EXPECT_LE(asked, 8);  // 10 ms, doubling
  EXPECT_EQ(gate().map_failure(), reached_);
  map.shards[0].ps = 0;
  maps().Learn(MovedError("\"w\" has moved", {ToWire(map)}), Deadline::In(absl::Seconds(10)));
  EXPECT_OK(gate().map_failure());
}

// The list comes from a server that the client may not trust with its memory.
TEST_F(DelivererTest, AListOfServersThatCannotBeIsRefused) {
  const auto refresh = [this] { return membership().Refresh(Deadline::In(absl::Seconds(10))); };
  const auto refused = [](absl::string_view why) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(std::string(why)));
  };
  service(0).told = MembersUpTo(50'000);
  EXPECT_THAT(refresh(), refused("at most 1024")) << "a server far beyond the others";
  service(0).told = MembersUpTo(kServers, "");
  EXPECT_THAT(refresh(), refused("no address")) << "a new server without an address";
  service(0).told = MembersUpTo(kServers);
  service(0).told.members.clear();
  for (int32_t s = kServers; s <= kMaxServers; ++s) {
    wire::Member left = MemberAt(s, "host:1");
    left.left = true;
    service(0).told.members.push_back(left);
  }
  service(0).told.server_count = kMaxServers + 1;
  EXPECT_THAT(refresh(), refused("at most 1024")) << "more servers than slots";
  service(0).told.members.pop_back();
  EXPECT_OK(refresh());
}

TEST_F(DelivererTest, AnExceptionDuringAChangeOfTheServersDoesNotEndLaterChanges) {
  reaching_throws_ = true;
  EXPECT_THROW(membership().Refresh(Deadline::In(absl::Seconds(10))).IgnoreError(), Thrown);
  reaching_throws_ = false;
  reached_ = absl::FailedPreconditionError("reached");
  EXPECT_EQ(membership().Refresh(Deadline::In(absl::Milliseconds(200))), reached_);
}

TEST_F(DelivererTest, ADeadlineThatPassesWhileRowsMoveDoesNotSayThatNothingWasSent) {
  const Deadline past = Deadline::In(absl::ZeroDuration());
  EXPECT_THAT(gate().Check("push", past),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("nothing was sent")));
  EXPECT_THAT(gate().Check("push", past, ClientGate::kRowsMove),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("may have arrived")));
}

}  // namespace
}  // namespace cairn::test
