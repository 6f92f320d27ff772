// A retained copy outlives the caller's memory, and holds only the update.
#include "worker/client/delivery/retained_call.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(RetainPart, OwnsIdsAndValuesOfAStepsPush) {
  auto ids = std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{7, 9});
  auto values = std::make_unique<std::vector<float>>(std::vector<float>{1, 2});
  DataCall call;
  call.kind = CallKind::kStep;
  call.request.push.sequence.sequence = 5;
  call.request.push.sequence.after = 3;
  call.request.push.sequence.position = "p";
  call.request.push.items.resize(1);
  call.request.push.items[0].variable = "v";
  call.request.push.items[0].ids = Payload::ViewOf(absl::MakeConstSpan(*ids));
  call.request.push.items[0].values = Payload::ViewOf(absl::MakeConstSpan(*values));
  call.request.pull.items.resize(1);
  EXPECT_EQ(UpdateBytes(call), 24);
  const RetainedPart part = RetainPart(call);
  ids.reset();
  values.reset();
  EXPECT_EQ(part.sequence, 5);
  EXPECT_GE(part.bytes, 24 + static_cast<int64_t>(sizeof(DataCall)));
  EXPECT_EQ(part.call->kind, CallKind::kPush);
  EXPECT_TRUE(part.call->request.pull.items.empty());
  const wire::PushRequest& push = part.call->request.push;
  EXPECT_EQ(push.sequence.after, 3);
  EXPECT_EQ(push.sequence.position, "p");
  EXPECT_EQ(push.items[0].variable, "v");
  EXPECT_THAT(push.items[0].ids.As<int64_t>(), ElementsAre(7, 9));
  EXPECT_THAT(push.items[0].values.As<float>(), ElementsAre(1, 2));
}

TEST(RetainPart, KeepsManyPayloadsApartAndAligned) {
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<float>> values;
  DataCall call;
  call.kind = CallKind::kPush;
  for (size_t table = 0; table < 30; ++table) {
    ids.emplace_back(table % 4, static_cast<int64_t>(table));
    values.emplace_back(table % 4 * table, static_cast<float>(table) + 0.5f);
    wire::PushItem& item = call.request.push.items.emplace_back();
    item.ids = Payload::Copy(ids[table].data(), ids[table].size() * sizeof(int64_t));
    item.values = Payload::Copy(values[table].data(), values[table].size() * sizeof(float));
  }
  const RetainedPart part = RetainPart(call);
  call.request.push.items.clear();
  const std::vector<wire::PushItem>& items = part.call->request.push.items;
  ASSERT_EQ(items.size(), 30u);
  for (size_t table = 0; table < 30; ++table) {
    EXPECT_THAT(items[table].ids.As<int64_t>(), ElementsAreArray(ids[table]));
    EXPECT_THAT(items[table].values.As<float>(), ElementsAreArray(values[table]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(items[table].values.data()) % 64, 0u);
  }
}

TEST(RetainPart, KeepsEveryByteOfPayloadsOfAnySizeAndPlace) {
  std::vector<uint8_t> bytes(400);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  DataCall call;
  call.kind = CallKind::kPush;
  for (size_t size = 0; size <= 300; ++size) {
    wire::PushItem& item = call.request.push.items.emplace_back();
    item.values = Payload::ViewOf(absl::MakeConstSpan(bytes).subspan(size % 67, size));
  }
  const RetainedPart part = RetainPart(call);
  for (size_t size = 0; size <= 300; ++size) {
    EXPECT_THAT(part.call->request.push.items[size].values.As<uint8_t>(),
                ElementsAreArray(absl::MakeConstSpan(bytes).subspan(size % 67, size)));
  }
}

TEST(RetainPart, KeepsAnAssignAsOne) {
  const std::vector<float> values = {1, 2, 3};
  DataCall call;
  call.kind = CallKind::kAssign;
  call.assign.sequence.sequence = 4;
  call.assign.__set_together(true);
  call.assign.items.resize(1);
  call.assign.items[0].slot = "momentum";
  call.assign.items[0].values = Payload::ViewOf(absl::MakeConstSpan(values));
  const RetainedPart part = RetainPart(call);
  EXPECT_EQ(part.sequence, 4);
  EXPECT_EQ(part.bytes, RetainedBytes(call));
  EXPECT_EQ(part.call->kind, CallKind::kAssign);
  EXPECT_TRUE(part.call->assign.__isset.together && part.call->assign.together);
  EXPECT_EQ(part.call->assign.items[0].slot, "momentum");
  EXPECT_NE(part.call->assign.items[0].values.data(), call.assign.items[0].values.data());
  EXPECT_THAT(part.call->assign.items[0].values.As<float>(), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace cairn::test
