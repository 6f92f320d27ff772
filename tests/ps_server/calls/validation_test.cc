// Bad requests: which are refused, with which messages, and that nothing was applied.
#include <cmath>
#include <limits>

#include "ps_server/core/statistics.h"
#include "ps_server/engine/engine.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ValidationTest : public ServerTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start());
    TestClient client = Client();
    ASSERT_OK(client.Create({DenseSpec("dense/kernel", {2, 2}, WireOptimizer("sgd", 1)),
                             DenseSpec("bias", {2}, WireOptimizer("sgd", 1)),
                             TableSpec("emb/user", 2, WireOptimizer("sgd", 1))}));
  }

  absl::StatusOr<wire::PushReply> Push(const wire::PushItem& item) { return Client().Send(item); }
};

TEST_F(ValidationTest, UnknownVariableNamesTheNearest) {
  EXPECT_THAT(Push(WholeItem("dense/kernal", {1})),
              StatusIs(StatusCode::kNotFound, HasSubstr("did you mean 'dense/kernel'?")));
  EXPECT_THAT(Client().Pull("bais"),
              StatusIs(StatusCode::kNotFound, HasSubstr("pull \"bais\" on ps:0")));
}

TEST_F(ValidationTest, UnknownSlotListsTheSlots) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("w", {1}, WireOptimizer("adam", 1))}));
  EXPECT_THAT(client.Pull("w", "velocty"),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("did you mean 'velocity'?); it has momentum, velocity")));
}

TEST_F(ValidationTest, WrongSizesAreRefusedWithBoth) {
  EXPECT_THAT(Push(WholeItem("bias", {1, 2, 3})),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("values have 12 bytes, expected 8 (2 rows x 1 float32)")));
  EXPECT_THAT(Push(IdItem("emb/user", wire::Selection::KEYS, {1}, {1})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("values have 4 bytes, expected 8")));
}

TEST_F(ValidationTest, WrongDtypeIsRefusedWithBoth) {
  wire::PushItem item = WholeItem("bias", {1, 2});
  item.dtype = wire::DType::FLOAT64;
  EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("values are float64, the variable is float32")));
  item.dtype = static_cast<wire::DType::type>(99);
  EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument, HasSubstr("field dtype is 99")));
}

TEST_F(ValidationTest, WrongSelectionIsRefused) {
  EXPECT_THAT(Push(IdItem("bias", wire::Selection::KEYS, {1}, {1})),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("selection is KEYS; a dense variable takes WHOLE or ROWS")));
  EXPECT_THAT(Push(WholeItem("emb/user", {1, 2})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("an embedding takes KEYS")));
  wire::PushItem item = WholeItem("bias", {1, 2});
  item.selection = static_cast<wire::Selection::type>(77);
  EXPECT_THAT(Push(item),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("field selection is 77")));
}

TEST_F(ValidationTest, IdsOutOfRangeOrMalformedAreRefused) {
  for (const int64_t id : {int64_t{2}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                           std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Push(IdItem("bias", wire::Selection::ROWS, {0, id}, {1, 1})),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("is outside [0, 2)")));
  }
  wire::PushItem item = IdItem("bias", wire::Selection::ROWS, {}, {});
  item.ids = Payload::Copy("1234567", 7);
  EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no multiple of 8")));
  item = WholeItem("bias", {1, 2});
  item.ids = PayloadOf<int64_t>({0});
  EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("with selection WHOLE there are none")));
}

// A request beyond a limit is rejected here too, and is a call in the metrics.
TEST_F(ValidationTest, RejectedRequestsAreCounted) {
  wire::PushItem item = WholeItem("bias", {1, 2});
  item.shard = -1;
  EXPECT_THAT(Push(item),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("items[0]: field shard is -1")));
  int64_t rejected = 0;
  for (const RpcStatistics& rpc : engine().ReadStatistics(StatisticsDetail::kMetrics).rpcs) {
    if (rpc.method == "push" && rpc.outcome == StatusCode::kInvalidArgument) {
      rejected += rpc.seconds.count;
    }
  }
  EXPECT_EQ(rejected, 1);
}

TEST_F(ValidationTest, ShardOutOfRangeIsRefused) {
  for (const int32_t shard : {1, std::numeric_limits<int32_t>::max()}) {
    wire::PushItem item = WholeItem("bias", {1, 2});
    item.shard = shard;
    EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is outside [0, 1)")));
  }
}

// The second item is wrong: the first must neither be applied nor count.
TEST_F(ValidationTest, OneBadItemLeavesAllOthersUntouched) {
  TestClient client = Client();
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(WholeItem("bias", {1, 2}));
  request.items.push_back(IdItem("emb/user", wire::Selection::KEYS, {3}, {1, 2}));
  request.items.push_back(WholeItem("dense/kernel", {1}));
  EXPECT_FALSE(client.Send(request).ok());
  EXPECT_THAT(*client.Pull("bias"), ElementsAre(0, 0));
  absl::StatusOr<wire::DescribeReply> described = client.Describe();
  ASSERT_OK(described);
  for (const wire::VariableInfo& info : described->variables) {
    EXPECT_EQ(info.shards[0].version, 0) << info.spec.name;
  }
  EXPECT_EQ(described->counters["rows_made"], 0);
  EXPECT_EQ(described->counters["pushes_refused"], 1);
}

TEST_F(ValidationTest, OneShardTwiceInAPushIsRefused) {
  TestClient client = Client();
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(WholeItem("bias", {1, 2}));
  request.items.push_back(WholeItem("bias", {1, 2}));
  EXPECT_THAT(client.Send(request),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("names shard 0 of \"bias\" twice")));
}

TEST_F(ValidationTest, NotFiniteIsRejectedInEveryDtypeAndCounted) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    const absl::Status status = Push(WholeItem("bias", {1, bad})).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("NaN or infinity")));
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::NOT_FINITE);
  }
  TestClient client = Client();
  for (const auto& [name, dtype, bits] : {std::tuple{"f16", wire::DType::FLOAT16, 0x7c00},
                                          std::tuple{"bf16", wire::DType::BFLOAT16, 0xff80}}) {
    wire::VariableSpec spec = DenseSpec(name, {1}, WireOptimizer("sgd", 1));
    spec.dtype = dtype;
    ASSERT_OK(client.Create({spec}));
    wire::PushItem item = WholeItem(name, {});
    item.dtype = dtype;
    item.values = PayloadOf<uint16_t>({static_cast<uint16_t>(bits)});
    EXPECT_EQ(ReasonOf(Push(item).status()), wire::ErrorReason::NOT_FINITE) << name;
  }
  EXPECT_THAT(*client.Pull("bias"), ElementsAre(0, 0));
  EXPECT_EQ(client.Describe()->counters["not_finite"], 5);
}

TEST_F(ValidationTest, NotFiniteIsSkippedWhereThePolicySaysSo) {
  options_.not_finite = NotFinitePolicy::kSkip;
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Client();
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(WholeItem("bias", {1, 2}));
  request.items.push_back(WholeItem("dense/kernel", {1, 2, 3, std::nanf("")}));
  const auto reply = client.Send(request);
  ASSERT_OK(reply);
  EXPECT_EQ(reply->items.size(), 2u);
  EXPECT_THAT(*client.Pull("bias"), ElementsAre(0, 0));
  EXPECT_EQ(client.Describe()->counters["not_finite"], 1);
}

TEST_F(ValidationTest, CreateIsIdempotentAndAConflictShowsTheDifference) {
  TestClient client = Client();
  EXPECT_OK(client.Create({DenseSpec("bias", {2}, WireOptimizer("sgd", 1))}));
  const absl::Status status = client.Create({DenseSpec("fresh", {1}, WireOptimizer("sgd", 1)),
                                             DenseSpec("bias", {3}, WireOptimizer("sgd", 1))});
  EXPECT_THAT(status, StatusIs(StatusCode::kAlreadyExists,
                               HasSubstr("shape: the job has [2], asked for [3]")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::SPEC_CONFLICT);
  EXPECT_FALSE(client.Pull("fresh").ok());  // no variable of the list is created
}

TEST_F(ValidationTest, JobsDoNotSeeEachOther) {
  TestClient other = Client();
  other.caller().job = "other";
  EXPECT_FALSE(other.Pull("bias").ok());
  ASSERT_OK(other.Create({DenseSpec("bias", {3}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(other.Push("bias", {1, 1, 1}));
  EXPECT_THAT(*Client().Pull("bias"), ElementsAre(0, 0));
}

TEST_F(ValidationTest, MalformedCallersAreRefused) {
  for (const std::string& job : {std::string(), std::string(257, 'a'), std::string("a/b"),
                                 std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    TestClient client = Client();
    client.caller().job = job;
    EXPECT_THAT(client.Pull("bias"),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("field caller.job")));
  }
  TestClient client = Client(-2);
  EXPECT_THAT(client.Pull("bias"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is -2")));
}

// A job that nobody has created, or that has been dropped since.
TEST_F(ValidationTest, CallsOnUnknownJobsWithEveryFieldSetAreAnswered) {
  TestClient client = Client(-1);
  client.caller().job = "nobody";
  wire::PushRequest push;
  push.caller = client.caller();
  push.decisions.emplace_back();
  push.decisions.back().step = 1;
  wire::PushReply pushed;
  ASSERT_OK(CallStatus([&] { service().push(pushed, push); }));
  wire::PullRequest pull;
  pull.caller = client.caller();
  pull.decisions = push.decisions;
  pull.step = 1;
  wire::PullReply pulled;
  CallStatus([&] { service().pull(pulled, pull); }).IgnoreError();
  for (int action = 0; action < 16; ++action) {
    wire::MoveRequest move;
    move.caller = client.caller();
    move.variable = "bias";
    move.action = static_cast<wire::MoveAction::type>(action);
    move.target = 1;
    move.map_version = 2;
    wire::MoveReply moved;
    EXPECT_FALSE(CallStatus([&] { service().move(moved, move); }).ok()) << action;
  }
}

TEST_F(ValidationTest, DroppedJobIsGoneAlsoAfterARestart) {
  TestClient worker = Joined(0);
  ASSERT_OK(worker.Push("bias", {1, 1}));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, worker.caller()); }));
  EXPECT_FALSE(worker.Pull("bias").ok());
  options_.wall_clock = [] { return absl::Now() + absl::Seconds(1); };
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_FALSE(Client().Pull("bias").ok());
  TestClient again = Client(0);
  const auto hello = again.Hello();
  ASSERT_OK(hello);
  EXPECT_GT(hello->incarnation, worker.caller().incarnation);
  EXPECT_EQ(hello->state.applied, 0);
  ASSERT_OK(again.Create({DenseSpec("bias", {1}, WireOptimizer("sgd", 1))}));
  EXPECT_THAT(*again.Pull("bias"), ElementsAre(0));
}

TEST_F(ValidationTest, StoppedEngineRefusesCallsWithStopping) {
  ASSERT_OK(engine().Close());
  const absl::Status status = Client().Pull("bias").status();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING);
}

}  // namespace
}  // namespace cairn
