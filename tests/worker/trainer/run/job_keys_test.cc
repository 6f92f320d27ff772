// Every key of the reference job file is read or reported, with every model, format and strategy: a
// run with another value of the key has a different outcome, unless a warning names the key. And
// keys that a warning reports as unused have no effect.
#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_node.h"
#include "gmock/gmock.h"
#include "tests/support/file_text.h"
#include "tests/worker/trainer/engines.h"
#include "worker/input/random.h"

namespace cairn::test {
namespace {

// A value of a key that differs from the bases' value.
struct Change {
  std::string key;
  std::vector<std::string> sets;
};

const std::vector<Change>& Changes() {
  static const auto* const kChanges = new std::vector<Change>{
      {"model.loss", {"model.loss=mean_squared_error"}},  // the default of matrix_factorization
      {"model.classes", {"model.classes=3", "model.loss=softmax_cross_entropy"}},
      {"model.hidden", {"model.hidden=[3]"}},
      {"model.bottom_hidden", {"model.bottom_hidden=[3]"}},
      {"model.top_hidden", {"model.top_hidden=[3]"}},
      {"model.factors", {"model.factors=3"}},
      {"model.tables", {"model.tables=shared_vocabulary"}},
      {"model.embedding.dim", {"model.embedding.dim=3"}},
      {"model.embedding.hash_buckets", {"model.embedding.hash_buckets=5"}},
      {"model.embedding.admit_after_pushes", {"model.embedding.admit_after_pushes=3"}},
      {"model.embedding.expire_after_seconds", {"model.embedding.expire_after_seconds=1000"}},
      {"model.embedding.max_rows", {"model.embedding.max_rows=5"}},
      {"model.embedding.row_storage", {"model.embedding.row_storage={values: float16}"}},
      {"model.init", {"model.init={type: constant, value: 0.3}"}},
      {"model.window", {"model.window=1"}},
      {"model.negatives", {"model.negatives=1"}},
      {"model.min_count", {"model.min_count=30"}},
      {"model.subsample", {"model.subsample=0.01"}},
      {"data.features", {"data.features=12"}},
      {"data.index_base", {"data.index_base=0"}},
      {"data.label_base", {"data.label_base=-1"}},
      {"data.label_column", {"data.label_column=1"}},
      {"data.batch_size", {"data.batch_size=7"}},
      {"data.epochs", {"data.epochs=2"}},
      {"data.max_steps", {"data.max_steps=2"}},
      {"data.drop_remainder", {"data.drop_remainder=true"}},
      {"data.shuffle.buffer_rows", {"data.shuffle.buffer_rows=10"}},
      {"data.shuffle.seed", {"data.shuffle.seed=5"}},
      {"optimizer.type", {"optimizer={type: adam}"}},
      {"optimizer.learning_rate", {"optimizer.learning_rate=0.3"}},
      {"optimizer.per_variable",
       {"optimizer.per_variable=[{match: '*', type: sgd, learning_rate: 0.5}]"}},
      {"strategy.type", {"strategy.type=tpu"}},
      {"strategy.pull_ahead_steps", {"strategy.pull_ahead_steps=2"}},
      {"strategy.partitioner", {"strategy.partitioner={type: fixed_shards, num_shards: 2}"}},
      {"strategy.wire", {"strategy.wire={push: int8}"}},
      {"strategy.wire.pull", {"strategy.wire={pull: float16}"}},
      {"strategy.staleness_bound_steps", {"strategy.staleness_bound_steps=2"}},
      {"strategy.replicas_to_aggregate", {"strategy.replicas_to_aggregate=1"}},
      {"strategy.sync_mean", {"strategy.sync_mean=contributors"}},
      {"strategy.communication.implementation", {"strategy.communication.implementation=ring"}},
      {"strategy.communication.bytes_per_pack", {"strategy.communication.bytes_per_pack=5"}},
      {"strategy.communication.timeout_seconds", {"strategy.communication.timeout_seconds=5"}},
      {"strategy.communication.connect_timeout_seconds",
       {"strategy.communication.connect_timeout_seconds=5"}},
      {"strategy.cross_device_ops",
       {"strategy.devices=[cpu:0]", "strategy.cross_device_ops=reduction_to_one_device"}},
      {"strategy.matmul_precision",
       {"strategy.devices=[cpu:0]", "strategy.matmul_precision=bfloat16"}},
      {"strategy.deterministic", {"strategy.devices=[cpu:0]", "strategy.deterministic=true"}},
      {"storage.snapshot_interval_seconds",
       {"storage.durability=off", "storage.snapshot_interval_seconds=2"}},
      {"checkpoint.keep", {"checkpoint.keep=5"}},
      {"evaluation.every_steps", {"evaluation.every_steps=2"}},
  };
  return *kChanges;
}

// Keys that a short run of one worker on one machine cannot show to be read, and the test that
// does.
const std::set<std::string>& SeenElsewhere() {
  static const auto* const kKeys = new std::set<std::string>{
      "name",        // set by the base
      "model.type",  // set by the base, like the next three
      "data.format",
      "data.train",
      "data.eval",
      "model.embedding.vocabulary",  // has only one value
      "data.auto_shard",             // reader_test
      "data.parse_threads",          // reader_test
      "optimizer.not_finite",
      "optimizer.divergence",      // trainer_test
      "strategy.devices",          // replicated_model_test
      "strategy.consistency",      // consistency_test.py, sync_test.py
      "strategy.on_worker_loss",   // consistency_test.py
      "strategy.ps_wait_seconds",  // train_failures_test.py
      "storage.directory",
      "storage.durability",  // durability_test, in process
      "storage.memory_budget_bytes",
      "checkpoint.directory",
      "checkpoint.every_steps",
      "checkpoint.restore",                  // checkpoint_test.py
      "evaluation.checkpoint_wait_seconds",  // evaluator_test.py
      "output.metrics_file",
      "output.export",
      "output.tensorboard",
      "output.progress_seconds",
  };
  return *kKeys;
}

// A job: a model with data of a format.
struct Base {
  std::string model;
  std::string format;
};

const std::vector<Base>& Bases() {
  static const auto* const kBases = new std::vector<Base>{
      {"linear", "libsvm"},        {"linear", "csv"},      {"mlp", "libsvm"},
      {"mlp", "criteo_csv"},       {"fm", "libsvm"},       {"fm", "criteo_csv"},
      {"wide_deep", "criteo_csv"}, {"dlrm", "criteo_csv"}, {"matrix_factorization", "movielens"},
      {"skip_gram", "text"}};
  return *kBases;
}

class JobKeys : public ::testing::Test {
 protected:
  void SetUp() override {
    Random random(7);
    std::string libsvm, csv, criteo, ratings, text;
    for (int row = 0; row < 60; ++row) {
      const auto draw = [&](uint64_t below) {
        return static_cast<int>(random.Uniform() * static_cast<double>(below));
      };
      const int label = draw(2);
      absl::StrAppend(&libsvm, label, " ", 1 + draw(5), ":", 0.1 * draw(10), " ", 6 + draw(5),
                      ":1\n");
      absl::StrAppend(&csv, label, ",", draw(2), ",", 0.1 * draw(10), "\n");
      absl::StrAppend(&criteo, label);
      for (int i = 0; i < 13; ++i) absl::StrAppend(&criteo, ",", draw(5));
      for (int i = 0; i < 26; ++i) absl::StrAppend(&criteo, ",t", draw(8));
      absl::StrAppend(&criteo, "\n");
      absl::StrAppend(&ratings, draw(9), ",", draw(9), ",", 1 + draw(5), "\n");
      for (int i = 0; i < 5; ++i) absl::StrAppend(&text, "w", draw(6) * draw(6), " ");
    }
    std::ofstream(folder_.Join("libsvm")) << libsvm;
    std::ofstream(folder_.Join("csv")) << csv;
    std::ofstream(folder_.Join("criteo_csv")) << criteo;
    std::ofstream(folder_.Join("movielens")) << ratings;
    std::ofstream(folder_.Join("text")) << text;
  }

  absl::StatusOr<JobConfig> Parse(const Base& base, const std::vector<std::string>& sets) const {
    std::string text =
        absl::StrCat("name: j\nmodel: {type: ", base.model, "}\ndata: {format: ", base.format,
                     ", train: [", base.format, "], batch_size: 16}\n");
    std::vector<std::string> all;
    if (base.format == "libsvm") all.push_back("data.features=10");
    // So that a small text yields words and pairs.
    if (base.format == "text") all = {"model.min_count=1", "model.subsample=1"};
    all.insert(all.end(), sets.begin(), sets.end());
    return ParseJob(text, folder_.Join("j.yaml"), {.overrides = all});
  }

  // The variables that a run leaves on its server, and its counts.
  absl::StatusOr<std::string> Outcome(const JobConfig& job) {
    TrainerOptions options;
    options.job = job;
    options.job.name = absl::StrCat("j", ++jobs_);  // a new name
    options.stop_requested = [] { return false; };
    const absl::StatusOr<Report> report = RunTraining(options, engines_.connector());
    if (!report.ok()) return report.status();
    const std::unique_ptr<PsClient> client = engines_.Connect(options.job.name, -1);
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    absl::StatusOr<std::vector<VariableSpec>> specs = client->Describe(deadline);
    if (!specs.ok()) return specs.status();
    std::string text =
        absl::StrCat(report->steps, " steps, ", report->examples, " rows, pushed ",
                     report->counters.bytes_pushed, ", pulled ", report->counters.bytes_pulled);
    for (const VariableSpec& spec : *specs) {
      if (absl::StartsWith(spec.name, "cairn/")) continue;  // contains times
      absl::StrAppend(&text, "\n", SpecText(spec), " in ", spec.shards.size(), ":");
      const absl::Status scanned = client->Scan(
          spec.name,
          [&](int64_t key, absl::Span<const std::byte> values) {
            absl::StrAppend(
                &text, " ", key, "=",
                absl::string_view(reinterpret_cast<const char*>(values.data()), values.size()));
          },
          deadline);
      if (scanned.ok()) continue;
      std::vector<float> whole(static_cast<size_t>(RowCount(spec.shape) * RowWidth(spec.shape)));
      const PullTarget target{.variable = spec.name, .out = AsWritableBytes(absl::MakeSpan(whole))};
      const absl::Status pulled = client->Pull({target}, deadline);
      if (!pulled.ok()) return pulled;
      absl::StrAppend(&text, " ", absl::StrJoin(whole, " "));
    }
    EXPECT_OK(client->DropJob(deadline));
    return text;
  }

  // Whether a warning names the key, or a section that contains it.
  static bool Reports(const JobConfig& job, const std::string& key) {
    for (const std::string& warning : job.warnings) {
      for (std::string path = key; !path.empty();) {
        if (absl::StrContains(warning, absl::StrCat(": ", path, " does nothing"))) return true;
        const size_t dot = path.rfind('.');
        path = dot == std::string::npos ? "" : path.substr(0, dot);
      }
    }
    return false;
  }

  void CheckChange(const Base& base, const Change& change, const std::vector<std::string>& more,
                   const std::string& plain) {
    std::vector<std::string> sets = more;
    sets.insert(sets.end(), change.sets.begin(), change.sets.end());
    const absl::StatusOr<JobConfig> job = Parse(base, sets);
    if (!job.ok()) return;  // reported as an error
    if (Reports(*job, change.key) && change.sets.size() > 1) return;
    const absl::StatusOr<std::string> outcome = Outcome(*job);
    if (!outcome.ok()) return;  // reported as an error
    if (Reports(*job, change.key)) {
      EXPECT_EQ(*outcome, plain) << "reported as of no use, and changes the run";
    } else {
      EXPECT_NE(*outcome, plain) << "neither read nor reported";
    }
  }

  TempDir folder_;
  Engines engines_{1};
  int jobs_ = 0;
};

TEST_F(JobKeys, AreReadOrReportedWithEveryModel) {
  for (const Base& base : Bases()) {
    const absl::StatusOr<JobConfig> job = Parse(base, {});
    ASSERT_OK(job);
    const absl::StatusOr<std::string> plain = Outcome(*job);
    ASSERT_OK(plain);
    ASSERT_EQ(*Outcome(*job), *plain) << "runs differ by themselves";
    for (const Change& change : Changes()) {
      if (base.model == "matrix_factorization" && change.key == "model.loss") continue;
      SCOPED_TRACE(absl::StrCat(base.model, " over ", base.format, ": ", change.key));
      CheckChange(base, change, {}, *plain);
    }
  }
}

// Keys that this strategy reads but that do not affect a single worker.
bool ShowsNothing(absl::string_view strategy, absl::string_view key) {
  if (absl::EndsWith(strategy, "ssp")) return key == "strategy.staleness_bound_steps";
  if (absl::EndsWith(strategy, "sync")) {
    return key == "strategy.replicas_to_aggregate" || key == "strategy.sync_mean";
  }
  return absl::EndsWith(strategy, "multi_worker_mirrored") &&
         absl::StrContains(key, "communication");
}

TEST_F(JobKeys, AreReadOrReportedWithEveryStrategy) {
  const Base base = {"linear", "libsvm"};
  for (const char* strategy :
       {"strategy.consistency=ssp", "strategy.consistency=sync", "strategy.type=mirrored",
        "strategy.type=central_storage", "strategy.type=one_device", "strategy.type=default",
        "strategy.type=multi_worker_mirrored"}) {
    const absl::StatusOr<JobConfig> job = Parse(base, {strategy});
    ASSERT_OK(job);
    const absl::StatusOr<std::string> plain = Outcome(*job);
    ASSERT_OK(plain);
    for (const Change& change : Changes()) {
      if (ShowsNothing(strategy, change.key)) continue;
      SCOPED_TRACE(absl::StrCat(strategy, ": ", change.key));
      CheckChange(base, change, {strategy}, *plain);
    }
  }
}

void ListKeys(const ConfigNode& node, const std::string& path, std::set<std::string>* keys) {
  for (const ConfigNode& child : node.children) {
    const std::string at = path.empty() ? child.key : absl::StrCat(path, ".", child.key);
    // These sections are read as a whole.
    const bool whole = at == "model.init" || at == "model.embedding.row_storage" ||
                       at == "strategy.partitioner" || at == "strategy.wire";
    if (child.kind == ConfigNode::Kind::kMap && !whole) {
      ListKeys(child, at, keys);
    } else {
      keys->insert(at);
    }
  }
}

TEST_F(JobKeys, OfTheReferenceAreAllLookedAt) {
  const char* const source = std::getenv("CAIRN_SOURCE_ROOT");
  ASSERT_NE(source, nullptr) << "set by Meson";
  const std::string text = FileText(std::string(source) + "/examples/reference/job.yaml");
  const absl::StatusOr<ConfigNode> tree = ParseTree(text, "job.yaml");
  ASSERT_OK(tree);
  std::set<std::string> keys;
  ListKeys(*tree, "", &keys);
  std::set<std::string> changed;
  for (const Change& change : Changes()) changed.insert(change.key);
  for (const std::string& key : keys) {
    EXPECT_NE(changed.count(key) + SeenElsewhere().count(key), 0) << key;
  }
  EXPECT_GT(keys.size(), 60);
}

}  // namespace
}  // namespace cairn::test
