// A job file is read as documented: its values, its defaults, its paths.
#include "common/config/job_config.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/config/job_text.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

JobConfig Parse(absl::string_view text, std::vector<std::string> overrides = {}) {
  const auto job =
      ParseJob(text, "jobs/a9a.yaml", {.overrides = std::move(overrides), .check_files = false});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

void ExpectDefaults(const JobConfig& job) {
  EXPECT_EQ(job.name, "a9a");
  EXPECT_EQ(job.model.classes, 1);
  EXPECT_THAT(job.model.hidden, ElementsAre(128));
  EXPECT_EQ(job.model.factors, 8);
  EXPECT_EQ(job.model.embedding.dim, 16);
  EXPECT_EQ(job.model.embedding.hash_buckets, 0);
  EXPECT_EQ(job.model.embedding.admit_after_pushes, 1);
  EXPECT_EQ(job.model.embedding.expire_after_seconds, 0);
  EXPECT_EQ(job.model.embedding.max_rows, 0);
  EXPECT_EQ(job.model.embedding.row_storage.storage, RowStorage());
  EXPECT_THAT(job.model.embedding.row_storage.per_table, IsEmpty());
  EXPECT_EQ(job.data.index_base, 1);
  EXPECT_EQ(job.data.label_base, 0);
  EXPECT_EQ(job.data.batch_size, 128);
  EXPECT_EQ(job.data.epochs, 1);
  EXPECT_EQ(job.data.max_steps, 0);
  EXPECT_FALSE(job.data.drop_remainder);
  EXPECT_EQ(job.data.shuffle_buffer_rows, 0);
  EXPECT_EQ(job.data.shuffle_seed, 1);
  EXPECT_EQ(job.data.auto_shard, "auto");
  EXPECT_EQ(job.optimizer.type, "sgd");
  EXPECT_THAT(job.per_variable, IsEmpty());
  EXPECT_EQ(job.not_finite, "reject");
  EXPECT_EQ(job.strategy.type, "parameter_server");
  EXPECT_EQ(job.strategy.consistency, "async");
  EXPECT_EQ(job.strategy.pull_ahead_steps, 0);
  EXPECT_EQ(job.strategy.ps_wait_seconds, 60);
  EXPECT_EQ(job.strategy.partitioner.type, "min_size");
  EXPECT_EQ(job.strategy.partitioner.min_shard_bytes, 262144);
  EXPECT_EQ(job.strategy.partitioner.max_shards, 0);
  EXPECT_EQ(job.storage.directory, "cairn-data");
  EXPECT_EQ(job.storage.durability, "snapshot");
  EXPECT_EQ(job.storage.snapshot_interval_seconds, 5);
  EXPECT_EQ(job.storage.memory_budget_bytes, 0);
  EXPECT_EQ(job.evaluation.every_steps, 0);
  EXPECT_EQ(job.evaluation.checkpoint_wait_seconds, 600);
  EXPECT_EQ(job.output.metrics_file, "");
  EXPECT_EQ(job.output.export_file, "");
  EXPECT_EQ(job.output.tensorboard, "");
  EXPECT_FALSE(job.has_cluster);
}

TEST(Job, TheDocumentedExampleIsReadCompletely) {
  const JobConfig job = Parse(kManualJob);
  ExpectDefaults(job);
  EXPECT_EQ(job.model.type, "linear");
  EXPECT_EQ(job.model.loss, "sigmoid_cross_entropy");
  EXPECT_TRUE(job.model.init_given);
  EXPECT_EQ(job.model.init.type, "normal");
  EXPECT_EQ(job.model.init.arguments.at("stddev"), 0.05);
  EXPECT_EQ(job.model.init.seed, 1);
  EXPECT_EQ(job.data.format, "libsvm");
  EXPECT_EQ(job.data.features, 123);
  EXPECT_EQ(job.data.train.at(0).path, "jobs/train.libsvm");
  EXPECT_EQ(job.data.eval.at(0).path, "jobs/test.libsvm");
  EXPECT_EQ(job.optimizer.learning_rate, ConstantRate(0.1));
  EXPECT_THAT(job.strategy.devices, ElementsAre("cpu:0"));
}

TEST(Job, OmittedKeysHaveTheDocumentedDefaults) {
  const JobConfig job = Parse(kShortJob);
  ExpectDefaults(job);
  EXPECT_EQ(job.optimizer, OptimizerConfig());  // Keras' defaults
  EXPECT_FALSE(job.model.init_given);
  EXPECT_THAT(job.warnings, IsEmpty());
}

// The documentation of the keys is a job file, so that it cannot drift from the implementation.
TEST(Job, TheReferenceShowsEveryKeyWithItsDefault) {
  const char* const source = std::getenv("CAIRN_SOURCE_ROOT");
  ASSERT_NE(source, nullptr) << "set by Meson";
  const auto job =
      ReadJobFile(std::string(source) + "/examples/reference/job.yaml", {.check_files = false});
  ASSERT_TRUE(job.ok()) << job.status();
  ExpectDefaults(*job);
  const ModelConfig defaults;
  EXPECT_EQ(job->model.bottom_hidden, defaults.bottom_hidden);
  EXPECT_EQ(job->model.top_hidden, defaults.top_hidden);
  EXPECT_EQ(job->model.window, defaults.window);
  EXPECT_EQ(job->model.negatives, defaults.negatives);
  EXPECT_EQ(job->model.min_count, defaults.min_count);
  EXPECT_EQ(job->model.subsample, defaults.subsample);
  EXPECT_EQ(job->data.label_column, DataConfig().label_column);
  EXPECT_EQ(job->optimizer, OptimizerConfig());  // Keras' learning rate of sgd
}

// The error for an unknown key lists all known keys; each of them is in the reference.
TEST(Job, TheReferenceHasEveryKey) {
  const std::string text =
      FileText(std::string(std::getenv("CAIRN_SOURCE_ROOT")) + "/examples/reference/job.yaml");
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n:,{}[]().;"), absl::SkipEmpty());
  const std::string known_keys = "known keys: ";
  for (const char* section :
       {"", "model.", "model.embedding.", "model.embedding.row_storage.", "data.", "data.shuffle.",
        "optimizer.", "strategy.", "strategy.partitioner.", "strategy.communication.",
        "strategy.wire.", "storage.", "checkpoint.", "checkpoint.warm_start.", "evaluation.",
        "output."}) {
    const std::string unknown = absl::StrCat(section, "zzz=1");
    const auto job =
        ParseJob(kShortJob, "a9a.yaml", {.overrides = {unknown}, .check_files = false});
    const std::string message(job.status().message());
    const size_t at = message.find(known_keys);
    ASSERT_NE(at, std::string::npos) << unknown << ": " << job.status();
    const absl::string_view known = absl::string_view(message).substr(at + known_keys.size());
    for (const absl::string_view key : absl::StrSplit(known, ", ")) {
      // Keys that this version does not build are refused by name.
      const absl::Status refused =
          ParseJob(kShortJob, "a9a.yaml",
                   {.overrides = {absl::StrCat(section, key, "=")}, .check_files = false})
              .status();
      if (absl::IsUnimplemented(refused)) continue;
      EXPECT_THAT(words, Contains(std::string(key))) << section << key;
    }
  }
}

TEST(Job, TheLossFollowsTheModel) {
  EXPECT_EQ(Parse(kShortJob).model.loss, "sigmoid_cross_entropy");
  EXPECT_EQ(Parse(kShortJob, {"model.classes=3"}).model.loss, "softmax_cross_entropy");
  EXPECT_EQ(Parse(kShortJob, {"model.type=matrix_factorization"}).model.loss, "mean_squared_error");
}

TEST(Job, KeysThatNothingReadsAreWarnings) {
  EXPECT_THAT(
      Parse(kManualJob).warnings,
      IsSupersetOf(
          {"jobs/a9a.yaml:6: model.hidden does nothing with model.type: linear; it is for mlp, "
           "wide_deep",
           "jobs/a9a.yaml:9: model.init does nothing with model.type: linear; it is for mlp, "
           "fm, wide_deep, dlrm, matrix_factorization, skip_gram",
           "jobs/a9a.yaml:31: strategy.staleness_bound_steps does nothing with "
           "strategy.consistency: async; it is for ssp"}));
  const auto warnings = [](std::vector<std::string> sets) {
    return Parse(kShortJob, std::move(sets)).warnings;
  };
  EXPECT_THAT(warnings({"model.subsample=0"}),
              ElementsAre("--set: model.subsample does nothing with data.format: libsvm; it is for "
                          "text"));
  EXPECT_THAT(warnings({"checkpoint.keep=5"}),
              ElementsAre("--set: checkpoint.keep does nothing without checkpoint.directory"));
  EXPECT_THAT(warnings({"data.shuffle={seed: 2}"}),
              ElementsAre("--set: data.shuffle.seed does nothing without data.shuffle.buffer_rows "
                          "above 1"));
  // Embeddings need keys, whatever the model.
  EXPECT_THAT(warnings({"model={type: mlp, embedding: {dim: 4}}"}),
              ElementsAre(HasSubstr("model.embedding does nothing with data.format: libsvm")));
  const JobConfig linear = Parse(kShortJob, {"model.embedding={admit_after_pushes: 2}"});
  EXPECT_EQ(linear.model.embedding.admit_after_pushes, 1);
}

TEST(Job, KeysOfAnInProcessServerAreListedForJobsWithACluster) {
  const JobConfig job = Parse(kShortJob, {"storage.directory=x", "storage.durability=log"});
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_THAT(job.in_process_warnings,
              ElementsAre(HasSubstr("--set: storage.directory does nothing"),
                          HasSubstr("--set: storage.durability")));
}

TEST(Job, RowStorageAppliesToAllOrToMatchingTables) {
  const JobConfig job =
      Parse(kShortJob, {"model.type=wide_deep",
                        "model.embedding={row_storage: {values: int8, slots: bfloat16, per_table: "
                        "[{match: 'wide/*', values: float16}, {match: '*', slots: float16}]}}"});
  const RowStorageConfig& storage = job.model.embedding.row_storage;
  EXPECT_EQ(storage.storage,
            (RowStorage{.values = RowFormat::kInt8, .slots = RowFormat::kBFloat16}));
  // An entry sets both formats of a table.
  EXPECT_EQ(RowStorageFor(storage, "wide/keys"), (RowStorage{.values = RowFormat::kFloat16}));
  EXPECT_EQ(RowStorageFor(storage, "embedding/keys"), (RowStorage{.slots = RowFormat::kFloat16}));
  EXPECT_EQ(RowStorageFor({.storage = storage.storage, .per_table = {}}, "wide/keys"),
            storage.storage);
}

TEST(Job, SchedulesTakeKerasArguments) {
  const JobConfig job =
      Parse(kShortJob, {"optimizer.learning_rate={type: cosine_decay, initial_learning_rate: 0.1, "
                        "decay_steps: 100, alpha: 0.01, warmup_target: null}"});
  EXPECT_EQ(job.optimizer.learning_rate.type, "cosine_decay");
  EXPECT_EQ(job.optimizer.learning_rate.arguments.at("decay_steps"), 100);
  EXPECT_EQ(job.optimizer.learning_rate.arguments.count("warmup_target"), 0u);
  const JobConfig steps = Parse(
      kShortJob, {"optimizer.learning_rate={type: piecewise_constant_decay, boundaries: [10, 20], "
                  "values: [0.1, 0.01, 0.001]}"});
  EXPECT_THAT(steps.optimizer.learning_rate.boundaries, ElementsAre(10, 20));
  EXPECT_THAT(steps.optimizer.learning_rate.values, ElementsAre(0.1, 0.01, 0.001));
  const JobConfig stairs = Parse(
      kShortJob, {"optimizer.learning_rate={type: exponential_decay, initial_learning_rate: 0.1, "
                  "decay_steps: 10, decay_rate: 0.9, staircase: true}"});
  EXPECT_EQ(stairs.optimizer.learning_rate.arguments.at("staircase"), 1);
}

TEST(Job, OptimizerArgumentsAreKerasNames) {
  const JobConfig job =
      Parse(kShortJob, {"optimizer={type: adam, learning_rate: 0.01, beta_1: 0.8, amsgrad: true, "
                        "weight_decay: null, clipnorm: 2, not_finite: skip}"});
  EXPECT_EQ(job.optimizer.type, "adam");
  EXPECT_EQ(job.optimizer.arguments.at("beta_1"), 0.8);
  EXPECT_EQ(job.optimizer.arguments.at("amsgrad"), 1);
  EXPECT_EQ(job.optimizer.arguments.count("weight_decay"), 0u);
  EXPECT_EQ(job.optimizer.clipnorm, 2);
  EXPECT_EQ(job.not_finite, "skip");
}

TEST(Job, TheFirstMatchingVariableOptimizerWins) {
  const JobConfig job = Parse(
      kShortJob,
      {"optimizer.per_variable=[{match: 'dense_*/bias', type: sgd}, {match: 'dense_0/*', type: "
       "adagrad}, {match: '*embed*', type: ftrl}]"});
  EXPECT_EQ(OptimizerFor(job, "dense_0/bias").type, "sgd");
  EXPECT_EQ(OptimizerFor(job, "dense_0/kernel").type, "adagrad");
  EXPECT_EQ(OptimizerFor(job, "embedding/C1").type, "ftrl");
  EXPECT_EQ(&OptimizerFor(job, "kernel"), &job.optimizer);
}

TEST(Job, TheWidePartOfWideAndDeepUsesFtrlByDefault) {
  const JobConfig job =
      Parse(kShortJob, {"model.type=wide_deep", "optimizer={type: adagrad, learning_rate: 0.05}"});
  EXPECT_EQ(OptimizerFor(job, "wide/C1").type, "ftrl");
  EXPECT_EQ(OptimizerFor(job, "wide/C1").learning_rate, ConstantRate(0.05));
  EXPECT_EQ(OptimizerFor(job, "embedding/C1").type, "adagrad");
  const JobConfig other = Parse(
      kShortJob, {"model.type=wide_deep", "optimizer.per_variable=[{match: '*', type: adam}]"});
  EXPECT_EQ(OptimizerFor(other, "wide/C1").type, "adam");
}

TEST(Job, MayContainItsCluster) {
  const JobConfig job =
      Parse(std::string(kShortJob) + "cluster: {ps: ['p:1'], worker: ['w:1'], tpu: []}\n");
  EXPECT_TRUE(job.has_cluster);
  EXPECT_THAT(job.cluster.addresses("ps"), ElementsAre("p:1"));
  EXPECT_THAT(job.cluster.warnings, ElementsAre(HasSubstr("'tpu'")));
}

TEST(Job, TheDefaultNameIsTheFilesName) {
  const JobOptions options = {.check_files = false};
  EXPECT_EQ(ParseJob(kShortJob, "x/y.z.yml", options)->name, "y.z");
  EXPECT_EQ(ParseJob(kShortJob, "job", options)->name, "job");
  EXPECT_EQ(ParseJob(std::string(kShortJob) + "name: other\n", "job", options)->name, "other");
}

class JobFiles : public ::testing::Test {
 protected:
  void Write(const std::string& name, absl::string_view text) {
    std::ofstream(folder_.Join(name), std::ios::binary) << text;
  }
  absl::StatusOr<JobConfig> Read(std::vector<std::string> overrides, std::string data_root = "") {
    Write("job.yaml", kShortJob);
    return ReadJobFile(folder_.Join("job.yaml"),
                       {.data_root = data_root, .overrides = std::move(overrides)});
  }
  const TempDir folder_;
};

TEST_F(JobFiles, GlobsAreExpandedAndSorted) {
  for (const char* name : {"b.gz", "a.gz", "c.txt"}) Write(name, "");
  const auto job = Read({"data.train=['*.gz', c.txt]"});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->data.train.size(), 3u);
  EXPECT_EQ(job->data.train[0].path, folder_.Join("a.gz"));
  EXPECT_EQ(job->data.train[1].path, folder_.Join("b.gz"));
  EXPECT_EQ(job->data.train[2].path, folder_.Join("c.txt"));
}

TEST_F(JobFiles, AnExistingFileWithAGlobLikeNameIsFound) {
  Write("a[1].txt", "");
  const auto job = Read({"data.train='a[1].txt'"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data.train[0].path, folder_.Join("a[1].txt"));
}

TEST_F(JobFiles, DataRootComesBeforeTheJobsFolder) {
  const TempDir root;
  std::ofstream(root.Join("t.txt")) << "x";
  const auto job = Read({"data.train=t.txt"}, root.path());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data.train[0].path, root.Join("t.txt"));
  const auto absolute = Read({"data.train=" + folder_.Join("job.yaml")}, root.path());
  ASSERT_TRUE(absolute.ok()) << absolute.status();
  EXPECT_EQ(absolute->data.train[0].path, folder_.Join("job.yaml"));
}

TEST_F(JobFiles, IdxPairsImagesWithLabels) {
  for (const char* name : {"i0", "i1", "l0", "l1"}) Write(name, "");
  const auto job = Read({"data.format=idx", "data.train=[{images: 'i?', labels: 'l?'}]"});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->data.train.size(), 2u);
  EXPECT_EQ(job->data.train[1].path, folder_.Join("i1"));
  EXPECT_EQ(job->data.train[1].labels, folder_.Join("l1"));
  EXPECT_THAT(
      std::string(
          Read({"data.format=idx", "data.train=[{images: 'i?', labels: l0}]"}).status().message()),
      HasSubstr("2 image files and 1 label files"));
  EXPECT_THAT(std::string(Read({"data.format=idx", "data.train=[i0]"}).status().message()),
              HasSubstr("data.train[0]: found \"i0\", expected an idx pair"));
}

TEST_F(JobFiles, UnreadableFilesAreRefusedWithTheSearchedFolder) {
  const auto refusal = [&](const std::string& train, const std::string& root) {
    return std::string(Read({"data.train=" + train}, root).status().message());
  };
  EXPECT_THAT(refusal("none.txt", ""),
              HasSubstr("none.txt: No such file or directory; relative paths start at the job "
                        "file's directory, or give --data_root"));
  EXPECT_THAT(refusal("none.txt", "/x"), HasSubstr("relative paths start at --data_root /x"));
  EXPECT_THAT(refusal("'*.none'", ""), HasSubstr("no file matches"));
  EXPECT_THAT(refusal("/tmp", ""), HasSubstr("is a directory"));
  EXPECT_THAT(refusal("''", ""), HasSubstr("expected a path or a glob"));
}

TEST(Job, EveryExampleIsAValidJobWithoutWarnings) {
  const char* const source = std::getenv("CAIRN_SOURCE_ROOT");
  ASSERT_NE(source, nullptr) << "set by Meson";
  int read = 0;
  for (const char* folder : {"/examples", "/examples/clicks"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(source) + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      const auto job = ReadJobFile(entry.path().string(), {.check_files = false});
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_THAT(job->warnings, IsEmpty()) << entry.path();
      ++read;
    }
  }
  EXPECT_GE(read, 9);
}

TEST_F(JobFiles, AMissingJobFileIsNotFound) {
  EXPECT_EQ(ReadJobFile(folder_.Join("none.yaml"), {}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn
