// Dense variables without elements, as TensorFlow allows them: without rows ([0, 4]), or with rows
// that have no elements ([3, 0]). Every call works on them and counts updates as for other
// variables. Meaningless shapes, such as an embedding table of dim 0, are refused at creation.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/optimizer/optimizer.h"
#include "common/shape.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "tests/ps_server/moving_engine.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/sync_cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Shape> kShapes = {{3, 0}, {0, 4}, {0, 0}, {2, 0, 5}, {0}, {100000, 0}};

struct Kind {
  std::string optimizer;
  wire::TouchedRows::type touched_rows = wire::TouchedRows::ALL;
  wire::DType::type dtype = wire::DType::FLOAT32;
};

std::string NameOf(const Shape& shape) {
  return absl::StrCat("v",
                      absl::StrReplaceAll(ShapeText(shape), {{", ", "."}, {"[", ""}, {"]", ""}}));
}

class ZeroSizeTest : public ServerTest, public ::testing::WithParamInterface<Kind> {
 protected:
  ZeroSizeTest() { options_.snapshot_interval = absl::Hours(1); }

  static std::vector<wire::VariableSpec> Specs() {
    std::vector<wire::VariableSpec> specs;
    for (const Shape& shape : kShapes) {
      specs.push_back(DenseSpec(NameOf(shape), shape, WireOptimizer(GetParam().optimizer, 0.1)));
      specs.back().dtype = GetParam().dtype;
      specs.back().__set_touched_rows(GetParam().touched_rows);
    }
    return specs;
  }
  static bool Moves() { return GetParam().optimizer != "none"; }
  // Row numbers that the shape has; one for each repeat.
  static std::vector<int64_t> SomeRows(const Shape& shape) {
    const int64_t rows = RowCount(shape);
    return rows == 0 ? std::vector<int64_t>() : std::vector<int64_t>{rows - 1, 0, rows - 1};
  }
  static std::vector<int64_t> EachOnce(std::vector<int64_t> rows) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }
  static wire::PushRequest Typed(wire::PushRequest request) {
    for (wire::PushItem& item : request.items) item.dtype = GetParam().dtype;
    return request;
  }
  // Pushes the whole variable once and some rows once.
  void PushBoth(TestClient& client, const Shape& shape, int64_t updates_before) {
    wire::PushRequest whole = client.NextRequest();
    whole.items.push_back(WholeItem(NameOf(shape), {}));
    const auto first = client.Send(Typed(whole));
    ASSERT_OK(first);
    EXPECT_EQ(first->items[0].version, updates_before + 1);
    wire::PushRequest some = client.NextRequest();
    some.items.push_back(IdItem(NameOf(shape), wire::Selection::ROWS, SomeRows(shape), {}));
    const auto second = client.Send(Typed(some));
    ASSERT_OK(second);
    EXPECT_EQ(second->items[0].version, updates_before + 2);
    const auto again = client.Send(Typed(some));
    ASSERT_OK(again);
    EXPECT_TRUE(again->repeated);
  }
  void ExpectUpdates(int64_t updates) {
    const auto described = Client().Describe(/*with_uses=*/true);
    ASSERT_OK(described);
    ASSERT_EQ(described->variables.size(), kShapes.size());
    for (const wire::VariableInfo& info : described->variables) {
      EXPECT_EQ(info.shards.at(0).version, updates) << info.spec.name;
    }
  }
};

TEST_P(ZeroSizeTest, EveryCallWorks) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create(Specs()));
  ASSERT_OK(client.Create(Specs()));  // the same specs again
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(ShapeText(shape));
    const std::string name = NameOf(shape);
    if (Moves()) {
      ASSERT_NO_FATAL_FAILURE(PushBoth(client, shape, 0));
    }
    wire::PullItem whole;
    whole.variable = name;
    whole.__set_held(wire::HeldCopy());
    const auto pulled = client.PullItem(whole);
    ASSERT_OK(pulled);
    EXPECT_EQ(pulled->values.size(), 0U);
    if (Moves()) {
      ASSERT_NO_FATAL_FAILURE(PushBoth(client, shape, 2));
    }
    whole.held.boot_id = client.caller().boot_id;
    whole.held.mark = pulled->mark;
    const auto changed = client.PullItem(whole);
    ASSERT_OK(changed);
    EXPECT_EQ(changed->values.size(), 0U);
    EXPECT_EQ(client.PullRows(name, SomeRows(shape))->size(), 0U);

    wire::AssignRequest assign;
    for (const bool some : {false, true}) {
      const wire::PushRequest next = client.NextRequest();
      assign.caller = next.caller;
      assign.sequence = next.sequence;
      assign.items.assign(1, {});
      assign.items[0].variable = name;
      assign.items[0].dtype = GetParam().dtype;
      if (some) {
        assign.items[0].selection = wire::Selection::ROWS;
        assign.items[0].ids = PayloadOf(EachOnce(SomeRows(shape)));
      }
      ASSERT_OK(client.Send(assign));
    }
    EXPECT_FALSE(client.PullRows(name, {RowCount(shape)}).ok());
    EXPECT_FALSE(client.Push(name, {1}).ok());
  }
  const auto described = client.Describe();
  ASSERT_OK(described);
  for (const wire::VariableInfo& info : described->variables) {
    for (const std::string& slot : info.slots) EXPECT_OK(client.Pull(info.spec.name, slot));
  }
  wire::ScanRequest scan;
  scan.caller.job = "job";
  scan.variable = NameOf(kShapes[0]);
  wire::ScanReply rows;
  EXPECT_FALSE(CallStatus([&] { service().scan(rows, scan); }).ok());
}

TEST_P(ZeroSizeTest, TheyOutliveARestartACrashAndARestore) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int64_t updates = Moves() ? 2 : 0;
  {
    TestClient client = Joined(0);
    ASSERT_OK(client.Create(Specs()));
    if (Moves()) {
      for (const Shape& shape : kShapes) ASSERT_NO_FATAL_FAILURE(PushBoth(client, shape, 0));
    }
    ASSERT_OK(client.Flush());
  }
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  ASSERT_NO_FATAL_FAILURE(ExpectUpdates(updates));
  ASSERT_NO_FATAL_FAILURE(Restart());
  ASSERT_NO_FATAL_FAILURE(ExpectUpdates(updates));
  wire::RestoreRequest restore;
  ASSERT_NO_FATAL_FAILURE(MakeCheckpoint(&restore));
  ASSERT_NO_FATAL_FAILURE(StartRestored(restore, 1, 0));
  ASSERT_NO_FATAL_FAILURE(ExpectUpdates(updates));
  if (!Moves()) return;
  TestClient client = Joined(0);
  for (const Shape& shape : kShapes) ASSERT_NO_FATAL_FAILURE(PushBoth(client, shape, updates));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ZeroSizeTest, ::testing::ValuesIn([] {
      std::vector<Kind> kinds;
      for (const std::string type : {"sgd", "adagrad", "adadelta", "rmsprop", "adam", "adamw",
                                     "adamax", "nadam", "lazy_adam", "ftrl", "lion", "none"}) {
        for (const auto touched : {wire::TouchedRows::ALL, wire::TouchedRows::PUSHED}) {
          kinds.push_back({type, touched});
        }
      }
      for (const auto dtype : {wire::DType::FLOAT64, wire::DType::FLOAT16, wire::DType::BFLOAT16}) {
        kinds.push_back({"sgd", wire::TouchedRows::PUSHED, dtype});
        kinds.push_back({"adam", wire::TouchedRows::ALL, dtype});
      }
      kinds.push_back({"none", wire::TouchedRows::ALL, wire::DType::INT64});
      return kinds;
    }()),
    [](const auto& kind) {
      return absl::StrCat(kind.param.optimizer, "_rows", static_cast<int>(kind.param.touched_rows),
                          "_dtype", static_cast<int>(kind.param.dtype));
    });

class ZeroSizeServerTest : public ServerTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Start()); }
};

TEST_F(ZeroSizeServerTest, ValuesTravelInEveryFormat) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("flat", {3, 0}, WireOptimizer("sgd", 1))}));
  for (const auto format : {wire::ValueFormat::FLOAT16, wire::ValueFormat::BFLOAT16,
                            wire::ValueFormat::INT8, wire::ValueFormat::TOP_K}) {
    wire::PushRequest push = client.NextRequest();
    push.items.push_back(WholeItem("flat", {}));
    push.items[0].format = format;
    EXPECT_OK(client.Send(push)) << format;
    if (format == wire::ValueFormat::TOP_K) continue;
    wire::PullItem pull;
    pull.variable = "flat";
    pull.selection = wire::Selection::ROWS;
    pull.ids = PayloadOf<int64_t>({2, 0});
    pull.format = format;
    const auto pulled = client.PullItem(pull);
    ASSERT_OK(pulled) << format;
    EXPECT_EQ(pulled->values.size(), 0U) << format;
  }
}

TEST_F(ZeroSizeServerTest, NormsOfNothingAreClipped) {
  TestClient client = Joined(0);
  wire::VariableSpec spec = DenseSpec("flat", {3, 0}, WireOptimizer("sgd", 1));
  spec.optimizer.clipnorm = 1;
  ASSERT_OK(client.Create({spec}));
  EXPECT_OK(client.Push("flat", {}));
  EXPECT_OK(client.PushRows("flat", {2, 0, 2}, {}));
}

TEST_F(ZeroSizeServerTest, ShapesThatMakeNoSenseAreRefused) {
  TestClient client = Joined(0);
  constexpr int64_t kLarge = int64_t{1} << 60;
  const auto expect_refused = [&](wire::VariableSpec spec, absl::string_view why) {
    EXPECT_THAT(client.Create({spec}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why))));
  };
  const wire::Optimizer sgd = WireOptimizer("sgd", 1);
  expect_refused(TableSpec("t", 0, sgd), "dim >= 1");
  expect_refused(DenseSpec("w", {kLarge, 0}, sgd), "2^53");
  expect_refused(DenseSpec("w", {0, kLarge, kLarge}, sgd), "2^53");
  // Rows that no message could carry: the products of their sizes would overflow.
  expect_refused(DenseSpec("w", {0, int64_t{1} << 30}, sgd), "a row has at most 2147483647 bytes");
  expect_refused(TableSpec("t", int64_t{1} << 53, sgd), "a row has at most 2147483647 bytes");
  EXPECT_THAT(client.Describe()->variables, IsEmpty());
}

// A row count within the limits may still exceed the memory.
TEST_F(ZeroSizeServerTest, RowsWithoutElementsAreChargedAllTheSame) {
  TestClient client = Joined(0);
  EXPECT_THAT(client.Create({DenseSpec("w", {int64_t{1} << 53, 0}, WireOptimizer("sgd", 1))}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--memory_budget_bytes")));
}

TEST(ZeroSizeSteps, ContributionsOfEveryKindCloseAStep) {
  for (const auto mean : {wire::SyncMean::ROWS, wire::SyncMean::CONTRIBUTORS}) {
    SyncCluster cluster(1);
    cluster.consistency = Sync(0, mean);
    cluster.expected_workers = 3;
    ASSERT_OK(cluster.Tool(0).Create({DenseSpec("flat", {3, 0}, WireOptimizer("sgd", 1)),
                                      DenseSpec("none", {0, 4}, WireOptimizer("adam", 1))}));
    const auto rows = wire::Selection::ROWS;
    const std::vector<std::vector<wire::PushItem>> parts = {
        {WholeItem("flat", {}), WholeItem("none", {})},
        {IdItem("flat", rows, {2, 0, 2}, {}), IdItem("none", rows, {}, {})},
        {IdItem("flat", rows, {1}, {}), WholeItem("none", {})}};
    std::vector<std::unique_ptr<SyncWorker>> workers;
    for (int32_t w = 0; w < 3; ++w) {
      workers.push_back(std::make_unique<SyncWorker>(cluster, w));
      workers.back()->Start();
    }
    for (size_t w = 0; w < 3; ++w) ASSERT_OK(workers[w]->Push(1, 8, {parts[w]}));
    for (size_t w = 0; w < 2; ++w) ASSERT_FALSE(workers[w]->Begin(2).ok());
    EXPECT_THAT(workers[2]->Begin(2), Opens(2));
    const auto described = cluster.Tool(0).Describe();
    ASSERT_OK(described);
    for (const wire::VariableInfo& info : described->variables) {
      EXPECT_EQ(info.shards.at(0).version, 1) << info.spec.name;
    }
  }
}

class ZeroSizeMoveTest : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    for (int32_t s = 0; s < 2; ++s) {
      servers_[s].directory = folder_.Join(absl::StrCat("ps", s));
      ASSERT_NO_FATAL_FAILURE(servers_[s].Open(s, 2, EngineOptions()));
      wire::VariableSpec spec = DenseSpec("w", GetParam(), WireOptimizer("adam", 1));
      spec.shards.resize(1);
      spec.shards[0].rows = RowCount(GetParam());
      spec.shards[0].ps = 0;
      ASSERT_OK(TestClient(Service(s), -1).Create({spec}));
    }
  }
  wire::ParameterServerIf& Service(int32_t s) { return servers_[s].service(); }
  absl::StatusOr<wire::MoveReply> Step(int32_t server, wire::MoveAction::type action,
                                       const Payload* data = nullptr) {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = "w";
    request.map_version = 2;
    request.shards.resize(1);
    request.shards[0].rows = RowCount(GetParam());
    request.shards[0].ps = 1;
    request.source = 0;
    request.target = 1;
    if (data != nullptr) request.data = Payload::Copy(data->data(), data->size());
    wire::MoveReply reply;
    RETURN_IF_ERROR(CallStatus([&] { Service(server).move(reply, request); }));
    return reply;
  }

  TempDir folder_;
  MovingEngine servers_[2];
};

TEST_P(ZeroSizeMoveTest, AShardMovesWithItsUpdateCount) {
  TestClient client(Service(0), -1);
  ASSERT_OK(client.Push("w", {}));
  ASSERT_OK(client.Push("w", {}));
  for (const int32_t s : {1, 0}) ASSERT_OK(Step(s, wire::MoveAction::PREPARE));
  ASSERT_OK(Step(0, wire::MoveAction::HOLD));
  const auto read = Step(0, wire::MoveAction::READ);
  ASSERT_OK(read);
  ASSERT_OK(Step(1, wire::MoveAction::WRITE, &read->data));
  ASSERT_OK(Step(1, wire::MoveAction::READY));
  for (const int32_t s : {0, 1}) ASSERT_OK(Step(s, wire::MoveAction::COMMIT));
  TestClient there(Service(1), -1);
  EXPECT_EQ(there.Describe()->variables.at(0).shards.at(0).version, 2);
  const auto pushed = there.Push("w", {});
  ASSERT_OK(pushed);
  EXPECT_EQ(pushed->items[0].version, 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ZeroSizeMoveTest,
                         ::testing::Values(Shape{3, 0}, Shape{0, 4}, Shape{0, 0}));

}  // namespace
}  // namespace cairn
