// The requests of models to the servers: names, shapes, rows and keys; their refusals; and the same
// step gives the same bits.
#include "worker/models/model.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/models/random_batch.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Schema kCriteo{.dense_columns = 13, .key_columns = 26};

std::unique_ptr<Model> Make(const ModelConfig& config, const Schema& schema) {
  auto model = Model::Create(config, {}, schema);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// "name [shape]", "name {dim}" for tables.
std::vector<std::string> Names(const Model& model) {
  std::vector<std::string> names;
  for (const VariableSpec& spec : model.variables()) {
    const bool table = spec.kind == VariableKind::kEmbedding;
    names.push_back(table ? absl::StrCat(spec.name, " {", spec.shape[0], "}")
                          : absl::StrCat(spec.name, " ", ShapeText(spec.shape)));
    EXPECT_EQ(spec.touched_rows, table ? TouchedRows::kPushed : TouchedRows::kAll);
  }
  return names;
}

std::string Refusal(const ModelConfig& config, const Schema& schema) {
  return std::string(Model::Create(config, {.format = "csv"}, schema).status().message());
}

TEST(Model, VariablesHaveTheNamesAndShapesOfTheJobFile) {
  const ModelConfig softmax{.type = "linear", .classes = 3};
  EXPECT_THAT(Names(*Make(softmax, {.sparse_columns = 180})),
              ElementsAre("kernel [180, 3]", "bias [3]"));
  const ModelConfig mlp{.type = "mlp", .classes = 10, .hidden = {128}};
  EXPECT_THAT(Names(*Make(mlp, {.dense_columns = 784})),
              ElementsAre("dense_0/kernel [784, 128]", "dense_0/bias [128]",
                          "dense_1/kernel [128, 10]", "dense_1/bias [10]"));
  EXPECT_THAT(Names(*Make({.type = "fm", .factors = 4}, {.sparse_columns = 127})),
              ElementsAre("linear [127, 1]", "factors [127, 4]", "bias [1]"));
  EXPECT_THAT(Names(*Make({.type = "matrix_factorization", .factors = 6}, {.key_columns = 2})),
              ElementsAre("user {6}", "item {6}", "user_bias {1}", "item_bias {1}", "bias [1]"));
  EXPECT_THAT(Names(*Make({.type = "skip_gram", .factors = 100}, {.key_columns = 2})),
              ElementsAre("input {100}", "output {100}"));
}

TEST(Model, TablesAreNamedAfterTheirColumns) {
  const Schema two{.dense_columns = 3, .key_columns = 2};
  const ModelConfig wide_deep{.type = "wide_deep", .hidden = {64}};
  EXPECT_THAT(Names(*Make(wide_deep, two)),
              ElementsAre("wide/C1 {1}", "wide/C2 {1}", "wide/dense [3, 1]", "embedding/C1 {16}",
                          "embedding/C2 {16}", "dense_0/kernel [35, 64]", "dense_0/bias [64]",
                          "dense_1/kernel [64, 1]", "dense_1/bias [1]"));
  EXPECT_THAT(Names(*Make({.type = "dlrm", .bottom_hidden = {8}, .top_hidden = {9}}, two)),
              ElementsAre("embedding/C1 {16}", "embedding/C2 {16}", "bottom_0/kernel [3, 8]",
                          "bottom_0/bias [8]", "bottom_1/kernel [8, 16]", "bottom_1/bias [16]",
                          "top_0/kernel [19, 9]", "top_0/bias [9]", "top_1/kernel [9, 1]",
                          "top_1/bias [1]"));
  EXPECT_THAT(Names(*Make({.type = "fm", .factors = 4}, two)),
              ElementsAre("linear/C1 {1}", "linear/C2 {1}", "linear/dense [3, 1]", "factors/C1 {4}",
                          "factors/C2 {4}", "factors/dense [3, 4]", "bias [1]"));
}

TEST(Model, ColumnsWhoseIdsDifferShareATable) {
  const Schema alike{.dense_columns = 3, .key_columns = 2};
  const Schema named{.dense_columns = 3, .key_columns = 2, .keys_name_columns = true};
  const auto wide_deep = [](int64_t hash_buckets, const std::string& tables) {
    ModelConfig config{.type = "wide_deep", .hidden = {64}, .tables = tables};
    config.embedding.hash_buckets = hash_buckets;
    return config;
  };
  const auto shared = ElementsAre("wide/all {1}", "wide/dense [3, 1]", "embedding/all {16}",
                                  "dense_0/kernel [35, 64]", "dense_0/bias [64]",
                                  "dense_1/kernel [64, 1]", "dense_1/bias [1]");
  EXPECT_THAT(Names(*Make(wide_deep(0, "shared"), named)), shared);
  EXPECT_THAT(Names(*Make(wide_deep(9, "shared"), named)), shared);
  EXPECT_THAT(Names(*Make(wide_deep(9, "shared"), alike)), shared);
  EXPECT_THAT(Names(*Make(wide_deep(0, "shared"), alike)), Not(Contains("embedding/all {16}")));
  for (const int64_t hash_buckets : {0, 9}) {
    EXPECT_THAT(Names(*Make(wide_deep(hash_buckets, "per_column"), named)),
                Contains("embedding/C2 {16}"));
  }
  EXPECT_THAT(Names(*Make({.type = "fm", .factors = 4}, named)),
              ElementsAre("linear/all {1}", "linear/dense [3, 1]", "factors/all {4}",
                          "factors/dense [3, 4]", "bias [1]"));
  for (const int64_t hash_buckets : {0, 9}) {
    EXPECT_THAT(Names(*Make(wide_deep(hash_buckets, "shared_vocabulary"), alike)),
                AllOf(Contains("wide/vocabulary {1}"), Contains("embedding/vocabulary {16}")));
  }
  // fm does not hash its keys.
  ModelConfig fm{.type = "fm", .factors = 4};
  fm.embedding.hash_buckets = 9;
  EXPECT_THAT(Names(*Make(fm, alike)), Contains("factors/C2 {4}"));
}

// A step of a model with a table for each column, and of one whose columns share tables, over the
// same values: the loss and the gradients are the same. Rows of one vocabulary have the values that
// they have in the first column, in every column.
class SharedStep {
 public:
  SharedStep(ModelConfig config, const Schema& schema)
      : shared_(Make(config, schema)),
        apart_(Make(With(config, "per_column"), schema)),
        one_vocabulary_(config.tables == "shared_vocabulary"),
        batch_(test::RandomBatch(schema, 50, 1, 1)) {}

  void Expect() {
    ASSERT_TRUE(apart_->Plan(batch_, &a_).ok());
    ASSERT_TRUE(shared_->Plan(batch_, &b_).ok());
    ASSERT_LT(b_.uses.size(), a_.uses.size());
    test::RandomValues(&b_, 0.3f, 2);
    for (size_t v = 0; v < b_.uses.size(); ++v) CopyValues(v);
    EXPECT_NEAR(apart_->Train(batch_, &a_).value(), shared_->Train(batch_, &b_).value(), 1e-6);
    for (size_t v = 0; v < b_.uses.size(); ++v) ExpectGradient(v);
  }

 private:
  using Floats = HostVector<float> VariableUse::*;

  static ModelConfig With(ModelConfig config, const std::string& tables) {
    config.tables = tables;
    return config;
  }

  // Calls visit(use, ids of the shared use from there on) for the uses of apart_ that make up
  // shared_'s use `v`.
  template <typename Visit>
  void ForEachPart(size_t v, Visit visit) {
    const VariableSpec& spec = shared_->variables()[v];
    const bool table = spec.kind == VariableKind::kEmbedding;
    const std::string prefix = spec.name.substr(0, spec.name.find('/') + 1);
    size_t begin = 0;
    for (size_t i = 0; i < a_.uses.size(); ++i) {
      const VariableSpec& other = apart_->variables()[i];
      const bool part = other.kind == spec.kind &&
                        (table ? absl::StartsWith(other.name, prefix) : other.name == spec.name);
      if (!part) continue;
      visit(a_.uses[i], begin);
      if (!one_vocabulary_) begin += a_.uses[i].ids.size();
    }
  }

  // Calls visit(i, j) for each float i of `use` and float j of shared_'s use `v` that belong to one
  // another.
  template <typename Visit>
  void ForEachFloat(const VariableUse& use, size_t v, size_t begin, Visit visit) {
    const VariableSpec& spec = shared_->variables()[v];
    if (spec.kind != VariableKind::kEmbedding) {
      for (size_t i = 0; i < use.values.size(); ++i) visit(i, i);
      return;
    }
    const auto width = static_cast<size_t>(spec.shape[0]);
    for (size_t row = 0; row < use.ids.size(); ++row) {
      size_t other = begin + row;
      if (one_vocabulary_) {
        const auto found = std::ranges::find(b_.uses[v].ids, use.ids[row]);
        other = static_cast<size_t>(found - b_.uses[v].ids.begin());
      }
      ASSERT_LT(other, b_.uses[v].ids.size());
      for (size_t i = 0; i < width; ++i) visit(row * width + i, other * width + i);
    }
  }

  void CopyValues(size_t v) {
    const std::vector<int64_t>& ids = b_.uses[v].ids;
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), ids.size()) << "not distinct";
    ForEachPart(v, [&](VariableUse& use, size_t begin) {
      ForEachFloat(use, v, begin,
                   [&](size_t i, size_t j) { use.values[i] = b_.uses[v].values[j]; });
    });
  }

  void ExpectGradient(size_t v) {
    std::vector<float> want(b_.uses[v].gradient.size());
    ForEachPart(v, [&](VariableUse& use, size_t begin) {
      ForEachFloat(use, v, begin, [&](size_t i, size_t j) { want[j] += use.gradient[i]; });
    });
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(b_.uses[v].gradient[i], want[i], 1e-6) << shared_->variables()[v].name;
    }
  }

  const std::unique_ptr<Model> shared_, apart_;
  const bool one_vocabulary_;
  const Batch batch_;
  StepState a_, b_;
};

TEST(Model, AStepOverASharedTableIsTheSame) {
  const Schema named{.dense_columns = 3, .key_columns = 4, .keys_name_columns = true};
  const Schema alike{.dense_columns = 3, .key_columns = 4};
  for (const std::string type : {"mlp", "fm", "wide_deep", "dlrm"}) {
    for (const int64_t hash_buckets : {0, 3}) {
      if (type == "fm" && hash_buckets > 0) continue;
      for (const std::string tables : {"shared", "shared_vocabulary"}) {
        SCOPED_TRACE(absl::StrCat(type, " ", hash_buckets, " ", tables));
        ModelConfig config{.type = type, .hidden = {6}, .factors = 5, .tables = tables};
        config.embedding.dim = 3;
        config.embedding.hash_buckets = hash_buckets;
        SharedStep(config, tables == "shared" ? named : alike).Expect();
      }
    }
  }
}

TEST(Model, TheJobsInitializerGoesToKernelsAlone) {
  ModelConfig config{.type = "mlp", .hidden = {4}, .init_given = true};
  config.init = {.type = "wave", .arguments = {{"scale", 0.05}}};
  const auto model = Make(config, kCriteo);
  for (const VariableSpec& spec : model->variables()) {
    const bool kernel = spec.name.find("kernel") != std::string::npos;
    EXPECT_EQ(spec.initializer.type == "wave", kernel) << spec.name;
  }
}

TEST(Model, KeysAreAskedForOnceEachAndPositionsLeadToThem) {
  const auto model = Make({.type = "wide_deep", .hidden = {4}}, kCriteo);
  const Batch batch = test::RandomBatch(kCriteo, 50, 1, 1);
  StepState state;
  ASSERT_TRUE(model->Plan(batch, &state).ok());
  ASSERT_EQ(state.positions.size(), 50u * 26);
  for (size_t c = 0; c < 26; ++c) {
    const VariableUse& wide = state.uses[c];
    const VariableUse& embedding = state.uses[27 + c];
    ASSERT_EQ(embedding.part, Part::kKeys);
    EXPECT_EQ(wide.ids, embedding.ids);
    EXPECT_EQ(wide.values.size(), wide.ids.size());
    EXPECT_EQ(embedding.values.size(), 16 * embedding.ids.size());
    EXPECT_EQ(std::set<int64_t>(wide.ids.begin(), wide.ids.end()).size(), wide.ids.size());
    for (size_t r = 0; r < 50; ++r) {
      const size_t position = static_cast<size_t>(state.positions[c * 50 + r]);
      ASSERT_EQ(wide.ids[position], batch.keys[r * 26 + c]);
    }
  }
}

TEST(Model, HashBucketsBoundTheKeys) {
  ModelConfig config{.type = "mlp", .hidden = {4}};
  config.embedding.hash_buckets = 3;
  const auto model = Make(config, kCriteo);
  const Batch batch = test::RandomBatch(kCriteo, 200, 1, 1);
  StepState state;
  ASSERT_TRUE(model->Plan(batch, &state).ok());
  // Column c has the buckets from 3 c on.
  ASSERT_EQ(state.distinct.size(), 26u);
  auto id = state.uses[0].ids.begin();
  for (int64_t c = 0; c < 26; ++c) {
    EXPECT_LE(state.distinct[static_cast<size_t>(c)], 3u);
    for (size_t i = 0; i < state.distinct[static_cast<size_t>(c)]; ++i, ++id) {
      EXPECT_TRUE(*id >= 3 * c && *id < 3 * (c + 1)) << *id << " in column " << c;
    }
  }
  EXPECT_EQ(id, state.uses[0].ids.end());
}

// Fills the same kernel by rows or whole, and expects the same loss and gradient.
TEST(Model, SparseRowsAndTheWholeVariableGiveTheSameGradient) {
  const Schema narrow{.sparse_columns = 600}, wide{.sparse_columns = 100000};
  const auto whole = Make({.type = "linear", .classes = 2}, narrow);
  const auto by_rows = Make({.type = "linear", .classes = 2}, wide);
  const Batch batch = test::RandomBatch(narrow, 64, 2, 1);
  StepState a, b;
  ASSERT_TRUE(whole->Plan(batch, &a).ok());
  ASSERT_TRUE(by_rows->Plan(batch, &b).ok());
  ASSERT_EQ(a.uses[0].part, Part::kWhole);
  ASSERT_EQ(b.uses[0].part, Part::kRows);
  test::RandomValues(&a, 0.3f, 2);
  const std::vector<int64_t>& ids = b.uses[0].ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t row = static_cast<size_t>(ids[i]);
    std::copy_n(&a.uses[0].values[2 * row], 2, &b.uses[0].values[2 * i]);
  }
  b.uses[1].values = a.uses[1].values;
  EXPECT_EQ(whole->Train(batch, &a).value(), by_rows->Train(batch, &b).value());
  double elsewhere = 0, everywhere = 0;
  for (const float g : a.uses[0].gradient) everywhere += std::abs(g);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t c = 0; c < 2; ++c) {
      const float want = a.uses[0].gradient[2 * static_cast<size_t>(ids[i]) + c];
      EXPECT_EQ(b.uses[0].gradient[2 * i + c], want);
      elsewhere += std::abs(want);
    }
  }
  EXPECT_DOUBLE_EQ(elsewhere, everywhere);
}

TEST(Model, AnMlpSeesSparseAndDenseRowsAlike) {
  const Schema sparse{.sparse_columns = 30}, dense{.dense_columns = 30};
  const ModelConfig config{.type = "mlp", .hidden = {9}};
  const auto sparse_model = Make(config, sparse), dense_model = Make(config, dense);
  for (const int64_t gap : {1, 9}) {  // full rows, and rows that stay sparse
    Batch batch{.rows = 8};
    batch.dense.assign(8 * 30, 0.0f);
    batch.row_offsets = {0};
    for (int64_t r = 0; r < 8; ++r) {
      batch.labels.push_back(static_cast<float>(r % 2));
      for (int64_t c = r % gap; c < 30; c += gap) {
        batch.columns.push_back(static_cast<int32_t>(c));
        batch.values.push_back(static_cast<float>(c - r) / 10);
        batch.dense[static_cast<size_t>(30 * r + c)] = batch.values.back();
      }
      batch.row_offsets.push_back(static_cast<int64_t>(batch.columns.size()));
    }
    StepState a, b;
    HostVector<float> dense_rows;
    dense_rows.swap(batch.dense);
    ASSERT_TRUE(sparse_model->Plan(batch, &a).ok());
    test::RandomValues(&a, 0.3f, 2);
    const double sparse_loss = sparse_model->Train(batch, &a).value();
    batch.dense.swap(dense_rows);
    ASSERT_TRUE(dense_model->Plan(batch, &b).ok());
    test::RandomValues(&b, 0.3f, 2);
    EXPECT_NEAR(sparse_loss, dense_model->Train(batch, &b).value(), 1e-6);
    for (size_t v = 0; v < a.uses.size(); ++v) {
      for (size_t i = 0; i < a.uses[v].gradient.size(); ++i) {
        EXPECT_NEAR(a.uses[v].gradient[i], b.uses[v].gradient[i], 1e-6);
      }
    }
  }
}

TEST(Model, PredictGivesTheScoresThatTrainUses) {
  const auto model = Make({.type = "linear", .classes = 3}, {.dense_columns = 2});
  const Batch batch = test::RandomBatch({.dense_columns = 2}, 4, 3, 1);
  StepState state;
  ASSERT_TRUE(model->Plan(batch, &state).ok());
  test::RandomValues(&state, 1.0f, 2);
  std::vector<float> scores;
  ASSERT_TRUE(model->Predict(batch, &state, &scores).ok());
  ASSERT_EQ(scores.size(), 12u);
  for (size_t r = 0; r < 4; ++r) {
    for (size_t c = 0; c < 3; ++c) {
      const HostVector<float>& w = state.uses[0].values;
      const float want =
          batch.dense[2 * r] * w[c] + batch.dense[2 * r + 1] * w[3 + c] + state.uses[1].values[c];
      EXPECT_NEAR(scores[3 * r + c], want, 1e-5);
    }
  }
}

TEST(Model, TheSameStepGivesTheSameBits) {
  const auto model = Make({.type = "dlrm"}, kCriteo);
  const Batch batch = test::RandomBatch(kCriteo, 100, 1, 1);
  const Batch other = test::RandomBatch(kCriteo, 37, 1, 8);
  StepState first, used;
  ASSERT_TRUE(model->Plan(batch, &first).ok());
  test::RandomValues(&first, 0.3f, 2);
  const double loss = model->Train(batch, &first).value();
  ASSERT_TRUE(model->Plan(other, &used).ok());  // leaves its own contents behind
  test::RandomValues(&used, 5.0f, 3);
  ASSERT_TRUE(model->Train(other, &used).ok());
  ASSERT_TRUE(model->Plan(batch, &used).ok());
  test::RandomValues(&used, 0.3f, 2);
  EXPECT_EQ(model->Train(batch, &used).value(), loss);
  for (size_t v = 0; v < used.uses.size(); ++v) {
    EXPECT_EQ(used.uses[v].gradient, first.uses[v].gradient) << model->variables()[v].name;
  }
}

TEST(Model, AnEmptyBatchHasNoLossAndZeroGradients) {
  const auto model = Make({.type = "dlrm"}, kCriteo);
  StepState state;
  const Batch some = test::RandomBatch(kCriteo, 3, 1, 1);
  ASSERT_TRUE(model->Plan(some, &state).ok());
  test::RandomValues(&state, 0.3f, 2);
  ASSERT_TRUE(model->Train(some, &state).ok());
  ASSERT_TRUE(model->Plan({}, &state).ok());
  EXPECT_EQ(model->Train({}, &state).value(), 0.0);
  for (const VariableUse& use : state.uses) {
    EXPECT_TRUE(
        std::all_of(use.gradient.begin(), use.gradient.end(), [](float g) { return g == 0.0f; }));
  }
}

TEST(Model, RefusesDataThatDoesNotFit) {
  EXPECT_THAT(Refusal({.type = "linaer"}, kCriteo), HasSubstr("did you mean 'linear'"));
  EXPECT_THAT(Refusal({.type = "linear"}, {}), HasSubstr("no columns"));
  EXPECT_THAT(Refusal({.type = "linear"}, kCriteo), HasSubstr("wide_deep"));
  EXPECT_THAT(Refusal({.type = "dlrm"}, {.key_columns = 26}), HasSubstr("dense columns"));
  EXPECT_THAT(Refusal({.type = "wide_deep"}, {.dense_columns = 3}), HasSubstr("key columns"));
  EXPECT_THAT(Refusal({.type = "skip_gram"}, kCriteo), HasSubstr("found 26 key, 13 dense"));
  EXPECT_THAT(Refusal({.type = "mlp"}, {.sparse_columns = 3, .dense_columns = 2}),
              HasSubstr("data.format csv"));
  EXPECT_THAT(Refusal({.type = "linear"}, {.sparse_columns = int64_t{1} << 31}),
              HasSubstr("31 bits"));
}

TEST(Model, RefusesLossesThatDoNotFit) {
  const Schema dense{.dense_columns = 2};
  EXPECT_THAT(Refusal({.type = "linear", .loss = "softmax_cross_entropy"}, dense),
              HasSubstr("at least 2"));
  EXPECT_THAT(Refusal({.type = "mlp", .loss = "mean_squared_error", .classes = 2}, dense),
              HasSubstr("model.classes is 2"));
  EXPECT_THAT(Refusal({.type = "fm", .loss = "softmax_cross_entropy"}, dense),
              HasSubstr("one output"));
  EXPECT_THAT(Refusal({.type = "skip_gram", .loss = "mean_squared_error"}, {.key_columns = 2}),
              HasSubstr("labels are 0 and 1"));
  EXPECT_THAT(Refusal({.type = "linear", .loss = "hinge"}, dense), HasSubstr("unknown"));
  ModelConfig wave{.type = "skip_gram", .init_given = true};
  wave.init.type = "wave";
  EXPECT_THAT(Refusal(wave, {.key_columns = 2}), HasSubstr("model.init"));
}

TEST(Model, RefusesBatchesThatAreOutOfRange) {
  const auto linear = Make({.type = "linear", .classes = 3}, {.sparse_columns = 4});
  StepState state;
  const auto message = [&](const Batch& batch) {
    return std::string(linear->Plan(batch, &state).message());
  };
  Batch batch{.rows = 1, .labels = {3}, .row_offsets = {0, 1}, .columns = {3}, .values = {1}};
  EXPECT_THAT(message(batch), HasSubstr("label 3, expected a whole number in [0, 3)"));
  batch.labels = {0.5f};
  EXPECT_THAT(message(batch), HasSubstr("label 0.5"));
  batch.labels = {2};
  EXPECT_EQ(message(batch), "");
  batch.columns = {4};
  EXPECT_THAT(message(batch), HasSubstr("column 4 (counted from 0) is outside [0, 4)"));
  batch.columns = {-1};
  EXPECT_THAT(message(batch), HasSubstr("column -1"));
  batch.values.clear();
  EXPECT_THAT(message(batch), HasSubstr("0 sparse values, expected 1"));
  StepState fresh;
  EXPECT_EQ(linear->Train(batch, &fresh).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cairn
