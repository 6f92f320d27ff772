// One call for each server and wave, no copy if one server holds everything, and malformed replies
// are errors, not memory faults.
#include "worker/client/plan/data_plan.h"

#include <algorithm>
#include <limits>
#include <new>

#include "common/dtype.h"
#include "common/hash.h"
#include "common/status.h"
#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

TEST(ScratchArray, GrowsAndNeverShrinks) {
  ScratchArray<int64_t> array;
  EXPECT_EQ(array.bytes(), 0u);
  int64_t* const ten = array.Get(10);
  std::fill_n(ten, 10, 1);
  EXPECT_EQ(array.bytes(), 10 * sizeof(int64_t));
  EXPECT_EQ(array.Get(3), ten);
  EXPECT_EQ(array.Get(0), ten);
  EXPECT_EQ(array.Get(10), ten);
  EXPECT_EQ(array.bytes(), 10 * sizeof(int64_t));
  std::fill_n(array.Get(1000), 1000, 2);  // a sanitizer sees a block that is too small
  EXPECT_EQ(array.bytes(), 1000 * sizeof(int64_t));
}

TEST(ScratchArray, KeepsItsMemoryWhereMoreIsRefused) {
  ScratchArray<int64_t> array;
  int64_t* const ten = array.Get(10);
  const volatile size_t too_many = std::numeric_limits<size_t>::max() / 2;
  EXPECT_THROW(array.Get(too_many), std::bad_alloc);
  EXPECT_EQ(array.bytes(), 10 * sizeof(int64_t));
  EXPECT_EQ(array.Get(10), ten);
  std::fill_n(array.Get(100), 100, 3);
  EXPECT_EQ(array.bytes(), 100 * sizeof(int64_t));
}

class DataPlanTest : public ::testing::Test {
 protected:
  FakeService fake_;
  const ClientIdentity identity_;
  const ServerTable sessions_{[this] {
    std::vector<std::unique_ptr<ServerSession>> sessions;
    for (int32_t s = 0; s < 2; ++s) {
      const std::string name = absl::StrCat("ps:", s);
      sessions.push_back(
          std::make_unique<ServerSession>(s, name, InProcessLink(name, &fake_), &identity_));
    }
    return sessions;
  }()};
  PlanLimits limits_{/*max_message_bytes=*/1 << 20, /*max_items=*/3, /*max_ids=*/100};
};

TEST_F(DataPlanTest, ViewsTheCallersMemoryWhereOneServerHoldsAll) {
  DataPlan plan(sessions_, limits_);
  const auto variable = std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 4, 1}}));
  const std::vector<int64_t> ids = {3, 0, 3};
  const std::vector<float> gradient = {1, 2, 3};
  std::vector<float> out(3);
  ASSERT_OK(plan.AddPush(variable, Some("v", Part::kRows, ids, gradient)));
  ASSERT_OK(plan.AddPull(variable, SomeInto("v", Part::kRows, ids, &out)));
  ASSERT_EQ(plan.WaveCount(), 1u);
  ASSERT_EQ(plan.Wave(0).size(), 1u);
  const Exchange& exchange = *plan.Wave(0)[0];
  EXPECT_EQ(exchange.session, &sessions_[1]);
  EXPECT_EQ(exchange.call.kind, CallKind::kStep);
  const wire::PushItem& item = exchange.call.request.push.items.at(0);
  EXPECT_EQ(static_cast<const void*>(item.values.data()), gradient.data());
  EXPECT_EQ(static_cast<const void*>(item.ids.data()), ids.data());
  EXPECT_EQ(static_cast<const void*>(exchange.call.targets.at(0).data()), out.data());
  EXPECT_EQ(plan.bytes_out(), 3 * 8 + 3 * 4);
  EXPECT_EQ(plan.bytes_in(), 3 * 4);
}

TEST_F(DataPlanTest, SortsRowsByServerAndKeepsTheirOrder) {
  DataPlan plan(sessions_, limits_);
  const auto variable =
      std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 2, 0}, {2, 2, 1}}));
  const std::vector<int64_t> ids = {3, 0, 2, 1, 3};
  const std::vector<float> gradient = {1, 2, 3, 4, 5};
  ASSERT_OK(plan.AddPush(variable, Some("v", Part::kRows, ids, gradient)));
  ASSERT_EQ(plan.WaveCount(), 1u);
  ASSERT_EQ(plan.Wave(0).size(), 2u);
  const auto item = [&](size_t server) -> const wire::PushItem& {
    return plan.Wave(0)[server]->call.request.push.items.at(0);
  };
  EXPECT_EQ(item(0).ids.As<int64_t>(), absl::MakeConstSpan({int64_t{0}, int64_t{1}}));
  EXPECT_EQ(item(0).values.As<float>(), absl::MakeConstSpan({2.0f, 4.0f}));
  EXPECT_EQ(item(1).ids.As<int64_t>(), absl::MakeConstSpan({int64_t{3}, int64_t{2}, int64_t{3}}));
  EXPECT_EQ(item(1).values.As<float>(), absl::MakeConstSpan({1.0f, 3.0f, 5.0f}));
}

TEST_F(DataPlanTest, CombinedRepeatsTravelOnce) {
  VariableSpec spec = Table("t", 2);
  spec.bucket_ps = {0};
  const auto variable = std::make_shared<const ClientVariable>(std::move(spec));
  const std::vector<int64_t> keys = {7, -3, 7, 7};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> out(8);
  PushSource source = Some("t", Part::kKeys, keys, gradients);
  PullTarget target = SomeInto("t", Part::kKeys, keys, &out);
  source.combine_repeats = target.combine_repeats = true;
  DataPlan plan(sessions_, limits_);
  ASSERT_OK(plan.AddPush(variable, source));
  ASSERT_OK(plan.AddPull(variable, target));
  ASSERT_EQ(plan.WaveCount(), 1u);
  Exchange& exchange = *plan.Wave(0)[0];
  const wire::PushItem& pushed = exchange.call.request.push.items.at(0);
  EXPECT_EQ(pushed.ids.As<int64_t>(), absl::MakeConstSpan({int64_t{7}, int64_t{-3}}));
  EXPECT_EQ(pushed.values.As<float>(), absl::MakeConstSpan({13.0f, 16.0f, 3.0f, 4.0f}));
  EXPECT_EQ(exchange.call.request.pull.items.at(0).ids.As<int64_t>(), pushed.ids.As<int64_t>());
  wire::StepReply& reply = exchange.call.reply;
  reply.push.items.resize(1);
  const std::vector<float> rows = {1, 2, 3, 4};
  reply.pull.items.emplace_back();
  reply.pull.items[0].dtype = wire::DType::FLOAT32;
  reply.pull.items[0].values = Payload::Copy(rows.data(), rows.size() * sizeof(float));
  ASSERT_OK(plan.StoreReply(exchange, [](int64_t) {}));
  plan.CopyRepeats();
  EXPECT_THAT(out, ElementsAre(1, 2, 3, 4, 1, 2, 1, 2));
}

// A server that has only a part cannot know the norm.
TEST_F(DataPlanTest, ClipsTheNormOfAVariableOfSeveralShards) {
  VariableSpec spec = Dense("v", {4}, {{0, 2, 0}, {2, 2, 1}});
  spec.optimizer.clipnorm = 1;
  const std::vector<float> gradient = {3, 0, 0, 4};
  DataPlan plan(sessions_, limits_);
  const auto values = [&](size_t server) {
    return plan.Wave(0)[server]->call.request.push.items.at(0).values.As<float>();
  };
  ASSERT_OK(plan.AddPush(std::make_shared<const ClientVariable>(spec),
                         Some("v", Part::kWhole, {}, gradient)));
  ASSERT_EQ(plan.WaveCount(), 1u);
  EXPECT_THAT(values(0), ElementsAre(FloatNear(0.6f, 1e-6f), 0));
  EXPECT_THAT(values(1), ElementsAre(0, FloatNear(0.8f, 1e-6f)));
  plan.Reset();
  spec.shards = {{0, 4, 0}};  // this server has all of it
  ASSERT_OK(plan.AddPush(std::make_shared<const ClientVariable>(spec),
                         Some("v", Part::kWhole, {}, gradient)));
  ASSERT_EQ(plan.WaveCount(), 1u);
  EXPECT_THAT(values(0), ElementsAre(3, 0, 0, 4));
}

TEST_F(DataPlanTest, ClipsTheNormOfTheSumsOfRepeatedKeys) {
  VariableSpec spec = Table("t", 1);
  spec.bucket_ps = {0, 1};
  spec.optimizer.clipnorm = 5;
  int64_t other = 1;  // a key on another server than key 0
  while (BucketOfKey(other, 2) == BucketOfKey(0, 2)) ++other;
  const std::vector<int64_t> keys = {0, other, 0};
  const std::vector<float> gradients = {2, 8, 4};  // sums of 6 and 8: the norm is 10
  DataPlan plan(sessions_, limits_);
  ASSERT_OK(plan.AddPush(std::make_shared<const ClientVariable>(std::move(spec)),
                         Some("t", Part::kKeys, keys, gradients)));
  ASSERT_EQ(plan.WaveCount(), 1u);
  const size_t server = BucketOfKey(0, 2);
  const auto item = [&](size_t index) -> const wire::PushItem& {
    return plan.Wave(0)[index]->call.request.push.items.at(0);
  };
  EXPECT_THAT(item(server).ids.As<int64_t>(), ElementsAre(0));
  EXPECT_THAT(item(server).values.As<float>(), ElementsAre(FloatNear(3, 1e-5f)));
  EXPECT_THAT(item(1 - server).values.As<float>(), ElementsAre(FloatNear(4, 1e-5f)));
}

TEST_F(DataPlanTest, ClipsGradientsOfEveryFloatingType) {
  VariableSpec spec = Dense("v", {2}, {{0, 1, 0}, {1, 1, 1}});
  spec.optimizer.clipnorm = 1;
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    spec.dtype = dtype;
    std::vector<float> floats = {3, 4};
    std::vector<std::byte> bytes(2 * DTypeBytes(dtype));
    FromFloat32(dtype, floats.data(), 2, bytes.data());
    DataPlan plan(sessions_, limits_);
    ASSERT_OK(plan.AddPush(std::make_shared<const ClientVariable>(spec),
                           {.variable = "v", .values = bytes}));
    ASSERT_EQ(plan.WaveCount(), 1u);
    for (size_t server = 0; server < 2; ++server) {
      const Payload& sent = plan.Wave(0)[server]->call.request.push.items.at(0).values;
      ToFloat32(dtype, sent.data(), 1, &floats[server]);
    }
    EXPECT_THAT(floats, ElementsAre(FloatNear(0.6f, 4e-3f), FloatNear(0.8f, 4e-3f)));
  }
}

TEST_F(DataPlanTest, RefusesWhatItCannotClip) {
  VariableSpec spec = Dense("v", {4}, {{0, 2, 0}, {2, 2, 1}});
  spec.optimizer.clipnorm = 1;
  const std::vector<float> gradient = {3, 0, 0};
  DataPlan plan(sessions_, limits_);
  EXPECT_THAT(plan.AddPush(std::make_shared<const ClientVariable>(spec),
                           Some("v", Part::kWhole, {}, gradient)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("12 bytes given")));
}

// The server rejects them; a sum of values would be wrong.
TEST_F(DataPlanTest, AssignsDoNotCombineRepeats) {
  VariableSpec spec = Table("t", 1);
  spec.bucket_ps = {0};
  const std::vector<int64_t> keys = {7, 7};
  const std::vector<float> values = {1, 2};
  PushSource source = Some("t", Part::kKeys, keys, values);
  source.combine_repeats = true;
  DataPlan plan(sessions_, limits_);
  ASSERT_OK(plan.AddAssign(std::make_shared<const ClientVariable>(std::move(spec)), source));
  ASSERT_EQ(plan.WaveCount(), 1u);
  const wire::AssignItem& item = plan.Wave(0)[0]->call.assign.items.at(0);
  EXPECT_EQ(item.ids.As<int64_t>(), absl::MakeConstSpan(keys));
  EXPECT_EQ(item.values.As<float>(), absl::MakeConstSpan(values));
}

// A plan of the pool is used for another assign next.
TEST_F(DataPlanTest, AnAssignTogetherNamesCountsAndTheNextOneDoesNot) {
  DataPlan plan(sessions_, limits_);
  const auto variable = std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 4, 1}}));
  std::vector<float> values(4);
  PushSource source = Some("v", Part::kWhole, {}, values);
  source.updates = 7;
  ASSERT_OK(plan.AddAssign(variable, source));
  plan.AssignTogether();
  ASSERT_EQ(plan.WaveCount(), 1u);
  const wire::AssignRequest& together = plan.Wave(0)[0]->call.assign;
  EXPECT_TRUE(together.__isset.together && together.together);
  EXPECT_TRUE(together.items.at(0).__isset.updates);
  EXPECT_EQ(together.items.at(0).updates, 7);
  plan.Reset();
  source.updates = -1;
  ASSERT_OK(plan.AddAssign(variable, source));
  ASSERT_EQ(plan.WaveCount(), 1u);
  const wire::AssignRequest& alone = plan.Wave(0)[0]->call.assign;
  EXPECT_FALSE(alone.__isset.together || alone.together);
  EXPECT_FALSE(alone.items.at(0).__isset.updates);
}

TEST_F(DataPlanTest, OnlyRepeatsOfKeysCombine) {
  DataPlan plan(sessions_, limits_);
  const auto variable = std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 4, 0}}));
  const std::vector<int64_t> ids = {3};
  std::vector<float> values(1);
  PullTarget target = SomeInto("v", Part::kRows, ids, &values);
  target.combine_repeats = true;
  EXPECT_THAT(plan.AddPull(variable, target),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("an embedding table's keys")));
}

TEST_F(DataPlanTest, CutsPullsByItemsAndIds) {
  DataPlan plan(sessions_, limits_);
  const auto variable = std::make_shared<const ClientVariable>(Dense("v", {1000}, {{0, 1000, 0}}));
  const std::vector<int64_t> ids(250);
  std::vector<float> out(250), whole(1000);
  ASSERT_OK(plan.AddPull(variable, SomeInto("v", Part::kRows, ids, &out)));
  EXPECT_EQ(plan.WaveCount(), 3u);  // 100, 100 and 50 ids
  plan.Reset();
  for (int i = 0; i < 7; ++i) ASSERT_OK(plan.AddPull(variable, WholeInto("v", &whole)));
  EXPECT_EQ(plan.WaveCount(), 3u);  // 3, 3 and 1 items
  plan.Reset();
  EXPECT_THAT(plan.AddPush(variable, Some("v", Part::kRows, ids, out)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("250 ids")));
}

TEST_F(DataPlanTest, AnEmptyAssignReachesNobodyAnEmptyPushEverybody) {
  DataPlan plan(sessions_, limits_);
  const auto variable =
      std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 2, 0}, {2, 2, 1}}));
  ASSERT_OK(plan.AddAssign(variable, Some("v", Part::kRows, {}, {})));
  EXPECT_EQ(plan.WaveCount(), 0u);
  plan.Reset();
  ASSERT_OK(plan.AddPush(variable, Some("v", Part::kRows, {}, {})));
  ASSERT_EQ(plan.WaveCount(), 1u);
  EXPECT_EQ(plan.Wave(0).size(), 2u);
}

// Rows of a shape such as [4, 0] have no bytes from which to count them, in any format.
TEST_F(DataPlanTest, RowsWithoutElementsTravelInEveryFormat) {
  for (const std::vector<DenseShard>& shards :
       {std::vector<DenseShard>{{0, 4, 0}}, std::vector<DenseShard>{{0, 1, 0}, {1, 3, 1}}}) {
    const auto variable = std::make_shared<const ClientVariable>(Dense("v", {4, 0}, shards));
    for (const ValueFormat format :
         {ValueFormat::kPlain, ValueFormat::kFloat16, ValueFormat::kBFloat16, ValueFormat::kInt8,
          ValueFormat::kTopK}) {
      SCOPED_TRACE(ValueFormatName(format));
      DataPlan plan(sessions_, limits_);
      std::vector<float> none;
      PushSource whole = Whole("v", none);
      whole.format = format;
      ASSERT_OK(plan.AddPush(variable, whole));
      if (format != ValueFormat::kTopK) {
        const std::vector<int64_t> ids = {3, 0, 3};
        PushSource some = Some("v", Part::kRows, ids, none);
        some.format = format;
        ASSERT_OK(plan.AddPush(variable, some));
        ASSERT_OK(plan.AddPull(variable, SomeInto("v", Part::kRows, ids, &none)));
      }
      ASSERT_EQ(plan.WaveCount(), 1u);
      for (const Exchange* exchange : plan.Wave(0)) {
        for (const wire::PushItem& item : exchange->call.request.push.items) {
          EXPECT_EQ(item.values.size(), 0u);
        }
      }
    }
  }
}

TEST_F(DataPlanTest, HoldsItsVariablesUntilItIsReset) {
  DataPlan plan(sessions_, limits_);
  auto variable = std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 4, 0}}));
  const std::weak_ptr<const ClientVariable> watched = variable;
  std::vector<float> out(4);
  ASSERT_OK(plan.AddPull(std::move(variable), WholeInto("v", &out)));
  EXPECT_FALSE(watched.expired());
  plan.Reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(DataPlanTest, ReportsRepliesThatDoNotFit) {
  const auto variable = std::make_shared<const ClientVariable>(Dense("v", {4}, {{0, 4, 0}}));
  std::vector<float> out(4);
  const auto land = [&](const std::vector<size_t>& sizes, wire::DType::type dtype) {
    DataPlan plan(sessions_, limits_);
    EXPECT_OK(plan.AddPull(variable, WholeInto("v", &out)));
    EXPECT_EQ(plan.WaveCount(), 1u);
    Exchange& exchange = *plan.Wave(0)[0];
    for (const size_t size : sizes) {
      exchange.call.reply.pull.items.emplace_back();
      exchange.call.reply.pull.items.back().dtype = dtype;
      exchange.call.reply.pull.items.back().values = Payload::Uninitialized(size);
    }
    return plan.StoreReply(exchange, [](int64_t) {});
  };
  EXPECT_OK(land({16}, wire::DType::FLOAT32));
  const auto misfit = [](absl::string_view what) {
    return StatusIs(absl::StatusCode::kInternal,
                    AllOf(HasSubstr("ps:0"), HasSubstr(std::string(what))));
  };
  EXPECT_THAT(land({}, wire::DType::FLOAT32), misfit("0 pulled items for 1"));
  EXPECT_THAT(land({16, 16}, wire::DType::FLOAT32), misfit("2 pulled items for 1"));
  EXPECT_THAT(land({12}, wire::DType::FLOAT32), misfit("12 bytes"));
  EXPECT_THAT(land({16}, wire::DType::INT32), misfit("dtype 5"));
}

// A variable of two shards; the second has rows 4 … 9.
class HeldValuesTest : public DataPlanTest {
 protected:
  // A pull of it, which the second server answers with `item`; the first server's mark is 7
  // afterwards.
  absl::Status Pull(wire::PulledItem item, ValueFormat format = ValueFormat::kPlain) {
    DataPlan plan(sessions_, limits_);
    RETURN_IF_ERROR(plan.AddPull(variable_, {.variable = "v",
                                             .out = AsWritableBytes(absl::MakeSpan(out_)),
                                             .format = format,
                                             .held = &held_}));
    EXPECT_EQ(plan.WaveCount(), 1u);
    absl::Status status;
    for (Exchange* exchange : plan.Wave(0)) {
      const bool second = exchange->session == &sessions_[1];
      asked_[second] = exchange->call.request.pull.items.at(0).held;
      exchange->call.reply.pull.state.boot_id = second ? 22 : 11;
      exchange->call.reply.pull.items = {second ? item : Answer({0, 1, 2, 3}, 7)};
      const absl::Status landed = plan.StoreReply(*exchange, [](int64_t) {});
      if (second) status = landed;
    }
    bytes_in_ = plan.bytes_in();
    return status;
  }
  static wire::PulledItem Answer(const std::vector<float>& values, int64_t mark) {
    wire::PulledItem item;
    item.dtype = wire::DType::FLOAT32;
    item.values = Payload::Copy(values.data(), values.size() * sizeof(float));
    item.__set_mark(mark);
    return item;
  }
  static wire::PulledItem Changes(const std::vector<int64_t>& changed,
                                  const std::vector<float>& values, int64_t mark) {
    wire::PulledItem item = Answer(values, mark);
    item.__set_changed(changed);
    return item;
  }

  const ClientVariablePtr variable_ =
      std::make_shared<const ClientVariable>(Dense("v", {10}, {{0, 4, 0}, {4, 6, 1}}));
  std::vector<float> out_ = std::vector<float>(10, -1);
  HeldValues held_;
  wire::HeldCopy asked_[2];
  int64_t bytes_in_ = 0;
};

TEST_F(HeldValuesTest, ChangesLandInPlaceAndTheRestStays) {
  ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
  EXPECT_EQ(asked_[1].boot_id, 0);
  EXPECT_EQ(asked_[1].mark, 0);
  EXPECT_EQ(bytes_in_, 40);
  ASSERT_OK(Pull(Changes({4, 1, 7, 2}, {40, 70, 80}, 4)));
  EXPECT_EQ(asked_[0].mark, 7);
  EXPECT_EQ(asked_[1].boot_id, 22);
  EXPECT_EQ(asked_[1].mark, 3);
  EXPECT_EQ(bytes_in_, 16 + 12 + 4 * 8);
  EXPECT_THAT(out_, ElementsAre(0, 1, 2, 3, 40, 5, 6, 70, 80, 9));
  ASSERT_OK(Pull(Changes({}, {}, 5)));
  EXPECT_THAT(out_, ElementsAre(0, 1, 2, 3, 40, 5, 6, 70, 80, 9));
  ASSERT_OK(Pull(Changes({4, 6}, {1, 2, 3, 4, 5, 6}, 5)));
  EXPECT_THAT(out_, ElementsAre(0, 1, 2, 3, 1, 2, 3, 4, 5, 6));
}

TEST_F(HeldValuesTest, AfterAFailureEverythingIsAskedForAgain) {
  ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
  const std::vector<std::vector<int64_t>> bad = {
      {4},          {4, 0},       {4, -1},        {3, 1},         {10, 1},       {9, 2},
      {5, 1, 4, 1}, {4, 2, 5, 1}, {9, INT64_MAX}, {INT64_MAX, 1}, {INT64_MIN, 1}};
  for (const std::vector<int64_t>& changed : bad) {
    EXPECT_THAT(Pull(Changes(changed, {1}, 4)),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("do not ascend in its shard")));
    ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
    EXPECT_EQ(asked_[0].mark, 7);
    EXPECT_EQ(asked_[1].mark, 0);
  }
  EXPECT_THAT(Pull(Changes({4, 2}, {1}, 4)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("4 bytes")));
  EXPECT_THAT(Pull(Changes({4, 1}, {1}, 4)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("were not requested")));
}

TEST_F(HeldValuesTest, OfOtherMemoryAnotherFormatOrNoMarkNothingIsHeld) {
  wire::PulledItem no_mark = Answer({4, 5, 6, 7, 8, 9}, 0);
  no_mark.__isset.mark = false;
  ASSERT_OK(Pull(no_mark));
  ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
  EXPECT_EQ(asked_[1].mark, 0);
  std::vector<float> other(10);
  out_.swap(other);
  ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
  EXPECT_EQ(asked_[1].mark, 0);
  held_.Clear();
  ASSERT_OK(Pull(Answer({4, 5, 6, 7, 8, 9}, 3)));
  EXPECT_EQ(asked_[1].mark, 0);
  EXPECT_FALSE(Pull({}, ValueFormat::kInt8).ok());
  EXPECT_EQ(asked_[0].mark, 0);
}

TEST_F(HeldValuesTest, IsForWholeValues) {
  DataPlan plan(sessions_, limits_);
  PullTarget slot = WholeInto("v", &out_);
  slot.slot = "momentum";
  slot.held = &held_;
  EXPECT_THAT(plan.AddPull(variable_, slot),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("held is for the value of the whole variable, and this is slot")));
  const std::vector<int64_t> ids = {1};
  std::vector<float> row(1);
  PullTarget some = SomeInto("v", Part::kRows, ids, &row);
  some.held = &held_;
  EXPECT_THAT(plan.AddPull(variable_, some),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("some rows of it")));
}

}  // namespace
}  // namespace cairn::test
