// Variables are placed as the contract says, created once even if Create is called repeatedly, and
// never created in two places.
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Create, DealsDenseVariablesAndBucketsOutInTurn) {
  Fleet fleet(3, false);
  const auto client = fleet.Connect();
  ASSERT_OK(client->Create(
      {Dense("a", {4, 2}), Dense("b", {2}), Table("t", 4), Dense("c", {1}), Dense("d", {})},
      Soon()));
  const auto specs = client->Describe(Soon());
  ASSERT_OK(specs);
  ASSERT_EQ(specs->size(), 5u);
  std::map<std::string, VariableSpec> by_name;
  for (const VariableSpec& spec : *specs) by_name[spec.name] = spec;
  EXPECT_EQ(by_name["a"].shards, (std::vector<DenseShard>{{0, 4, 0}}));
  EXPECT_EQ(by_name["b"].shards[0].ps, 1);
  EXPECT_EQ(by_name["c"].shards[0].ps, 2);
  EXPECT_EQ(by_name["d"].shards, (std::vector<DenseShard>{{0, 1, 0}}));
  const std::vector<int32_t>& buckets = by_name["t"].bucket_ps;
  EXPECT_EQ(buckets.size(), 64u);
  for (size_t b = 0; b < buckets.size(); ++b) EXPECT_EQ(buckets[b], static_cast<int32_t>(b % 3));
}

TEST(Create, TakesAPlacementOfTheCallers) {
  Fleet fleet(2, false);
  ClientOptions options = Fleet::Options();
  options.placement = GreedyByBytesPlacement(2);
  const auto client = fleet.Connect(options);
  ASSERT_OK(client->Create({Dense("big", {1000}), Dense("s1", {1}), Dense("s2", {1})}, Soon()));
  const auto specs = client->Describe(Soon());
  ASSERT_OK(specs);
  for (const VariableSpec& spec : *specs) {
    EXPECT_EQ(spec.shards[0].ps, spec.name == "big" ? 0 : 1) << spec.name;
  }
}

TEST(Create, IsIdempotentAndTakesThePlacementThatExists) {
  Fleet fleet(2, false);
  const auto first = fleet.Connect();
  ASSERT_OK(first->Create({Dense("a", {2}), Dense("b", {2})}, Soon()));
  ASSERT_OK(first->Create({Dense("a", {2}), Dense("b", {2})}, Soon()));
  ASSERT_OK(first->Push({Whole("b", {1, 1})}, "", Soon()));
  // In another order: round robin would place b on ps:0, but it exists on ps:1.
  const auto second = fleet.Connect(Fleet::Options(1));
  ASSERT_OK(second->Create({Dense("b", {2}), Dense("a", {2})}, Soon()));
  EXPECT_EQ(PullWhole(*second, "b", 2), (std::vector<float>{-1, -1}));
}

TEST(Create, ShowsWhatDiffersInAConflict) {
  Fleet fleet(2, false);
  const auto client = fleet.Connect();
  ASSERT_OK(client->Create({Dense("a", {2}, {{0, 2, 0}})}, Soon()));
  // Another placement: the client notices it; no single server could.
  EXPECT_THAT(client->Create({Dense("a", {2}, {{0, 2, 1}})}, Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("create \"a\": shards: the job has 2 rows on ps:0, asked for 2 "
                                 "rows on ps:1")));
  // Another shape: the server refuses it.
  EXPECT_THAT(client->Create({Dense("a", {2, 1}, {{0, 2, 0}})}, Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("ps:0"), HasSubstr("exists: "), HasSubstr("wanted: "))));
  // Another shape, to be placed by the client: it must not take the places of the old shape.
  EXPECT_THAT(client->Create({Dense("a", {3})}, Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("create \"a\": ")));
  EXPECT_EQ(fleet.fake(1).calls("create_variables"), 0);
}

TEST(Create, RefusesASpecThatIsNotValidBeforeAnyServerSeesIt) {
  Fleet fleet(1, false);
  const auto client = fleet.Connect();
  EXPECT_THAT(client->Create({Dense("bad name", {2})}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad name")));
  EXPECT_THAT(client->Create({Dense("a", {2}, {{0, 2, 7}})}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("7")));
  EXPECT_EQ(fleet.fake(0).calls("create_variables"), 0);
}

TEST(Create, CutsWhatOneMessageCannotHold) {
  Fleet fleet(1, false);
  fleet.fake(0).max_message_bytes = 1 << 20;
  const auto client = fleet.Connect();
  std::vector<VariableSpec> specs;
  for (int i = 0; i < 1000; ++i) specs.push_back(Dense("v" + std::to_string(i), {1}));
  ASSERT_OK(client->Create(specs, Soon()));
  EXPECT_GT(fleet.fake(0).calls("create_variables"), 1);
  EXPECT_EQ(client->Describe(Soon())->size(), 1000u);
}

TEST(Create, BehindAnotherEndsAtItsDeadlineAndNamesTheOther) {
  Fleet fleet(1, false);
  const auto client = fleet.Connect();
  absl::Notification entered, leave;
  fleet.fake(0).before = [&](absl::string_view method) {
    if (method != "create_variables" || entered.HasBeenNotified()) return;
    entered.Notify();
    leave.WaitForNotificationWithTimeout(absl::Seconds(10));
  };
  std::thread other([&] { EXPECT_OK(client->Create({Dense("slow", {2})}, Soon())); });
  EXPECT_TRUE(entered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_THAT(client->Create({Dense("a", {2})}, Deadline::In(absl::Milliseconds(50))),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("another Create"), HasSubstr("\"slow\""))));
  leave.Notify();
  other.join();
  EXPECT_OK(client->Create({Dense("a", {2})}, Soon()));
}

bool HasLeft(const PsClient& client, int32_t server) {
  const std::vector<int32_t> live = client.servers();
  return std::find(live.begin(), live.end(), server) == live.end();
}

TEST(Create, RefusesAPlaceOnAServerThatHasLeft) {
  Fleet fleet(3, true);
  for (int32_t s = 0; s < 3; ++s) fleet.fake(s).lease_seconds = 3;
  const auto client = fleet.Connect();
  fleet.fake(0).RemoveMember(1);
  for (const Deadline deadline = Soon(); !HasLeft(*client, 1) && !deadline.Expired();) {
    std::this_thread::yield();
  }
  VariableSpec table = Table("t", 2);
  table.bucket_ps = {0, 1, 2, 0};
  for (const VariableSpec& spec : {Dense("a", {4}, {{0, 2, 0}, {2, 2, 1}}), table}) {
    EXPECT_THAT(client->Create({spec}, Soon()),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("ps:1"), HasSubstr("has left"), HasSubstr("ps:0, ps:2"))));
  }
  for (int32_t s = 0; s < 3; ++s) EXPECT_EQ(fleet.fake(s).calls("create_variables"), 0);
  ASSERT_OK(client->Create({Dense("b", {2}), Dense("c", {2}), Table("u", 2)}, Soon()));
  EXPECT_EQ(fleet.fake(1).calls("create_variables"), 0);
}

// ps:1 refuses its part because it is leaving, and the client learns that it has left before the
// answer.
TEST(Create, IsAnErrorWhereAServerLeavesMeanwhile) {
  Fleet fleet(3, true);
  for (int32_t s = 0; s < 3; ++s) fleet.fake(s).lease_seconds = 3;
  std::unique_ptr<PsClient> client;  // set before its call of create_variables
  fleet.fake(1).before = [&](absl::string_view method) {
    if (method != "create_variables") return;
    fleet.fake(0).RemoveMember(1);
    for (const Deadline deadline = Soon(); !HasLeft(*client, 1) && !deadline.Expired();) {
      std::this_thread::yield();
    }
    Refuse(wire::ErrorCode::FAILED_PRECONDITION, wire::ErrorReason::NONE, "leaving");
  };
  client = fleet.Connect();
  EXPECT_THAT(client->Create({Table("t", 2)}, Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ps:1")));
}

TEST(Describe, MakesVariablesOfOtherTasksKnown) {
  Fleet fleet(2, false);
  ASSERT_OK(fleet.Connect()->Create({Dense("a", {2})}, Soon()));
  const auto tool = fleet.Connect(Fleet::Options(-1));
  std::vector<float> out(2);
  EXPECT_THAT(tool->Pull({WholeInto("a", &out)}, Soon()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("Describe")));
  ASSERT_OK(tool->Describe(Soon()));
  EXPECT_OK(tool->Pull({WholeInto("a", &out)}, Soon()));
}

TEST(Scan, VisitsEveryRowOnce) {
  Fleet fleet(3, false);
  const auto client = fleet.Connect();
  ASSERT_OK(client->Create({Table("t", 2), Dense("d", {1})}, Soon()));
  std::vector<int64_t> keys;
  std::vector<float> values;
  for (int64_t key = 0; key < 100; ++key) {
    keys.push_back(key);
    values.push_back(static_cast<float>(key));
    values.push_back(1);
  }
  ASSERT_OK(client->Push({Some("t", Part::kKeys, keys, values)}, "", Soon()));
  std::map<int64_t, float> seen;
  ASSERT_OK(client->Scan(
      "t",
      [&](int64_t key, absl::Span<const std::byte> row) {
        ASSERT_EQ(row.size(), 8u);
        float first;
        std::memcpy(&first, row.data(), sizeof first);
        EXPECT_TRUE(seen.emplace(key, first).second) << key;
      },
      Soon()));
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen[42], -42);
  EXPECT_THAT(client->Scan("d", {}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dense")));
  EXPECT_THAT(client->Scan("t", nullptr, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("function is null")));
}

TEST(DropJob, DuringAHeartbeatEndsAtItsDeadlineAndSaysSo) {
  Fleet fleet(1, false);
  fleet.fake(0).lease_seconds = 0.3;
  absl::Notification entered, leave;
  fleet.fake(0).before = [&](absl::string_view method) {
    if (method != "heartbeat" || entered.HasBeenNotified()) return;
    entered.Notify();
    leave.WaitForNotificationWithTimeout(absl::Seconds(10));
  };
  const auto client = fleet.Connect();
  ASSERT_TRUE(entered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_THAT(
      client->DropJob(Deadline::In(absl::Milliseconds(50))),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("1 heartbeats of worker:0"), HasSubstr("nothing was dropped"))));
  EXPECT_EQ(fleet.fake(0).calls("drop_job"), 0);
  leave.Notify();
  EXPECT_OK(client->DropJob(Soon()));
}

TEST(DropJob, ForgetsEverythingAndStartsOver) {
  Fleet fleet(2, false);
  const auto client = fleet.Connect();
  ASSERT_OK(client->Create({Dense("a", {2}), Dense("b", {2})}, Soon()));
  ASSERT_OK(client->Push({Whole("a", {1, 1}), Whole("b", {1, 1})}, "p", Soon()));
  ASSERT_OK(client->DropJob(Soon()));
  EXPECT_EQ(client->position(), "");
  EXPECT_TRUE(client->Describe(Soon())->empty());
  // After the drop another shape is no conflict, and numbers start at 1.
  ASSERT_OK(client->Create({Dense("a", {3})}, Soon()));
  ASSERT_OK(client->Push({Whole("a", {1, 1, 1})}, "p", Soon()));
  EXPECT_EQ(fleet.fake(0).applied(0), 1);
}

}  // namespace
}  // namespace cairn::test
