// What survives, by durability: a clean restart keeps every bit, a crash keeps the last snapshot.
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/hash.h"
#include "common/timeline.h"
#include "storage/stripe_store.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PersistenceTest : public ServerTest {
 protected:
  void SetUp() override { options_.snapshot_interval = absl::Hours(1); }

  // Creates variables of each kind and pushes gradients that have no short decimal form.
  void MakeAndMove(TestClient& client) {
    wire::VariableSpec f64 = DenseSpec("f64", {3}, WireOptimizer("adam", 0.01));
    f64.dtype = wire::DType::FLOAT64;
    wire::VariableSpec f16 = DenseSpec("f16", {70000}, WireOptimizer("adagrad", 0.1));
    f16.dtype = wire::DType::FLOAT16;
    f16.initializer.type = "normal";
    wire::VariableSpec normal = DenseSpec("dense", {300, 400}, WireOptimizer("nadam", 0.01));
    normal.initializer.type = "normal";
    ASSERT_OK(client.Create({normal, f64, f16, TableSpec("t", 5, WireOptimizer("adam", 0.1)),
                             DenseSpec("untouched", {7}, WireOptimizer("adam", 1))}));
    for (int step = 1; step <= 3; ++step) {
      wire::PushRequest request = client.NextRequest();
      request.items.push_back(
          WholeItem("dense", std::vector<float>(120000, 1.0f / static_cast<float>(step + 2))));
      std::vector<int64_t> keys;
      for (int64_t key = 0; key < 3000; ++key) keys.push_back(key * key * step);
      request.items.push_back(
          IdItem("t", wire::Selection::KEYS, keys, std::vector<float>(15000, 0.3f)));
      request.items.push_back(WholeItem("f64", {}));
      request.items.back().dtype = wire::DType::FLOAT64;
      request.items.back().values = PayloadOf<double>({1.0 / 3, 1.0 / 7, 1e-300});
      request.items.push_back(IdItem("f16", wire::Selection::ROWS, {69999, 3}, {}));
      request.items.back().dtype = wire::DType::FLOAT16;
      request.items.back().values = PayloadOf<uint16_t>({0x3555, 0x2e66});
      ASSERT_OK(client.Send(request));
    }
  }

  // Returns every value and slot, as bytes, and every version.
  static std::vector<std::string> Everything(TestClient& client) {
    std::vector<std::string> all;
    const absl::StatusOr<wire::DescribeReply> described = client.Describe();
    EXPECT_OK(described);
    for (const wire::VariableInfo& info : described->variables) {
      std::vector<std::string> parts = info.slots;
      parts.insert(parts.begin(), "");
      for (const std::string& slot : parts) {
        wire::PullItem item;
        item.variable = info.spec.name;
        item.slot = slot;
        if (info.spec.kind == wire::VariableKind::EMBEDDING) {
          item.selection = wire::Selection::KEYS;
          std::vector<int64_t> keys;
          for (int64_t key = 0; key < 40000; ++key) keys.push_back(key);
          item.ids = PayloadOf(keys);
        }
        const absl::StatusOr<wire::PulledItem> pulled = client.PullItem(item);
        EXPECT_OK(pulled);
        all.push_back(absl::StrCat(item.variable, "/", slot, " version ", pulled->version, " rows ",
                                   info.shards[0].rows, " ",
                                   std::string(reinterpret_cast<const char*>(pulled->values.data()),
                                               pulled->values.size())));
      }
    }
    return all;
  }
};

TEST_F(PersistenceTest, ACleanRestartRestoresEveryBitUnderEveryDurability) {
  for (const Durability durability :
       {Durability::kOff, Durability::kSnapshot, Durability::kLog, Durability::kLogSync}) {
    options_.durability = durability;
    options_.directory = folder_.Join(std::string(DurabilityName(durability)));
    ASSERT_NO_FATAL_FAILURE(Start());
    TestClient client = Joined(0);
    ASSERT_NO_FATAL_FAILURE(MakeAndMove(client));
    const std::vector<std::string> before = Everything(client);
    ASSERT_NO_FATAL_FAILURE(Restart());
    TestClient tool = Client();
    EXPECT_EQ(Everything(tool), before) << DurabilityName(durability);
    TestClient again = Client(0);
    EXPECT_EQ(again.Hello()->state.durable, 3) << DurabilityName(durability);
  }
}

TEST_F(PersistenceTest, TrainingAfterARestartGivesTheSameValuesAsWithoutIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto spec = DenseSpec("w", {4}, WireOptimizer("adam", 0.1));
  ASSERT_OK(Client().Create({spec}));
  TestClient through = Client();
  through.caller().job = "through";
  ASSERT_OK(through.Create({spec}));
  for (int step = 0; step < 4; ++step) {
    const float g = static_cast<float>(step) - 1.3f;
    ASSERT_OK(Client().Push("w", {g, 2 * g, -g, 1}));
    if (step == 1) {
      ASSERT_NO_FATAL_FAILURE(Restart());
    }
  }
  TestClient whole = Client();
  whole.caller().job = "through";
  for (int step = 0; step < 4; ++step) {
    const float g = static_cast<float>(step) - 1.3f;
    ASSERT_OK(whole.Push("w", {g, 2 * g, -g, 1}));
  }
  EXPECT_EQ(*Client().Pull("w"), *whole.Pull("w"));
}

TEST_F(PersistenceTest, AnAcknowledgedPushSurvivesACrashUnderLogAndLogSync) {
  for (const Durability durability : {Durability::kLog, Durability::kLogSync}) {
    options_.durability = durability;
    options_.directory = folder_.Join(std::string(DurabilityName(durability)));
    ASSERT_NO_FATAL_FAILURE(Start());
    TestClient client = Joined(0);
    ASSERT_NO_FATAL_FAILURE(MakeAndMove(client));
    const std::vector<std::string> before = Everything(client);
    ASSERT_NO_FATAL_FAILURE(StartFromCopy());
    TestClient tool = Client();
    EXPECT_EQ(Everything(tool), before) << DurabilityName(durability);
  }
}

TEST_F(PersistenceTest, UnderLogDurableEqualsAppliedInTheReply) {
  options_.durability = Durability::kLog;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    EXPECT_EQ(client.Push("w", {1})->state.durable, sequence);
  }
}

// After a crash between snapshots the server has the state of the last one and says so; the worker
// resends the rest.
TEST_F(PersistenceTest, ACrashUnderSnapshotReturnsToTheLastSnapshotAndAsksForReplay) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create(
      {DenseSpec("w", {2}, WireOptimizer("sgd", 1)), TableSpec("t", 1, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.Push("w", {1, 1}));
  EXPECT_EQ(client.Flush()->durable, 1);
  const auto second = client.Push("w", {1, 1});
  ASSERT_OK(second);
  EXPECT_EQ(second->state.applied, 2);
  EXPECT_EQ(second->state.durable, 1);
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-1, -1));

  TestClient back = Client(0);
  EXPECT_EQ(back.Hello(client.caller().incarnation)->state.applied, 1);
  back.sequence = 2;
  EXPECT_EQ(ReplayAfterOf(back.Push("w", {1, 1}).status()), 1);
  back.sequence = 1;
  ASSERT_OK(back.Push("w", {1, 1}));
  ASSERT_OK(back.Push("w", {1, 1}));
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-3, -3));
  EXPECT_EQ(Client().Describe()->variables[1].shards[0].version, 3);
}

// An interrupted snapshot: some stripes are ahead of the published sequence. Replay must apply each
// part once and count the update once. The test simulates this by writing the rows of some stripes
// to the store while the server is down.
TEST_F(PersistenceTest, ReplayAppliesEachPartOnceEvenIfSomeStripesAreAhead) {
  options_.durability = Durability::kLog;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.bucket_ps.assign(64, 0);  // enough that no two of these keys share a stripe
  ASSERT_OK(client.Create({spec}));
  ASSERT_OK(client.PushKeys("t", {1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}));
  ASSERT_NO_FATAL_FAILURE(Stop());
  int ahead = 0;
  {
    // Sequence 2 reached some stripes, but its snapshot was never published.
    absl::StatusOr<std::unique_ptr<StripeStore>> store =
        StripeStore::Open({.directory = options_.directory});
    ASSERT_OK(store);
    for (const int64_t key : {2, 4}) {
      const StripeId id{.variable = 1, .shard = 0, .stripe = BucketOfKey(key, 64)};
      const std::unique_ptr<StripeBatch> batch = (*store)->NewBatch(id);
      const Watermark mark{.worker = 0, .sequence = 2};
      batch->SetWatermarks({mark});
      std::string row(8, '\0');
      const float value = -2;
      std::memcpy(row.data() + 4, &value, sizeof(value));
      batch->PutRow(key, row);
      ASSERT_OK((*store)->Write(*batch));
      ++ahead;
    }
    ASSERT_OK((*store)->Close());
  }
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient back = Client(0);
  EXPECT_EQ(back.Hello(client.caller().incarnation)->state.applied, 1);
  const auto replayed = back.PushKeys("t", {1, 2, 3, 4, 5}, {1, 1, 1, 1, 1});
  ASSERT_OK(replayed);
  EXPECT_EQ(ahead, 2);
  EXPECT_FALSE(replayed->repeated);
  EXPECT_EQ(replayed->items[0].version, 2);
  EXPECT_THAT(*back.PullKeys("t", {1, 2, 3, 4, 5}), Each(-2.0f));
}

// Workers with a watermark in any stripe or shard of variable 1 of a closed store.
std::set<int32_t> MarkedWorkers(const std::string& directory) {
  class Marks : public StripeVisitor {
   public:
    absl::Status Header(const StripeId&, absl::Span<const Watermark> marks) override {
      for (const Watermark& mark : marks) workers.insert(mark.worker);
      return absl::OkStatus();
    }
    absl::Status Image(const StripeId&, absl::string_view) override { return absl::OkStatus(); }
    absl::Status Rows(const StripeId&, const StoredRows&) override { return absl::OkStatus(); }
    std::set<int32_t> workers;
  };
  Marks marks;
  const auto store = StripeStore::OpenReadOnly({.directory = directory});
  EXPECT_OK(store);
  if (!store.ok()) return {};
  EXPECT_OK((*store)->LoadStripes(1, marks));
  const auto shards = (*store)->Shards();
  EXPECT_OK(shards);
  for (const ShardRecord& shard : *shards) {
    for (const Watermark& mark : shard.watermarks) marks.workers.insert(mark.worker);
  }
  return marks.workers;
}

TEST_F(PersistenceTest, ADepartedWorkerLeavesNoWatermarksButItsPushesAreStillRecognized) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient gone = Joined(0);
  TestClient here = Joined(1);
  ASSERT_OK(gone.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(gone.Push("w", {1, 1}));
  ASSERT_OK(here.Push("w", {1, 1}));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().leave(state, gone.caller()); }));
  ASSERT_OK(here.Push("w", {1, 1}));
  ASSERT_NO_FATAL_FAILURE(Stop());
  EXPECT_EQ(MarkedWorkers(options_.directory), std::set<int32_t>{1});

  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient back = Client(0);
  EXPECT_EQ(back.Hello()->state.applied, 1);
  back.sequence = 0;  // as an old message that arrives late or twice
  const auto late = back.Push("w", {1, 1});
  ASSERT_OK(late);
  EXPECT_TRUE(late->repeated);
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-3, -3));
  EXPECT_EQ(Client().Describe()->variables[0].shards[0].version, 3);
  ASSERT_OK(back.Push("w", {1, 1}));
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-4, -4));
}

TEST_F(PersistenceTest, UnderOffACrashKeepsOnlyTheVariablesAndTheIncarnation) {
  options_.durability = Durability::kOff;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  const auto pushed = client.Push("w", {1, 1});
  ASSERT_OK(pushed);
  EXPECT_EQ(pushed->state.durable, 1);  // an acknowledgement is all that a push gets
  TestClient next = Joined(0);          // must not publish sequences that the stripes lack
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(0, 0));
  TestClient back = Client(0);
  const auto hello = back.Hello();
  ASSERT_OK(hello);
  EXPECT_EQ(StartsOf(hello->incarnation), 3);
  EXPECT_EQ(hello->state.applied, 0);
}

TEST_F(PersistenceTest, SnapshotsRunPeriodically) {
  options_.snapshot_interval = absl::Milliseconds(20);
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {1}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.Push("w", {1}));
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  wire::ServerState state;
  while (state.durable < 1) {
    ASSERT_FALSE(deadline.Expired());
    service().heartbeat(state, client.caller());
  }
}

TEST_F(PersistenceTest, ADirectoryOfAnotherServerOrInUseIsRejected) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_FALSE(OpenStatus().ok());
  ASSERT_NO_FATAL_FAILURE(Stop());
  options_.server_index = 1;
  options_.server_count = 2;
  EXPECT_THAT(OpenStatus(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(options_.directory)));
}

}  // namespace
}  // namespace cairn
