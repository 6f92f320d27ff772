#include "common/config/variable_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::StatusOr<std::vector<VariableSpec>> Parse(absl::string_view text,
                                                const PartitionerConfig& partitioner = {}) {
  const int32_t servers[] = {0, 2};
  return ParseVariables(text, "text", partitioner, servers);
}
std::string Refusal(absl::string_view text) { return std::string(Parse(text).status().message()); }

TEST(VariableConfig, ReadsEveryKey) {
  const auto specs = Parse(R"([
    {name: w, shape: [4, 2], dtype: float64, touched_rows: pushed, shards: 3,
     optimizer: {type: adam, learning_rate: {type: cosine_decay, initial_learning_rate: 0.1,
                 decay_steps: 10}, beta_1: 0.5, clipnorm: 1},
     initializer: {type: normal, stddev: 0.5, seed: 3}},
    {name: t, dim: 8, optimizer: ftrl, initializer: ones, admit_after_pushes: 2,
     expire_after_seconds: 60, max_rows: 1000, row_storage: {values: int8, slots: bfloat16}}])");
  ASSERT_OK(specs.status());
  ASSERT_THAT(*specs, SizeIs(2));
  const VariableSpec& w = (*specs)[0];
  EXPECT_EQ(w.kind, VariableKind::kDense);
  EXPECT_EQ(w.dtype, DType::kFloat64);
  EXPECT_EQ(w.touched_rows, TouchedRows::kPushed);
  EXPECT_EQ(w.optimizer.learning_rate.type, "cosine_decay");
  EXPECT_EQ(w.optimizer.arguments.at("beta_1"), 0.5);
  EXPECT_EQ(w.optimizer.clipnorm, 1);
  EXPECT_EQ(w.initializer.seed, 3);
  EXPECT_THAT(w.shards, ElementsAre(DenseShard{0, 2, 0}, DenseShard{2, 1, 2}, DenseShard{3, 1, 0}));
  const VariableSpec& t = (*specs)[1];
  EXPECT_EQ(t.kind, VariableKind::kEmbedding);
  EXPECT_THAT(t.shape, ElementsAre(8));
  EXPECT_EQ(t.touched_rows, TouchedRows::kPushed);
  EXPECT_EQ(t.optimizer.type, "ftrl");
  EXPECT_EQ(t.row_rules, (RowRules{2, 60, 1000}));
  EXPECT_EQ(t.row_storage.values, RowFormat::kInt8);
  EXPECT_EQ(t.row_storage.slots, RowFormat::kBFloat16);
}

TEST(VariableConfig, HasDefaults) {
  const auto specs = Parse("{name: s, shape: []}", {.type = "fixed_shards", .num_shards = 2});
  ASSERT_OK(specs.status());
  EXPECT_EQ((*specs)[0].optimizer.type, "none");
  EXPECT_EQ((*specs)[0].dtype, DType::kFloat32);
  EXPECT_THAT((*specs)[0].shards, SizeIs(0));  // a scalar is not split
  const auto split = Parse("{name: w, shape: [5]}", {.type = "fixed_shards", .num_shards = 2});
  ASSERT_OK(split.status());
  EXPECT_THAT((*split)[0].shards, SizeIs(2));
}

TEST(VariableConfig, KeepsTheShardsOfAVariableThatIsThere) {
  VariableSpec there;
  there.name = "w";
  there.shape = {5};
  there.shards = {{0, 3, 1}, {3, 2, 0}};
  there.map_version = 4;
  const int32_t servers[] = {0, 1, 2};
  const PartitionerConfig three = {.type = "fixed_shards", .num_shards = 3};
  const auto parse = [&](absl::string_view text) {
    return ParseVariables(text, "text", three, servers, {&there, 1}).value()[0];
  };
  for (const char* const text : {"{name: w, shape: [5]}", "{name: w, shape: [5], shards: 2}"}) {
    EXPECT_EQ(parse(text).shards, there.shards) << text;
    EXPECT_EQ(parse(text).map_version, 4) << text;
  }
  EXPECT_THAT(parse("{name: w, shape: [5], shards: 3}").shards, SizeIs(3));
  EXPECT_THAT(parse("{name: w, shape: [6]}").shards, SizeIs(3));
  EXPECT_THAT(parse("{name: v, shape: [5]}").shards, SizeIs(3));
}

TEST(VariableConfig, RefusesANormOfAllVariables) {
  EXPECT_THAT(Refusal("{name: t, dim: 2, optimizer: {type: sgd, global_clipnorm: 1}}"),
              AllOf(HasSubstr("optimizer.global_clipnorm: is the norm of all variables together"),
                    HasSubstr("use clipnorm")));
}

TEST(VariableConfig, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal("{shape: [1]}"), HasSubstr("no name"));
  EXPECT_THAT(Refusal("{name: w}"), HasSubstr("neither shape"));
  EXPECT_THAT(Refusal("{name: w, shape: [-1]}"), HasSubstr("shape[0]"));
  EXPECT_THAT(Refusal("{name: w, shape: [1], dtype: float31}"), HasSubstr("float32"));
  EXPECT_THAT(Refusal("{name: w, shape: [2], shards: 3}"), HasSubstr("shards"));
  EXPECT_THAT(Refusal("{name: w, shape: [2], admit_after_pushes: 3}"), HasSubstr("unknown key"));
  EXPECT_THAT(Refusal("{name: t, dim: 0}"), HasSubstr("dim"));
  EXPECT_THAT(Refusal("{name: t, dim: 2, initializer: wave}"), HasSubstr("wave"));
  EXPECT_THAT(Refusal("{name: t, dim: 2, optimizer: adma}"), HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(Refusal("{name: t, dim: 2, optimizer: {type: sgd, beta_1: 0.5}}"),
              HasSubstr("beta_1"));
  EXPECT_THAT(Refusal("[5]"), HasSubstr("expected a variable"));
}

}  // namespace
}  // namespace cairn
