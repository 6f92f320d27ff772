// Dense variables: the effect of push, pull and assign on rows, on every path through the stripes.
#include <numeric>

#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DenseTest : public ServerTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Start()); }
};

TEST_F(DenseTest, WholePushMovesEveryElementByTheRate) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("w", {2, 2}, WireOptimizer("sgd", 0.5))}));
  const auto pushed = client.Push("w", {1, 2, 3, 4});
  ASSERT_OK(pushed);
  EXPECT_EQ(pushed->items[0].version, 1);
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-0.5f, -1, -1.5f, -2));
}

// 300,000 rows of one float are five stripes; a push of all rows and a pull of some must agree at
// every stripe boundary.
TEST_F(DenseTest, LargeVariableIsCutIntoStripesWithoutASeam) {
  TestClient client = Client();
  constexpr int64_t kRows = 300000;
  ASSERT_OK(client.Create({DenseSpec("w", {kRows}, WireOptimizer("sgd", 1))}));
  std::vector<float> gradient(kRows);
  std::iota(gradient.begin(), gradient.end(), 0.0f);
  ASSERT_OK(client.Push("w", gradient));
  for (float& g : gradient) g = -g;
  EXPECT_EQ(*client.Pull("w"), gradient);
  EXPECT_EQ(client.Describe()->variables[0].shards[0].stripes, 5);
  const std::vector<int64_t> ids = {299999, 0, 65535, 65536, 131072, 0};
  EXPECT_THAT(*client.PullRows("w", ids), ElementsAre(-299999, 0, -65535, -65536, -131072, 0));
  ASSERT_OK(client.PushRows("w", {65536, 65535, 299999}, {1, 2, 3}));
  EXPECT_THAT(*client.PullRows("w", {65535, 65536, 299999}), ElementsAre(-65537, -65537, -300002));
}

// Across the stripes of a shard; also for a pull of the changes since the last one.
TEST_F(DenseTest, RowsAreCountedWheneverTheyAreNamed) {
  TestClient client = Client();
  constexpr int64_t kRows = 100000;
  wire::VariableSpec all = DenseSpec("all", {kRows}, WireOptimizer("sgd", 1, {{"momentum", 0.5}}));
  wire::VariableSpec pushed = all;
  pushed.name = "pushed";
  pushed.__set_touched_rows(wire::TouchedRows::PUSHED);
  ASSERT_OK(client.Create({all, pushed}));
  const auto uses = [&] {
    const wire::DescribeReply described = *client.Describe(/*with_uses=*/true);
    EXPECT_EQ(described.variables[0].shards[0].uses.size(), 1U);
    return std::pair(described.variables[0].shards[0].uses[0],
                     described.variables[1].shards[0].uses[0]);
  };
  EXPECT_EQ(uses(), std::pair(0L, 0L));
  ASSERT_OK(client.Pull("all"));
  ASSERT_OK(client.Push("pushed", std::vector<float>(kRows)));
  EXPECT_EQ(uses(), std::pair(kRows, kRows));
  const std::vector<int64_t> ids = {5, 99999, 7, 5};
  ASSERT_OK(client.PullRows("all", ids));
  ASSERT_OK(client.PullRows("pushed", ids));
  EXPECT_EQ(uses(), std::pair(kRows + 4, kRows + 4));
  // All rows of one variable change, and three of the other.
  ASSERT_OK(client.PushRows("all", ids, {1, 1, 1, 1}));
  ASSERT_OK(client.PushRows("pushed", ids, {1, 1, 1, 1}));
  EXPECT_EQ(uses(), std::pair(2 * kRows + 4, kRows + 7));
  wire::PullItem item;
  item.variable = "pushed";
  item.selection = wire::Selection::WHOLE;
  item.__isset.held = true;
  const absl::StatusOr<wire::PulledItem> pulled = client.PullItem(item);
  ASSERT_OK(pulled);
  EXPECT_EQ(uses().second, 2 * kRows + 7);
  item.held.boot_id = client.Describe()->state.boot_id;
  item.held.mark = pulled->mark;
  ASSERT_OK(client.PullItem(item));
  EXPECT_EQ(uses().second, 2 * kRows + 7);  // nothing has changed
}

TEST_F(DenseTest, RepeatedRowsAreSummedBeforeTheUpdate) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("w", {4, 1}, WireOptimizer("adagrad", 1))}));
  ASSERT_OK(client.PushRows("w", {2, 0, 2}, {1, 5, 2}));
  // One update with 3: accumulator 0.1 + 9.
  EXPECT_THAT(*client.Pull("w", "accumulator"), ElementsAre(25.1f, 0.1f, 9.1f, 0.1f));
}

TEST_F(DenseTest, RowsNotPushedGetAZeroGradientUnlessTheVariableSaysPushed) {
  TestClient client = Client();
  wire::VariableSpec all = DenseSpec("all", {3, 1}, WireOptimizer("sgd", 1, {{"momentum", 0.5}}));
  wire::VariableSpec pushed = all;
  pushed.name = "pushed";
  pushed.__set_touched_rows(wire::TouchedRows::PUSHED);
  ASSERT_OK(client.Create({all, pushed}));
  for (const char* name : {"all", "pushed"}) {
    ASSERT_OK(client.PushRows(name, {0}, {8}));
    ASSERT_OK(client.PushRows(name, {2}, {4}));
  }
  // In the second step momentum moves row 0 again only if every row is updated.
  EXPECT_THAT(*client.Pull("all"), ElementsAre(-12, 0, -4));
  EXPECT_THAT(*client.Pull("pushed"), ElementsAre(-8, 0, -4));
}

TEST_F(DenseTest, RowsBelongToTheShardThatHoldsThem) {
  options_.server_count = 2;
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Client();
  wire::VariableSpec spec = DenseSpec("w", {10, 1}, WireOptimizer("sgd", 1));
  spec.shards.resize(3);
  for (int i = 0; i < 3; ++i) {
    spec.shards[i].first_row = i * 4;
    spec.shards[i].rows = i == 2 ? 2 : 4;
    spec.shards[i].ps = i % 2;
  }
  ASSERT_OK(client.Create({spec}));
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(IdItem("w", wire::Selection::ROWS, {9}, {1}));
  request.items[0].shard = 2;
  ASSERT_OK(client.Send(request));
  request.items[0].shard = 0;
  EXPECT_THAT(client.Send(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 9 is outside [0, 4)")));
  request.items[0].shard = 1;
  EXPECT_THAT(client.Send(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("shard 1 lives on ps:1 by partition map")));
}

TEST_F(DenseTest, AssignSetsValuesAndSlotsAndCountsAsNoUpdate) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1, {{"momentum", 0.5}}))}));
  ASSERT_OK(client.Assign("w", {3, 4}));
  ASSERT_OK(client.Assign("w", {2, 2}, "momentum"));
  EXPECT_THAT(*client.Pull("w"), ElementsAre(3, 4));
  EXPECT_THAT(*client.Pull("w", "momentum"), ElementsAre(2, 2));
  EXPECT_EQ(client.Push("w", {0, 0})->items[0].version, 1);
  EXPECT_THAT(*client.Pull("w"), ElementsAre(4, 5));
}

TEST_F(DenseTest, IntegersAreAssignedAndPulledButNeverPushed) {
  TestClient client = Client();
  wire::VariableSpec spec = DenseSpec("n", {3}, WireOptimizer("none", 0));
  spec.dtype = wire::DType::INT64;
  spec.initializer.type = "constant";
  spec.initializer.arguments["value"] = 7;
  ASSERT_OK(client.Create({spec}));
  wire::PullItem pull;
  pull.variable = "n";
  EXPECT_THAT(Values<int64_t>(client.PullItem(pull)->values), ElementsAre(7, 7, 7));
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(WholeItem("n", {}));
  request.items[0].dtype = wire::DType::INT64;
  request.items[0].values = PayloadOf<int64_t>({1, 2, 3});
  EXPECT_THAT(client.Send(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("takes no gradients: assign to it")));
}

// The halves are stored as such and updated in float32: 1 - 0.25 has an exact half.
TEST_F(DenseTest, HalvesKeepTheirTypeAndFloat32Slots) {
  TestClient client = Client();
  for (const auto& [name, dtype, one, quarter, three_quarters] :
       {std::tuple{"f16", wire::DType::FLOAT16, 0x3c00, 0x3400, 0x3a00},
        std::tuple{"bf16", wire::DType::BFLOAT16, 0x3f80, 0x3e80, 0x3f40}}) {
    wire::VariableSpec spec = DenseSpec(name, {2}, WireOptimizer("sgd", 1, {{"momentum", 0.9}}));
    spec.dtype = dtype;
    spec.initializer.type = "ones";
    ASSERT_OK(client.Create({spec}));
    wire::PullItem pull;
    pull.variable = name;
    EXPECT_THAT(Values<uint16_t>(client.PullItem(pull)->values), ElementsAre(one, one)) << name;
    wire::PushRequest request = client.NextRequest();
    request.items.push_back(WholeItem(name, {}));
    request.items[0].dtype = dtype;
    request.items[0].values =
        PayloadOf<uint16_t>({static_cast<uint16_t>(quarter), static_cast<uint16_t>(quarter)});
    ASSERT_OK(client.Send(request));
    EXPECT_THAT(Values<uint16_t>(client.PullItem(pull)->values),
                ElementsAre(three_quarters, three_quarters))
        << name;
    EXPECT_THAT(*client.Pull(name, "momentum"), ElementsAre(-0.25f, -0.25f)) << name;
  }
}

TEST_F(DenseTest, Float64IsUpdatedInFloat64) {
  TestClient client = Client();
  wire::VariableSpec spec = DenseSpec("d", {1}, WireOptimizer("sgd", 0.1));
  spec.dtype = wire::DType::FLOAT64;
  ASSERT_OK(client.Create({spec}));
  wire::PushRequest request = client.NextRequest();
  request.items.push_back(WholeItem("d", {}));
  request.items[0].dtype = wire::DType::FLOAT64;
  request.items[0].values = PayloadOf<double>({1.0 / 3});
  ASSERT_OK(client.Send(request));
  wire::PullItem pull;
  pull.variable = "d";
  EXPECT_DOUBLE_EQ(Values<double>(client.PullItem(pull)->values)[0], -0.1 / 3);
}

TEST_F(DenseTest, ClipnormScalesTheSumOfRepeatedRows) {
  TestClient client = Client();
  wire::VariableSpec spec = DenseSpec("w", {3, 1}, WireOptimizer("sgd", 1));
  spec.optimizer.clipnorm = 1;
  ASSERT_OK(client.Create({spec}));
  ASSERT_OK(client.PushRows("w", {0, 2, 0}, {1, 4, 2}));  // sums 3 and 4: norm 5
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-0.6f, 0, -0.8f));
}

TEST_F(DenseTest, EmptyPushCountsAsAnUpdate) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("w", {3, 1}, WireOptimizer("sgd", 1))}));
  EXPECT_EQ(client.PushRows("w", {}, {})->items[0].version, 1);
  EXPECT_THAT(*client.Pull("w"), ElementsAre(0, 0, 0));
}

TEST_F(DenseTest, EmptyVariableAndScalarWork) {
  TestClient client = Client();
  ASSERT_OK(client.Create({DenseSpec("empty", {0, 3}, WireOptimizer("sgd", 1)),
                           DenseSpec("flat", {3, 0}, WireOptimizer("adam", 1)),
                           DenseSpec("scalar", {}, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.Push("empty", {}));
  ASSERT_OK(client.Push("flat", {}));
  ASSERT_OK(client.PushRows("flat", {2, 1}, {}));
  ASSERT_OK(client.Push("scalar", {2}));
  EXPECT_THAT(*client.Pull("scalar"), ElementsAre(-2));
  EXPECT_THAT(*client.Pull("empty"), ElementsAre());
}

}  // namespace
}  // namespace cairn
