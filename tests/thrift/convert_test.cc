// Specs survive the round trip over the wire; malformed ones are refused with the field's name.
#include "thrift/convert.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/examples.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Convert, SpecsSurviveBothWays) {
  for (const wire::VariableSpec& wire : {ExampleDenseSpec(), ExampleEmbeddingSpec()}) {
    const absl::StatusOr<VariableSpec> spec = FromWire(wire, 0, 1);
    ASSERT_OK(spec);
    EXPECT_EQ(ToWire(*spec).name, wire.name);
    const absl::StatusOr<VariableSpec> again = FromWire(ToWire(*spec), 0, 1);
    ASSERT_OK(again);
    EXPECT_TRUE(*again == *spec) << SpecText(*again) << " is not " << SpecText(*spec);
  }
}

TEST(Convert, EveryFieldArrives) {
  const absl::StatusOr<VariableSpec> spec = FromWire(ExampleDenseSpec(), 0, 1);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->name, "w");
  EXPECT_EQ(spec->kind, VariableKind::kDense);
  EXPECT_EQ(spec->shape, (Shape{6, 4}));
  EXPECT_EQ(spec->optimizer.type, "sgd");
  EXPECT_EQ(spec->optimizer.arguments.at("momentum"), 0.5);
  EXPECT_EQ(spec->optimizer.clipvalue, 2);
  EXPECT_EQ(spec->optimizer.learning_rate.type, "piecewise_constant_decay");
  EXPECT_EQ(spec->optimizer.learning_rate.boundaries, (std::vector<double>{10, 20}));
  EXPECT_EQ(spec->optimizer.learning_rate.values.size(), 3U);
  EXPECT_EQ(spec->initializer.type, "constant");
  EXPECT_EQ(spec->initializer.arguments.at("value"), 0.5);
  EXPECT_EQ(spec->initializer.seed, 3);
  EXPECT_EQ(spec->shards.size(), 1U);
}

TEST(Convert, RowRulesSurviveBothWaysAndTheDefaultsTakeNoBytes) {
  wire::VariableSpec table = ExampleEmbeddingSpec();
  absl::StatusOr<VariableSpec> spec = FromWire(table, 0, 1);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->row_rules, RowRules());
  EXPECT_FALSE(ToWire(*spec).__isset.row_rules);
  wire::RowRules rules;
  rules.__set_admit_after_pushes(7);
  rules.__set_expire_after_seconds(3600);
  rules.__set_max_rows(1 << 20);
  table.__set_row_rules(rules);
  spec = FromWire(table, 0, 1);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->row_rules.admit_after_pushes, 7);
  EXPECT_EQ(spec->row_rules.expire_after_seconds, 3600);
  EXPECT_EQ(spec->row_rules.max_rows, 1 << 20);
  EXPECT_EQ(ToWire(*spec).row_rules, rules);
}

TEST(Convert, RowStorageSurvivesBothWaysAndTheDefaultsTakeNoBytes) {
  wire::VariableSpec table = ExampleEmbeddingSpec();
  absl::StatusOr<VariableSpec> spec = FromWire(table, 0, 1);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->row_storage, RowStorage());
  EXPECT_FALSE(ToWire(*spec).__isset.row_storage);
  wire::RowStorage storage;
  storage.__set_values(wire::RowFormat::INT8);
  storage.__set_slots(wire::RowFormat::BFLOAT16);
  table.__set_row_storage(storage);
  spec = FromWire(table, 0, 1);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->row_storage.values, RowFormat::kInt8);
  EXPECT_EQ(spec->row_storage.slots, RowFormat::kBFloat16);
  EXPECT_EQ(ToWire(*spec).row_storage, storage);
  table.row_storage.__set_values(static_cast<wire::RowFormat::type>(4));
  EXPECT_THAT(FromWire(table, 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row_storage.values is number 4; float32, float16, bfloat16, "
                                 "int8 are allowed")));
}

TEST(Convert, OmittedFieldsAreFilledIn) {
  wire::VariableSpec dense = ExampleDenseSpec();
  dense.shards.clear();
  absl::StatusOr<VariableSpec> spec = FromWire(dense, 1, 2);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->shards, (std::vector<DenseShard>{{0, 6, 1}}));

  wire::VariableSpec table = ExampleEmbeddingSpec();
  table.bucket_ps.clear();
  table.__isset.touched_rows = false;
  table.touched_rows = wire::TouchedRows::ALL;
  spec = FromWire(table, 1, 2);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->bucket_ps, std::vector<int32_t>(16, 1));
  EXPECT_EQ(spec->touched_rows, TouchedRows::kPushed);
}

TEST(Convert, UnknownNumbersAreRefusedByField) {
  const auto refused = [](auto change) {
    wire::VariableSpec spec = ExampleDenseSpec();
    change(spec);
    return FromWire(spec, 0, 1).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](auto& s) { s.kind = static_cast<wire::VariableKind::type>(7); }),
              StatusIs(code, AllOf(HasSubstr("variable \"w\""), HasSubstr("field kind is 7"))));
  EXPECT_THAT(refused([](auto& s) { s.touched_rows = static_cast<wire::TouchedRows::type>(0); }),
              StatusIs(code, HasSubstr("field touched_rows is 0")));
  EXPECT_THAT(refused([](auto& s) { s.dtype = static_cast<wire::DType::type>(99); }),
              StatusIs(code, HasSubstr("99")));
  EXPECT_THAT(refused([](auto& s) { s.shape.assign(kMaxAxes + 1, 1); }),
              StatusIs(code, HasSubstr("kMaxAxes")));
  EXPECT_THAT(refused([](auto& s) { s.bucket_ps.assign(kMaxBuckets * 2, 0); }),
              StatusIs(code, HasSubstr("kMaxBuckets")));
}

TEST(Convert, SpecsThatContradictThemselvesAreRefused) {
  const auto refused = [](auto change) {
    wire::VariableSpec spec = ExampleDenseSpec();
    change(spec);
    return FromWire(spec, 0, 1).status().code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(refused([](auto& s) { s.name = ""; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.shape = {6, -4}; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.shape = {int64_t{1} << 40, int64_t{1} << 40}; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.optimizer.type = "sdg"; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.optimizer.arguments["momentun"] = 1; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.initializer.type = "?"; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.shards[0].rows = 5; }), invalid);
  EXPECT_EQ(refused([](auto& s) { s.shards[0].ps = 1; }), invalid);
}

TEST(Convert, EveryConsistencySurvivesBothWays) {
  for (const ConsistencyMode mode :
       {ConsistencyMode::kAsync, ConsistencyMode::kSsp, ConsistencyMode::kSync}) {
    for (const SyncMean mean : {SyncMean::kRows, SyncMean::kContributors}) {
      for (const WorkerLoss loss : {WorkerLoss::kContinue, WorkerLoss::kFail}) {
        const Consistency consistency{mode, 3, 2, mean, loss};
        const absl::StatusOr<Consistency> back = FromWire(ToWire(consistency));
        ASSERT_OK(back);
        EXPECT_EQ(*back, consistency);
      }
    }
  }
}

TEST(Convert, AnUnknownConsistencyIsRefusedByField) {
  const auto refused = [](auto change) {
    wire::Consistency consistency;
    change(consistency);
    return FromWire(consistency).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](auto& c) { c.mode = static_cast<wire::ConsistencyMode::type>(0); }),
              StatusIs(code, HasSubstr("consistency.mode is 0")));
  EXPECT_THAT(refused([](auto& c) { c.staleness_bound_steps = -1; }),
              StatusIs(code, HasSubstr("staleness_bound_steps is -1")));
  EXPECT_THAT(refused([](auto& c) { c.replicas_to_aggregate = -2; }),
              StatusIs(code, HasSubstr("replicas_to_aggregate -2")));
  EXPECT_THAT(refused([](auto& c) { c.sync_mean = static_cast<wire::SyncMean::type>(3); }),
              StatusIs(code, HasSubstr("sync_mean is 3")));
  EXPECT_THAT(refused([](auto& c) { c.on_worker_loss = static_cast<wire::WorkerLoss::type>(3); }),
              StatusIs(code, HasSubstr("on_worker_loss is 3")));
}

TEST(Convert, EveryDTypeSurvivesBothWays) {
  for (int number = 1; number <= 6; ++number) {
    const absl::StatusOr<DType> dtype = FromWire(static_cast<wire::DType::type>(number));
    ASSERT_OK(dtype);
    EXPECT_EQ(ToWire(*dtype), number);
  }
}

}  // namespace
}  // namespace cairn
