// Every kind of mistake in a job file is refused with its position, the value found and the allowed
// values; features that this version lacks are refused as such.
#include "common/config/job_config.h"

#include "common/config/local_path.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/config/job_text.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status Overridden(std::vector<std::string> overrides) {
  return ParseJob(kShortJob, "job.yaml", {.overrides = std::move(overrides), .check_files = false})
      .status();
}

struct Refusal {
  std::vector<std::string> overrides;
  const char* message;
};

void ExpectRefused(absl::StatusCode code, absl::Span<const Refusal> cases) {
  for (const Refusal& refusal : cases) {
    const absl::Status status = Overridden(refusal.overrides);
    EXPECT_EQ(status.code(), code) << refusal.overrides[0] << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.message)) << refusal.overrides[0];
  }
}

TEST(JobErrors, GiveFileLineAndNearestKey) {
  const auto refusal = [](absl::string_view text) {
    return std::string(ParseJob(text, "job.yaml", {.check_files = false}).status().message());
  };
  EXPECT_EQ(refusal("name: x\noptimzer: {}"),
            "job.yaml:2: unknown key 'optimzer' (did you mean 'optimizer'?); known keys: name, "
            "model, data, optimizer, strategy, storage, checkpoint, evaluation, output, cluster, "
            "task");
  EXPECT_THAT(refusal("model:\n  type: linear\n\n  hiden: [3]\n"),
              HasSubstr("job.yaml:4: unknown key 'hiden' in model (did you mean 'hidden'?)"));
  EXPECT_THAT(refusal("data:\n  shuffle: {sed: 1}\n"),
              HasSubstr("job.yaml:2: unknown key 'sed' in data.shuffle (did you mean 'seed'?)"));
  EXPECT_EQ(refusal("model:\n  type: mpl\n"),
            "job.yaml:2: model.type: found \"mpl\" (did you mean 'mlp'?), expected one of: linear, "
            "mlp, fm, wide_deep, dlrm, matrix_factorization, skip_gram");
  EXPECT_EQ(refusal("data:\n  batch_size: 12.5\n"),
            "job.yaml:2: data.batch_size: found \"12.5\", expected an integer from 1 to 16777216");
  EXPECT_THAT(refusal("model: {type: linear"), HasSubstr("job.yaml:1:"));
  EXPECT_THAT(refusal("a: 1\na: 2\n"), HasSubstr("job.yaml:2: key 'a' is given twice"));
}

TEST(JobErrors, MissingKeysAreReportedAtTheFileNotAtAnOverride) {
  const auto refusal = [](absl::string_view text, std::vector<std::string> overrides) {
    return std::string(
        ParseJob(text, "job.yaml", {.overrides = std::move(overrides)}).status().message());
  };
  EXPECT_THAT(refusal("", {"data.epochs=2"}), StartsWith("job.yaml: model.type: is missing"));
  EXPECT_THAT(refusal("", {"model.classes=1"}), StartsWith("job.yaml: model.type: is missing"));
  EXPECT_THAT(refusal("name: x\n", {"model.type=linear", "data.format=csv"}),
              StartsWith("job.yaml:1: data.train: names no file"));
  EXPECT_THAT(
      refusal("model: {type: linear}\ndata: {format: csv, train: [nope.csv]}\n", {"data.epochs=2"}),
      StartsWith("job.yaml:2: data.train[0]: nope.csv: No such file"));
  // Errors in an override's own value are reported at the override.
  EXPECT_THAT(refusal("model: {type: linear}\ndata: {format: csv, train: [nope.csv]}\n",
                      {"data.train=[none.csv]"}),
              StartsWith("--set: data.train[0]: none.csv: No such file"));
  EXPECT_THAT(refusal("", {"optimzer.type=adam"}), StartsWith("--set: unknown key 'optimzer'"));
}

// Each would otherwise create a local folder "s3:".
TEST(JobErrors, UrlsAreNotAcceptedAsPaths) {
  for (const char* key : {"storage.directory", "checkpoint.directory", "checkpoint.restore",
                          "checkpoint.warm_start.from", "output.metrics_file", "output.export",
                          "output.tensorboard", "data.train", "data.eval"}) {
    SCOPED_TRACE(key);
    const absl::Status status = Overridden({absl::StrCat(key, "=s3://bucket/x.npz")});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(key,
                                       ": found \"s3://bucket/x.npz\", a URL; expected a path "
                                       "on this machine: copy the files here")));
  }
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"data.train=[a.csv, HTTPS://host/b.csv]"}, "data.train[1]: found \"HTTPS://host/b.csv\""},
       {{"data.format=idx", "data.train=[{images: 'gs://b/i', labels: l}]"}, "gs://b/i"},
       {{"checkpoint.directory=file:///a/b"}, "expected a path on this machine: write /a/b"}});
  for (const char* path : {"a:b", "/x/s3://y", "://x", "7z://x", "s3:/x", "[::1]://x"}) {
    EXPECT_TRUE(CheckLocalPath("flag", path).ok()) << path;
  }
}

TEST(JobErrors, MissingKeysAreNamed) {
  const auto refusal = [](absl::string_view text) {
    return std::string(ParseJob(text, "job.yaml", {.check_files = false}).status().message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("job.yaml: model.type: is missing; expected one of"));
  EXPECT_THAT(refusal("model: {type: linear}\n"), HasSubstr("data.format: is missing"));
  EXPECT_THAT(refusal("model: {type: linear}\ndata: {format: csv}\n"),
              HasSubstr("job.yaml:2: data.train: names no file"));
  EXPECT_THAT(refusal("model: {type: linear}\ndata: {format: libsvm, train: [x]}\n"),
              HasSubstr("job.yaml:2: data.features: is missing"));
}

TEST(JobErrors, TableSettingsAreChecked) {
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"model.embedding={vocabulary: dynamic, hash_buckets: 5}"},
        "has both vocabulary and hash_buckets"},
       {{"model.embedding={vocabulary: fixed}"}, "expected one of: dynamic"},
       {{"model.embedding={admit_after_pushes: 256}"}, "expected an integer from 1 to 255"},
       {{"model.embedding={expire_after_seconds: -1}"}, "expected an integer"},
       {{"model.embedding={max_rows: -1}"}, "expected an integer"},
       {{"model.embedding={row_storage: int8}"}, "model.embedding.row_storage"},
       {{"model.embedding={row_storage: {values: int9}}"},
        "model.embedding.row_storage.values: found \"int9\" (did you mean 'int8'?), expected one "
        "of: float32, float16, bfloat16, int8"},
       {{"model.embedding={row_storage: {slots: int8}}"},
        "model.embedding.row_storage.slots: found \"int8\", expected one of: float32, float16, "
        "bfloat16"},
       {{"model.embedding={row_storage: {per_table: [{values: int8}]}}"},
        "row_storage.per_table[0]: needs match"},
       {{"model.embedding={row_storage: {per_table: {values: int8}}}"}, "expected a list"}});
}

TEST(JobErrors, TypesAndRangesAreChecked) {
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"data.batch_size=0"}, "--set: data.batch_size: found \"0\", expected an integer from 1"},
       {{"data.batch_size='5'"}, "found \"5\" in quotes"},
       {{"data.batch_size=[5]"}, "found a list"},
       {{"data.batch_size="}, "found nothing"},
       {{"data.epochs=99999999999999999999"}, "expected an integer from 1 to 1099511627776"},
       // A job adds up the epochs of its runs.
       {{"data.epochs=9223372036854775807"}, "expected an integer from 1 to 1099511627776"},
       {{"storage.snapshot_interval_seconds=1e-9"}, "expected a number of at least 0.001"},
       {{"storage.memory_budget_bytes=-1"}, "expected an integer of at least 0"},
       {{"data.drop_remainder=yes"}, "expected true or false"},
       {{"data.shuffle=true"}, "data.shuffle: found \"true\", expected a section"},
       {{"data.auto_shard=of"}, "(did you mean 'off'?)"},
       {{"data.format=Libsvm"}, "(did you mean 'libsvm'?)"},
       {{"data.train={a: b}"}, "expected a path or a glob"},
       {{"model=[1]"}, "model: found a list, expected a section of keys and values"},
       {{"model.hidden=64"}, "expected a list of integers, as in [64, 32]"},
       {{"model.hidden=[64, 0]"}, "model.hidden[1]: found \"0\""},
       {{"model.factors=9999999999"}, "expected an integer from 1 to 1048576"},
       {{"model.subsample=2"}, "expected a number from 0 to 1"},
       {{"model.loss=softmax_cross_entropy"}, "model.classes: is 1; softmax_cross_entropy needs"},
       {{"model.loss=mean_squared_error", "model.classes=3"}, "model.classes: is 3"},
       {{"model.classes=3", "data.label_base=-16777214"}, "data.label_base: is -16777214"},
       {{"model.init=[1]"}, "expected an initializer"},
       {{"model.init={type: norml}"}, "normal"},
       {{"model.init={type: normal, sdtdev: 3}"}, "stddev"},
       {{"model.init={type: normal, stddev: x}"}, "model.init.stddev: found \"x\""},
       {{"name=a/b"}, "name: is 'a/b'; expected 1 to 128 of the characters"},
       {{"name=.."}, "do not begin with '.'"},
       {{"storage.directory=''"}, "storage.directory: is empty"},
       {{"storage.durability=sync"}, "expected one of: off, snapshot, log, log_sync"},
       {{"storage.snapshot_interval_seconds=0"}, "expected a number of at least 0.001"},
       {{"strategy.ps_wait_seconds=.inf"}, "expected a finite number"},
       {{"strategy.ps_wait_seconds=nan"}, "expected a finite number"},
       {{"strategy.devices=cpu:0"}, "expected a list of devices"},
       {{"strategy.devices=[tpu:0]"}, "expected cpu:N or gpu:N"},
       {{"strategy.partitioner=min"}, "expected one of: min_size"},
       {{"strategy.staleness_bound_steps=-1"}, "an integer of at least 0"},
       {{"strategy.on_worker_loss=stop"}, "expected one of: continue, fail"},
       {{"strategy.consistency=sync", "strategy.pull_ahead_steps=1"},
        "is 1; with consistency: sync a step is computed"},
       {{"strategy.sync_mean=sum"}, "expected one of: rows, contributors"},
       {{"strategy.replicas_to_aggregate=-1"}, "strategy.replicas_to_aggregate"},
       {{"strategy.consistency=ssp", "strategy.staleness_bound_steps=2",
         "strategy.pull_ahead_steps=3"},
        "strategy.pull_ahead_steps: is 3; with consistency: ssp at most staleness_bound_steps, "
        "which is 2"},
       {{"strategy.partitioner={type: fixed_shards}"}, "fixed_shards needs num_shards"},
       {{"strategy.partitioner={type: max_size}"}, "max_size needs max_shard_bytes"},
       {{"strategy.partitioner={num_shards: 3}"}, "num_shards is for fixed_shards"},
       {{"output.export=model.txt"}, "expected a path that ends in .npz or .safetensors"},
       {{"output.metrics_file=[x]"}, "expected text"},
       {{"output.tensorboard={dir: logs}"}, "expected text"},
       {{"evaluation.every_steps=-1"}, "an integer of at least 0"},
       {{"evaluation.checkpoint_wait_seconds=0"}, "expected a number above 0"},
       {{"checkpoint.every_steps=5"}, "name checkpoint.directory too"},
       {{"checkpoint.keep=0"}, "an integer of at least 1"},
       {{"checkpoint.restore="}, "latest, none or a checkpoint's directory"},
       {{"checkpoint.warm_start.variables=[a]"},
        "name its directory by checkpoint.warm_start.from"},
       {{"checkpoint.warm_start={from: x, variables: a}"}, "expected a list of names of variables"},
       {{"checkpoint.warm_start={from: x, variables: []}"},
        "expected a list of names of variables"},
       {{"checkpoint.warm_start={from: x, variable: [a]}"}, "did you mean 'variables'?"},
       {{"strategy.consistency=sync", "strategy.replicas_to_aggregate=1", "checkpoint.directory=x"},
        "checkpoint.directory: with strategy.replicas_to_aggregate: 1"},
       {{"cluster.ps=[x]"}, "cluster.ps[0]: address 'x' has no port"}});
}

TEST(JobErrors, OptimizersAreCheckedWithTheirArguments) {
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"optimizer.type=admam"}, "(did you mean 'adam'?)"},
       {{"optimizer.learning_rat=1"}, "(did you mean 'learning_rate'?)"},
       {{"optimizer.learning_rate=-1"}, "expected a number of at least 0"},
       {{"optimizer.learning_rate=[1]"}, "expected a number, or a schedule"},
       {{"optimizer.learning_rate={type: exponential_deca}"}, "exponential_decay"},
       {{"optimizer.learning_rate={type: cosine_decay, decay_stps: 3}"}, "decay_st"},
       {{"optimizer.learning_rate={type: piecewise_constant_decay, boundaries: 3}"},
        "expected a list of numbers"},
       {{"optimizer={type: adam, momentum: 0.9}"}, "--set: optimizer: "},
       {{"optimizer={type: adam, momentum: 0.9}"}, "momentum"},
       {{"optimizer={type: adam, beta_1: 2}"}, "beta_1"},
       {{"optimizer={type: sgd, nesterov: maybe}"}, "optimizer.nesterov: found \"maybe\""},
       {{"optimizer={clipnorm: 1, clipvalue: 1}"}, "clip"},
       {{"optimizer.clipnorm=0"}, "optimizer.clipnorm: found \"0\", expected a number above 0"},
       {{"optimizer.not_finite=ignore"}, "expected one of: reject, skip"},
       {{"optimizer.per_variable={match: x}"}, "expected a list, as in"},
       {{"optimizer.per_variable=[{match: x}]"}, "optimizer.per_variable[0]: needs type"},
       {{"optimizer.per_variable=[{type: sgd}]"}, "needs match"},
       {{"optimizer.per_variable=[{match: x, type: sgd, global_clipnorm: 1}]"},
        "give it in optimizer"},
       {{"optimizer.per_variable=[{match: x, type: sgd, beta_1: 1}]"}, "beta_1"}});
}

TEST(JobErrors, AnArgumentOfAnotherOptimizerIsRefusedAtItsOwnLine) {
  const auto job = ParseJob(
      "model: {type: linear}\n"
      "data: {format: csv, train: [x]}\n"
      "optimizer:\n  type: adam\n  learning_rate: 0.1\n  momentum: 0.9\n",
      "job.yaml", {.check_files = false});
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("job.yaml:6: optimizer: "));
}

TEST(JobErrors, WireFormatsMustBeKnownAndConsistent) {
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"strategy.wire={push: int7}"}, "expected one of: plain, float16, bfloat16, int8, top_k"},
       {{"strategy.wire={pull: top_k}"}, "expected one of: plain, float16, bfloat16, int8"},
       {{"strategy.wire={push: top_k, top_k_fraction: 0}"},
        "expected a number above 0 and up to 1"},
       {{"strategy.wire={push: int8, top_k_fraction: 0.5}"},
        "strategy.wire.top_k_fraction: is for push: top_k, not for int8"},
       {{"strategy.wire={per_variable: [{push: int8}]}"}, "per_variable[0]: needs match"},
       {{"strategy.wire={per_variable: int8}"}, "expected a list"},
       {{"strategy.wire={delta_pulls: 1}"}, "strategy.wire.delta_pulls"},
       {{"strategy.type=mirrored", "strategy.wire={push: int8}"},
        "strategy.wire: is for type: parameter_server"}});
}

TEST(JobErrors, StrategiesAndDevicesMustBeConsistent) {
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {{{"strategy.devices=[cpu:0, cpu:0]"}, "cpu:0 is named twice"},
                 {{"strategy.type=one_device", "strategy.devices=[cpu:0, cpu:1]"},
                  "strategy.devices: names 2 devices; type: one_device computes on one"},
                 {{"strategy.type=mirrored", "strategy.consistency=ssp"},
                  "strategy.consistency: is for type: parameter_server"},
                 {{"strategy.type=multi_worker_mirrored", "strategy.sync_mean=rows"},
                  "strategy.sync_mean: is for type: parameter_server"}});
}

TEST(JobErrors, CommunicationIsForWorkersThatExchangeGradients) {
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {{{"strategy.communication.implementation=ring"},
        "strategy.communication.implementation: is for type: multi_worker_mirrored"},
       {{"strategy.type=mirrored", "strategy.communication.bytes_per_pack=5"},
        "strategy.communication.bytes_per_pack: is for type: multi_worker_mirrored"},
       {{"strategy.communication.timeout_seconds=5"}, "with type: parameter_server leave it out"},
       {{"strategy.communication.connect_timeout_seconds=5"}, "leave it out"},
       {{"strategy.communication.bytes_per_pack=-1"}, "an integer of at least 0"},
       {{"strategy.communication.timeout_seconds=0"}, "expected a number above 0"},
       {{"strategy.communication.implementation=rings"}, "expected one of: auto, ring, nccl"}});
  EXPECT_TRUE(Overridden({"strategy.type=multi_worker_mirrored",
                          "strategy.communication={implementation: ring, bytes_per_pack: 1000, "
                          "timeout_seconds: 0.5, connect_timeout_seconds: 2}"})
                  .ok());
}

TEST(JobErrors, FeaturesNotBuiltAreRefusedWithTheAlternatives) {
  ExpectRefused(
      absl::StatusCode::kUnimplemented,
      {{{"strategy.type=tpu"}, "TPUStrategy is not built: it needs hardware"},
       {{"optimizer.use_ema=true"}, "optimizer.use_ema is not built in this version; leave it out"},
       {{"optimizer.gradient_accumulation_steps=2"}, "is not built in this version"},
       {{"optimizer.loss_scale_factor=2"}, "is not built in this version"}});
}

}  // namespace
}  // namespace cairn
