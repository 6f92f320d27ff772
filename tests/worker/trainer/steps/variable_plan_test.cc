// Variables get the optimizer and the shards of the job file, and gradients are clipped by norms,
// or refused where nobody could clip them.
#include "worker/trainer/steps/variable_plan.h"

#include <cmath>

#include "gmock/gmock.h"
#include "tests/support/next_map.h"
#include "tests/support/status_matchers.h"
#include "worker/trainer/steps/gradient_clipper.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

JobConfig PlannedJob() {
  JobConfig job;
  job.model.type = "mlp";
  job.model.loss = "sigmoid_cross_entropy";
  job.model.hidden = {4};
  job.data.format = "csv";
  job.optimizer.learning_rate = ConstantRate(0.5);
  return job;
}

std::vector<VariableSpec> Plan(const JobConfig& job, int32_t servers) {
  Schema schema;
  schema.dense_columns = 10;
  const auto model = Model::Create(job.model, job.data, schema);
  EXPECT_OK(model);
  const auto specs = PlanVariables(job, **model, test::FirstServers(servers));
  EXPECT_OK(specs);
  return specs.value_or(std::vector<VariableSpec>());
}

TEST(VariablePlan, SmallVariablesAreWholeAndDealtInTurn) {
  const std::vector<VariableSpec> specs = Plan(PlannedJob(), 3);
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[0].name, "dense_0/kernel");
  for (size_t i = 0; i < specs.size(); ++i) {
    const int64_t rows = RowCount(specs[i].shape);
    EXPECT_THAT(specs[i].shards, ElementsAre(DenseShard{0, rows, static_cast<int32_t>(i % 3)}));
  }
}

TEST(VariablePlan, FixedShardsCutAlongRowsAndGoOnInTurn) {
  JobConfig job = PlannedJob();
  job.strategy.partitioner.type = "fixed_shards";
  job.strategy.partitioner.num_shards = 3;
  const std::vector<VariableSpec> specs = Plan(job, 2);
  EXPECT_THAT(specs[0].shards,
              ElementsAre(DenseShard{0, 4, 0}, DenseShard{4, 3, 1}, DenseShard{7, 3, 0}));
  EXPECT_THAT(specs[1].shards,
              ElementsAre(DenseShard{0, 2, 1}, DenseShard{2, 1, 0}, DenseShard{3, 1, 1}));
}

TEST(VariablePlan, MinSizeTakesTheNumberOfServersAsItsMost) {
  JobConfig job = PlannedJob();
  job.strategy.partitioner.min_shard_bytes = 40;
  EXPECT_EQ(Plan(job, 2)[0].shards.size(), 2u);
  EXPECT_EQ(Plan(job, 4)[0].shards.size(), 4u);
  job.strategy.partitioner.max_shards = 3;
  EXPECT_EQ(Plan(job, 4)[0].shards.size(), 3u);
}

TEST(VariablePlan, OptimizersAreThoseOfTheFirstMatch) {
  JobConfig job = PlannedJob();
  job.per_variable = {{"*/bias", {}}};
  job.per_variable[0].optimizer.type = "adam";
  const std::vector<VariableSpec> specs = Plan(job, 1);
  EXPECT_EQ(specs[0].optimizer.type, "sgd");
  EXPECT_EQ(specs[1].optimizer.type, "adam");
}

std::vector<VariableSpec> PlanWithKeys(const std::string& tables) {
  JobConfig job = PlannedJob();
  job.model.tables = tables;
  const auto model = Model::Create(
      job.model, job.data, {.dense_columns = 2, .key_columns = 2, .keys_name_columns = true});
  EXPECT_OK(model);
  const auto specs = PlanVariables(job, **model, {0});
  EXPECT_OK(specs);
  return specs.value_or(std::vector<VariableSpec>());
}

TEST(VariablePlan, AJobKeepsTheTablesThatItHasTrained) {
  const std::vector<VariableSpec> shared = PlanWithKeys("shared"),
                                  vocabulary = PlanWithKeys("shared_vocabulary"),
                                  apart = PlanWithKeys("per_column");
  EXPECT_OK(CheckTables({}, shared));
  EXPECT_OK(CheckTables(shared, shared));
  EXPECT_OK(CheckTables(apart, apart));
  EXPECT_OK(CheckTables(Plan(PlannedJob(), 1), shared));
  EXPECT_THAT(CheckTables(apart, shared),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("the table \"embedding/C1\" and not \"embedding/all\""),
                             HasSubstr("set model.tables: per_column in the job file"))));
  EXPECT_THAT(CheckTables(shared, apart),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("the table \"embedding/all\" and not \"embedding/C1\""),
                             HasSubstr("set model.tables: shared in"))));
  EXPECT_OK(CheckTables(vocabulary, vocabulary));
  EXPECT_THAT(CheckTables(vocabulary, shared),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("\"embedding/vocabulary\" and not \"embedding/all\""),
                             HasSubstr("set model.tables: shared_vocabulary in"))));
  EXPECT_FALSE(CheckTables(shared, vocabulary).ok());
  EXPECT_FALSE(CheckTables(apart, vocabulary).ok());
  EXPECT_FALSE(CheckTables(vocabulary, apart).ok());
  // A column more.
  EXPECT_OK(CheckTables(absl::MakeSpan(apart).first(1), absl::MakeSpan(apart).last(1)));
}

TEST(VariablePlan, APatternThatMatchesNothingIsAWarning) {
  JobConfig job = PlannedJob();
  job.per_variable = {{"*/bias", {}}, {"*/bais", {}}};
  job.strategy.wire.per_variable = {{.match = "embedding/*", .format = {}}};
  job.model.embedding.row_storage.per_table = {{.match = "*", .storage = {}}};
  EXPECT_THAT(
      UnmatchedPatterns(job, Plan(job, 1)),
      ElementsAre("optimizer.per_variable: match '*/bais' has no effect: the model's "
                  "variables are dense_0/kernel, dense_0/bias, dense_1/kernel, dense_1/bias",
                  "strategy.wire.per_variable: match 'embedding/*' has no effect: the "
                  "model's variables are dense_0/kernel, dense_0/bias, dense_1/kernel, "
                  "dense_1/bias",
                  "model.embedding.row_storage.per_table: match '*' has no effect: the "
                  "model's tables are none"));
}

// Two variables with gradients of norm 3 and 4.
StepState TwoGradients() {
  StepState state;
  state.uses.resize(2);
  state.uses[0].gradient = {3, 0};
  state.uses[1].gradient = {0, 0, 4};
  return state;
}

TEST(VariablePlan, TablesGetTheRowRulesOfTheJob) {
  JobConfig job = PlannedJob();
  job.model.embedding.admit_after_pushes = 3;
  job.model.embedding.expire_after_seconds = 60;
  job.model.embedding.max_rows = 1000;
  Schema schema;
  schema.dense_columns = 2;
  schema.key_columns = 2;
  const auto model = Model::Create(job.model, job.data, schema);
  ASSERT_OK(model);
  const auto specs = PlanVariables(job, **model, {0});
  ASSERT_OK(specs);
  int tables = 0;
  for (const VariableSpec& spec : *specs) {
    const bool table = spec.kind == VariableKind::kEmbedding;
    tables += table;
    EXPECT_EQ(spec.row_rules.admit_after_pushes, table ? 3 : 1) << spec.name;
    EXPECT_EQ(spec.row_rules.expire_after_seconds, table ? 60 : 0) << spec.name;
    EXPECT_EQ(spec.row_rules.max_rows, table ? 1000 : 0) << spec.name;
  }
  EXPECT_EQ(tables, 2);
}

TEST(VariablePlan, EachTableGetsTheRowStorageThatMatchesItFirst) {
  JobConfig job = PlannedJob();
  job.model.type = "wide_deep";
  const RowStorage narrow{.values = RowFormat::kInt8, .slots = RowFormat::kBFloat16};
  const RowStorage halves{.values = RowFormat::kFloat16};
  job.model.embedding.row_storage = {.storage = narrow,
                                     .per_table = {{"wide/*", halves}, {"wide/C2", RowStorage()}}};
  Schema schema;
  schema.dense_columns = 2;
  schema.key_columns = 2;
  const auto model = Model::Create(job.model, job.data, schema);
  ASSERT_OK(model);
  const auto specs = PlanVariables(job, **model, {0});
  ASSERT_OK(specs);
  int wide = 0, deep = 0;
  for (const VariableSpec& spec : *specs) {
    if (spec.kind != VariableKind::kEmbedding) {
      EXPECT_EQ(spec.row_storage, RowStorage()) << spec.name;
    } else if (MatchesPattern("wide/*", spec.name)) {
      EXPECT_EQ(spec.row_storage, halves) << spec.name;
      ++wide;
    } else {
      EXPECT_EQ(spec.row_storage, narrow) << spec.name;
      ++deep;
    }
  }
  EXPECT_EQ(wide, 2);
  EXPECT_EQ(deep, 2);
}

TEST(GradientClipper, GlobalNormCoversAllVariables) {
  JobConfig job;
  job.optimizer.global_clipnorm = 1;
  StepState state = TwoGradients();
  ClipGradients(job, &state);
  EXPECT_THAT(state.uses[0].gradient, ElementsAre(FloatNear(0.6f, 1e-6f), 0));
  EXPECT_THAT(state.uses[1].gradient, ElementsAre(0, 0, FloatNear(0.8f, 1e-6f)));
}

TEST(GradientClipper, NormsOfSingleVariablesAreLeftToTheClientAndTheServers) {
  JobConfig job;
  job.optimizer.clipnorm = 2;
  StepState state = TwoGradients();
  ClipGradients(job, &state);
  EXPECT_THAT(state.uses[0].gradient, ElementsAre(3, 0));
  EXPECT_THAT(state.uses[1].gradient, ElementsAre(0, 0, 4));
}

std::vector<VariableSpec> TwoSpecs(double clipnorm, int64_t shards_of_second) {
  std::vector<VariableSpec> specs(2);
  for (VariableSpec& spec : specs) spec.optimizer.clipnorm = clipnorm;
  specs[0].shards.resize(1);
  specs[1].shards.resize(static_cast<size_t>(shards_of_second));
  return specs;
}

TEST(GradientClipper, TheMeanOfWorkersIsClippedOnlyWhereOneServerHasIt) {
  const auto check = [](const std::vector<VariableSpec>& specs, size_t servers) {
    return CheckServersCanClip(JobConfig(), specs, servers);
  };
  EXPECT_OK(check(TwoSpecs(2, 1), 2));
  EXPECT_OK(check(TwoSpecs(0, 3), 2));
  std::vector<VariableSpec> specs = TwoSpecs(2, 3);
  specs[1].name = "deep";
  EXPECT_THAT(check(specs, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("optimizer.clipnorm is 2"), HasSubstr("variable 'deep'"),
                             HasSubstr("use clipvalue"))));
  specs = TwoSpecs(2, 1);
  specs[1].kind = VariableKind::kEmbedding;  // whose buckets the client will place
  EXPECT_OK(check(specs, 1));
  EXPECT_FALSE(check(specs, 2).ok());
  specs[1].bucket_ps = {1, 1};
  EXPECT_OK(check(specs, 2));
  specs[1].bucket_ps = {0, 1};
  EXPECT_FALSE(check(specs, 2).ok());
  JobConfig job;
  job.optimizer.global_clipnorm = 3;
  EXPECT_THAT(
      CheckServersCanClip(job, TwoSpecs(0, 1), 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optimizer.global_clipnorm is 3")));
}

}  // namespace
}  // namespace cairn::test
