// A caller that holds a copy of a dense shard receives only what has changed since, however it
// changed, and the whole shard if its mark does not belong to the current shard.
#include "ps_server/rows/change_marks.h"

#include <functional>
#include <thread>

#include "common/value_format.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CopyMarks, BelongToOneShard) {
  CopyMarks a, b;
  EXPECT_EQ(a.now(), 0);
  const int64_t first = a.Begin();
  EXPECT_GT(first, 0);
  EXPECT_GT(a.now(), first);
  EXPECT_EQ(a.Begin(), first + 1);
  EXPECT_TRUE(a.Knows(first + 1));
  EXPECT_FALSE(a.Knows(first + 2));
  EXPECT_FALSE(a.Knows(first - 1));
  EXPECT_FALSE(a.Knows(0));
  EXPECT_FALSE(b.Knows(first));
  EXPECT_FALSE(a.Knows(b.Begin()));
}

TEST(ChangedRows, AreReportedInBlocks) {
  ChangedRows changed(5000, 4);  // blocks of 1024 rows
  std::vector<RowRun> runs;
  changed.Note(0, 17);  // no copy has begun
  changed.Note(7, 17);
  changed.Note(8, {100 + 1024, 100 + 1030, 100 + 4999}, 100);
  changed.AppendSince(8, 100, &runs);
  EXPECT_THAT(runs, IsEmpty());
  changed.AppendSince(7, 100, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{1124, 1024}, RowRun{4196, 904}));
  runs = {{90, 10}};
  changed.AppendSince(6, 100, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{90, 2058}, RowRun{4196, 904}));
  changed.NoteAll(9);
  runs.clear();
  changed.AppendSince(8, 100, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{100, 5000}));
}

TEST(ChangedRows, AWideRowIsABlockAndRowsWithoutBytesShareOne) {
  ChangedRows wide(10, 100000);
  wide.Note(3, 4);
  std::vector<RowRun> runs;
  wide.AppendSince(2, 0, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{4, 1}));
  ChangedRows empty(10, 0);
  empty.Note(3, 4);
  runs.clear();
  empty.AppendSince(2, 0, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{0, 10}));
}

TEST(JoinRuns, IncludesTheRowsBetweenRuns) {
  std::vector<RowRun> runs = {{0, 1}, {4, 1}, {10, 2}, {20, 1}, {30, 5}};
  JoinRuns(5, &runs);
  EXPECT_THAT(runs, SizeIs(5));
  JoinRuns(3, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{0, 5}, RowRun{10, 11}, RowRun{30, 5}));
  JoinRuns(1, &runs);
  EXPECT_THAT(runs, ElementsAre(RowRun{0, 35}));
}

constexpr int64_t kRows = 200000;  // four stripes, of 65536 rows and less

// A caller's copy of "v".
class Copy {
 public:
  // Returns the received rows: the whole shard if `changed` is not set.
  wire::PulledItem Refresh(TestClient& client, int64_t boot_id,
                           ValueFormat format = ValueFormat::kPlain) {
    wire::PullItem item;
    item.variable = "v";
    item.format = ToWire(format);
    item.__set_held(held);
    const absl::StatusOr<wire::PulledItem> pulled = client.PullItem(item);
    EXPECT_OK(pulled);
    if (!pulled.ok()) return {};
    EXPECT_TRUE(pulled->__isset.mark);
    held.boot_id = boot_id;
    held.mark = pulled->mark;
    Take(*pulled, format);
    return *pulled;
  }

  wire::HeldCopy held;
  std::vector<float> values = std::vector<float>(kRows, -7);

 private:
  void Take(const wire::PulledItem& pulled, ValueFormat format) {
    int64_t rows = pulled.__isset.changed ? 0 : kRows;
    for (size_t i = 0; i < pulled.changed.size(); i += 2) rows += pulled.changed[i + 1];
    std::vector<float> came(static_cast<size_t>(rows));
    if (format == ValueFormat::kPlain) {
      came = Values<float>(pulled.values);
    } else {
      EXPECT_OK(
          DecodeValues(format, {pulled.values.data(), pulled.values.size()}, rows, 1, came.data()));
    }
    ASSERT_EQ(static_cast<int64_t>(came.size()), rows);
    if (!pulled.__isset.changed) {
      values = came;
      return;
    }
    auto from = came.begin();
    for (size_t i = 0; i < pulled.changed.size(); i += 2) {
      std::copy_n(from, pulled.changed[i + 1], values.begin() + pulled.changed[i]);
      from += pulled.changed[i + 1];
    }
  }
};

class ChangesTest : public ServerTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_NO_FATAL_FAILURE(Create("sgd"));
  }
  void Create(const std::string& optimizer) {
    wire::VariableSpec spec = DenseSpec("v", {kRows}, WireOptimizer(optimizer, 1));
    spec.initializer.type = "zeros";
    ASSERT_OK(Client().Create({spec}));
  }
  int64_t boot_id() { return Client().Describe()->state.boot_id; }
  wire::PulledItem Refresh(Copy& copy) {
    TestClient client = Client();
    wire::PulledItem pulled = copy.Refresh(client, boot_id());
    EXPECT_EQ(copy.values, *client.Pull("v"));
    return pulled;
  }
  absl::Status AssignRows(const std::vector<int64_t>& ids, const std::vector<float>& values) {
    wire::AssignRequest request;
    request.caller.job = "job";
    wire::AssignItem& item = request.items.emplace_back();
    item.variable = "v";
    item.selection = wire::Selection::ROWS;
    item.ids = PayloadOf(ids);
    item.values = PayloadOf(values);
    return Client().Send(request).status();
  }
};

TEST_F(ChangesTest, TheFirstPullSendsEverythingAndLaterOnesTheChanges) {
  Copy copy;
  EXPECT_FALSE(Refresh(copy).__isset.changed);
  wire::PulledItem pulled = Refresh(copy);
  EXPECT_TRUE(pulled.__isset.changed);
  EXPECT_THAT(pulled.changed, IsEmpty());
  EXPECT_TRUE(pulled.values.empty());
  // Blocks have 1024 rows; those of the second stripe begin at row 65536.
  ASSERT_OK(Client().PushRows("v", {70000, 5}, {1, 2}));
  pulled = Refresh(copy);
  EXPECT_THAT(pulled.changed, ElementsAre(0, 1024, 69632, 1024));
  EXPECT_EQ(pulled.version, 1);
  EXPECT_THAT(Refresh(copy).changed, IsEmpty());
  // Across the border of two stripes, and in the last block, which is shorter.
  ASSERT_OK(AssignRows({65535, 65536, kRows - 1}, {1, 2, 3}));
  EXPECT_THAT(Refresh(copy).changed, ElementsAre(64512, 2048, 199680, 320));
}

TEST_F(ChangesTest, EveryKindOfChangeIsReported) {
  const std::vector<float> all(kRows, 2);
  const std::vector<std::function<absl::Status()>> ways = {
      [&] { return Client().Push("v", all).status(); },
      [&] {
        return Client().PushRows("v", {3, 150000, 3}, {1, 1, 1}).status();
      },
      [&] { return Client().Assign("v", all).status(); },
      [&] {
        return AssignRows({199999, 0}, {4, 5});
      },
      [&] { return Joined(0).Push("v", all).status(); },
  };
  for (const char* optimizer : {"sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    wire::ServerState state;
    service().drop_job(state, Client().caller());
    ASSERT_NO_FATAL_FAILURE(Create(optimizer));
    Copy copy;
    EXPECT_FALSE(Refresh(copy).__isset.changed);
    for (size_t way = 0; way < ways.size(); ++way) {
      SCOPED_TRACE(way);
      ASSERT_OK(ways[way]());
      EXPECT_FALSE(Refresh(copy).values.empty());
      EXPECT_THAT(Refresh(copy).changed, IsEmpty());
    }
  }
}

TEST_F(ChangesTest, AnUnknownMarkGetsTheWholeShard) {
  Copy copy;
  Refresh(copy);
  const wire::HeldCopy good = copy.held;
  const auto whole = [&](int64_t boot, int64_t mark) {
    copy.held.boot_id = boot;
    copy.held.mark = mark;
    copy.values.assign(kRows, -1);
    EXPECT_FALSE(Refresh(copy).__isset.changed) << boot << " " << mark;
  };
  whole(0, 0);
  whole(0, good.mark);
  whole(good.boot_id + 1, good.mark);
  whole(good.boot_id, 0);
  whole(good.boot_id, good.mark + 1000);
  whole(good.boot_id, good.mark - 1);
  whole(good.boot_id, std::numeric_limits<int64_t>::max());
  // The job is dropped and created again: marks of the old shard do not apply to the new one.
  copy.held = good;
  wire::ServerState state;
  service().drop_job(state, Client().caller());
  ASSERT_NO_FATAL_FAILURE(Create("sgd"));
  whole(good.boot_id, good.mark);
}

TEST_F(ChangesTest, ARestartedServerSendsTheWholeShard) {
  Copy copy;
  Refresh(copy);
  ASSERT_OK(Client().PushRows("v", {1}, {1}));
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_FALSE(Refresh(copy).__isset.changed);
  EXPECT_TRUE(Refresh(copy).__isset.changed);
}

TEST_F(ChangesTest, ChangedRowsAreEncodedInTheRequestedFormat) {
  Copy copy;
  TestClient client = Client();
  copy.Refresh(client, boot_id(), ValueFormat::kInt8);
  ASSERT_OK(client.PushRows("v", {70000, 70001}, {-127, -50}));
  const wire::PulledItem pulled = copy.Refresh(client, boot_id(), ValueFormat::kInt8);
  EXPECT_THAT(pulled.changed, ElementsAre(69632, 1024));
  EXPECT_EQ(pulled.values.size(), EncodedBytes(ValueFormat::kInt8, 1024, 1));
  EXPECT_EQ(copy.values[70000], 127);
  EXPECT_EQ(copy.values[70001], 50);
  EXPECT_THAT(copy.Refresh(client, boot_id(), ValueFormat::kInt8).changed, IsEmpty());
}

TEST_F(ChangesTest, ItemsOfOnePullDoNotAffectEachOther) {
  Copy copy;
  Refresh(copy);
  ASSERT_OK(Client().PushRows("v", {9}, {1}));
  wire::PullRequest request;
  request.caller.job = "job";
  request.items.resize(3);
  for (wire::PullItem& item : request.items) item.variable = "v";
  request.items[1].__set_held(copy.held);
  wire::PullReply reply;  // left from an earlier call
  reply.items.resize(3);
  reply.items[0].__set_mark(5);
  reply.items[0].__set_changed({1, 2});
  ASSERT_OK(CallStatus([&] { service().pull(reply, request); }));
  EXPECT_FALSE(reply.items[0].__isset.mark || reply.items[0].__isset.changed);
  EXPECT_FALSE(reply.items[2].__isset.mark || reply.items[2].__isset.changed);
  EXPECT_THAT(reply.items[1].changed, ElementsAre(0, 1024));
  EXPECT_EQ(reply.items[0].values.size(), kRows * sizeof(float));
  EXPECT_EQ(reply.items[1].values.size(), 1024 * sizeof(float));
}

// Several threads push and assign while others maintain copies. At the end each copy equals a whole
// pull. A change that one refresh missed would be missing from all later ones.
TEST_F(ChangesTest, ConcurrentCopiesMissNoChange) {
  constexpr int kRounds = 20, kPushers = 3, kCopies = 3;
  std::vector<Copy> copies(kCopies);
  const int64_t boot = boot_id();
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (int64_t p = 0; p < kPushers; ++p) {
      threads.emplace_back([&, p] {
        TestClient client = Client();
        for (int64_t i = 0; i < 20; ++i) {
          const int64_t row = (i * 7919 + p * 104729 + round * 31) % (kRows - 1);
          EXPECT_OK(client.PushRows("v", {row, row + 1}, {1, 1}));
          if (i == 10 && p == 0) {
            EXPECT_OK(AssignRows({row}, {0.5F}));
          }
        }
      });
    }
    for (Copy& copy : copies) {
      threads.emplace_back([&] {
        TestClient client = Client();
        for (int i = 0; i < 15; ++i) copy.Refresh(client, boot);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Copy& copy : copies) {
      EXPECT_TRUE(Refresh(copy).__isset.changed);
    }
  }
}

}  // namespace
}  // namespace cairn
