// Pushes and pulls whose values travel in other formats than plain: what is applied, and what is
// refused with nothing applied.
#include "ps_server/core/value_coding.h"

#include "common/value_format.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Payload Encoded(ValueFormat format, const std::vector<float>& values, int64_t width) {
  const int64_t rows = static_cast<int64_t>(values.size()) / width;
  Payload bytes = Payload::Uninitialized(EncodedBytes(format, rows, width));
  EncodeValues(format, values.data(), rows, width, bytes.mutable_data());
  return bytes;
}

Payload Largest(const std::vector<float>& values, int64_t kept) {
  Payload bytes = Payload::Uninitialized(TopKBytes(kept));
  EncodeTopK(values, kept, bytes.mutable_data());
  return bytes;
}

class ValueCodingTest : public ServerTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start());
    wire::VariableSpec doubles = DenseSpec("doubles", {2}, WireOptimizer("sgd", 1));
    doubles.dtype = wire::DType::FLOAT64;
    wire::VariableSpec table = TableSpec("table", 4, WireOptimizer("sgd", 1));
    table.initializer.type = "zeros";
    ASSERT_OK(Client().Create({DenseSpec("dense", {8, 4}, WireOptimizer("sgd", 1)), doubles, table,
                               DenseSpec("adam", {8}, WireOptimizer("adam", 1))}));
  }

  absl::StatusOr<wire::PushReply> Push(const wire::PushItem& item) { return Client().Send(item); }
  static wire::PushItem Formatted(wire::PushItem item, ValueFormat format, int64_t width) {
    item.values = Encoded(format, Values<float>(item.values), width);
    item.format = ToWire(format);
    return item;
  }
};

TEST_F(ValueCodingTest, WholePushesAreAppliedAsDecoded) {
  // Of these all formats have exact values.
  std::vector<float> gradient(32);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = i % 4 == 0 ? 127.0F : 1.0F;
  for (const ValueFormat format :
       {ValueFormat::kFloat16, ValueFormat::kBFloat16, ValueFormat::kInt8}) {
    SCOPED_TRACE(ValueFormatName(format));
    ASSERT_OK(Client().Assign("dense", std::vector<float>(32, 128)));
    ASSERT_OK(Push(Formatted(WholeItem("dense", gradient), format, 4)));
    const std::vector<float> values = Client().Pull("dense").value();
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_FLOAT_EQ(values[i], i % 4 == 0 ? 1 : 127) << i;
    }
  }
}

TEST_F(ValueCodingTest, TheLargestValuesMoveAndTheOthersAreZeros) {
  std::vector<float> gradient(32, 0.5F);
  gradient[3] = -2;
  gradient[30] = 4;
  wire::PushItem item = WholeItem("dense", {});
  item.values = Largest(gradient, 2);
  item.format = wire::ValueFormat::TOP_K;
  ASSERT_OK(Push(item));
  std::vector<float> want(32, 0);
  want[3] = 2;
  want[30] = -4;
  EXPECT_EQ(Client().Pull("dense").value(), want);
}

TEST_F(ValueCodingTest, RowsAndKeysAreAppliedAsDecoded) {
  const std::vector<float> gradient = {1, 2, 3, 127, 4, 5, 6, 127};
  for (const ValueFormat format :
       {ValueFormat::kFloat16, ValueFormat::kBFloat16, ValueFormat::kInt8}) {
    SCOPED_TRACE(ValueFormatName(format));
    ASSERT_OK(Client().Assign("dense", std::vector<float>(32, 0)));
    ASSERT_OK(Client().AssignKeys("table", {7, 8}, std::vector<float>(8, 0)));
    ASSERT_OK(Push(Formatted(IdItem("dense", wire::Selection::ROWS, {2, 2}, gradient), format, 4)));
    ASSERT_OK(Push(Formatted(IdItem("table", wire::Selection::KEYS, {7, 8}, gradient), format, 4)));
    EXPECT_THAT(Client().PullRows("dense", {2}).value(), ElementsAre(-5, -7, -9, -254));
    EXPECT_THAT(Client().PullKeys("table", {8, 7}).value(),
                ElementsAre(-4, -5, -6, -127, -1, -2, -3, -127));
  }
}

TEST_F(ValueCodingTest, PullsAnswerInTheFormatAskedFor) {
  const std::vector<float> rows = {1, 2, 3, 127, 4, 5, 6, 127};
  ASSERT_OK(Client().AssignKeys("table", {7, 8}, rows));
  std::vector<float> all(32, 1);
  all[31] = 127;
  ASSERT_OK(Client().Assign("dense", all));
  for (const ValueFormat format :
       {ValueFormat::kFloat16, ValueFormat::kBFloat16, ValueFormat::kInt8}) {
    SCOPED_TRACE(ValueFormatName(format));
    wire::PullItem item;
    item.variable = "table";
    item.selection = wire::Selection::KEYS;
    item.ids = PayloadOf<int64_t>({7, 8});
    item.format = ToWire(format);
    const wire::PulledItem keys = Client().PullItem(item).value();
    EXPECT_EQ(keys.format, ToWire(format));
    EXPECT_EQ(Values<uint8_t>(keys.values), Values<uint8_t>(Encoded(format, rows, 4)));
    item.variable = "dense";
    item.selection = wire::Selection::WHOLE;
    item.ids = Payload();
    EXPECT_EQ(Values<uint8_t>(Client().PullItem(item).value().values),
              Values<uint8_t>(Encoded(format, all, 4)));
  }
}

TEST_F(ValueCodingTest, WhatCannotBeDecodedIsRefusedAndNothingIsApplied) {
  const auto refused = [&](const wire::PushItem& item, const std::string& why) {
    EXPECT_THAT(Push(item), StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  wire::PushItem whole =
      Formatted(WholeItem("dense", std::vector<float>(32, 1)), ValueFormat::kFloat16, 4);
  whole.format = static_cast<wire::ValueFormat::type>(9);
  refused(whole, "push \"dense\" on ps:0: format number 9 is unknown; known are 0 to 4: plain");
  whole.format = wire::ValueFormat::INT8;
  refused(whole, "values have 64 bytes, expected 36 (8 rows x 4 int8)");
  whole.format = wire::ValueFormat::PLAIN;
  refused(whole, "values have 64 bytes, expected 128");
  whole.format = wire::ValueFormat::FLOAT16;
  whole.dtype = wire::DType::FLOAT16;
  refused(whole, "dtype number 3 with a format");
  refused(Formatted(WholeItem("doubles", {1, 1}), ValueFormat::kInt8, 1),
          "format int8 is for float32 values, this is float64");
  wire::PushItem rows = IdItem("dense", wire::Selection::ROWS, {1}, {1, 1, 1, 1});
  rows.values = Largest({1, 2, 3, 4}, 1);
  rows.format = wire::ValueFormat::TOP_K;
  refused(rows, "top_k is for pushes of whole dense shards");
  wire::PushItem largest = WholeItem("dense", {});
  largest.format = wire::ValueFormat::TOP_K;
  largest.values = Largest(std::vector<float>(33, 1), 33);
  refused(largest, "index 32 after 31; indices ascend, below 32");
  wire::PushItem infinite = WholeItem("dense", {});
  infinite.format = wire::ValueFormat::FLOAT16;
  infinite.values = PayloadOf(std::vector<uint16_t>(32, 0x7c00));
  refused(infinite, "NaN or infinity");
  EXPECT_THAT(Client().Pull("dense").value(), Each(0.0F));
}

TEST_F(ValueCodingTest, PullsInFormatsThatDoNotFitAreRefused) {
  const auto refused = [&](const std::string& variable, const std::string& slot,
                           wire::ValueFormat::type format, const std::string& why) {
    wire::PullItem item;
    item.variable = variable;
    item.slot = slot;
    item.format = format;
    EXPECT_THAT(Client().PullItem(item), StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused("dense", "", wire::ValueFormat::TOP_K, "top_k is for pushes");
  refused("dense", "", static_cast<wire::ValueFormat::type>(-1), "format number -1 is unknown");
  refused("doubles", "", wire::ValueFormat::FLOAT16, "this is float64");
  refused("adam", "momentum", wire::ValueFormat::INT8, "this is a slot of float32");
}

}  // namespace
}  // namespace cairn
