// Job files, --set, cluster files and TF_CONFIG, addresses.
#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "nlohmann/json.hpp"
#include "tests/file_fuzz/target.h"
#include "tests/support/file_text.h"
#include "worker/cluster/named_cluster.h"

namespace cairn::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = 64 << 10;

// The job files of examples/, the one with every key first.
const std::vector<std::string>& JobSeeds() {
  static const auto& seeds = *new std::vector<std::string>([] {
    const char* root = std::getenv("CAIRN_SOURCE_ROOT");
    const std::filesystem::path examples =
        std::filesystem::path(root == nullptr ? "." : root) / "examples";
    std::vector<std::filesystem::path> paths = {examples / "reference" / "job.yaml"};
    std::set<std::filesystem::path> rest;
    for (const auto& entry : std::filesystem::directory_iterator(examples)) {
      if (entry.path().extension() == ".yaml") rest.insert(entry.path());
    }
    paths.insert(paths.end(), rest.begin(), rest.end());
    std::vector<std::string> texts;
    for (const auto& path : paths) texts.push_back(FileText(path));
    return texts;
  }());
  return seeds;
}

// Keys of job files with values for each: "section.key value value …".
constexpr absl::string_view kGrammar = R"(name "a9a" "a/b" "x y" "" "é"
model.type "linear" "mlp" "fm" "wide_deep" "dlrm" "matrix_factorization" "skip_gram"
model.loss "sigmoid_cross_entropy" "softmax_cross_entropy" "mean_squared_error"
model.classes 1 2 10 0 -1
model.hidden [128] [] [0] [1,2,3] [1000000000]
model.bottom_hidden [64,16] []
model.top_hidden [64] []
model.factors 8 0 -1
model.embedding.dim 16 0 1
model.embedding.vocabulary "dynamic" "static"
model.embedding.hash_buckets 1000000 0 -5
model.embedding.max_rows 0 10
model.init.type "zeros" "normal" "uniform" "glorot_uniform" "wave"
model.init.stddev 0.05 0 -1
model.init.seed 1 -1
model.init.scale 0.1
model.window 5 0
model.negatives 5 0
model.min_count 5 0
model.subsample 0.001 0 1 2
data.format "libsvm" "criteo_tsv" "criteo_csv" "csv" "idx" "text" "movielens"
data.train ["a.libsvm"] [] "a" [{"images":"a.gz","labels":"b.gz"}] [["a"]] [""]
data.eval ["b.libsvm"] []
data.features 123 0 -1 9223372036854775807
data.index_base 1 0 2
data.label_base 0 1 -1
data.label_column 0 5 -1
data.batch_size 128 0 1 -1
data.epochs 1 0 1000000
data.max_steps 0 1
data.drop_remainder true false
data.shuffle.buffer_rows 0 1000 9223372036854775807
data.shuffle.seed 1
data.auto_shard "auto" "file" "data" "off"
optimizer.type "sgd" "adagrad" "adadelta" "rmsprop" "adam" "adamw" "adamax" "nadam"
optimizer.type "lazy_adam" "ftrl" "lion"
optimizer.learning_rate 0.1 0 -1
optimizer.learning_rate {"type":"exponential_decay","decay_steps":10,"decay_rate":0.5}
optimizer.learning_rate {"type":"piecewise_constant_decay","boundaries":[1,2],"values":[1,2,3]}
optimizer.per_variable [{"match":"wide/*","type":"ftrl"}] [] [{}] [{"match":"*"}]
optimizer.momentum 0.9 1 -1
optimizer.nesterov true
optimizer.beta_1 0.9 1
optimizer.epsilon 1e-7 0
optimizer.clipnorm 1 0 -1
optimizer.global_clipnorm 1
optimizer.not_finite "reject" "skip"
strategy.type "parameter_server" "mirrored" "multi_worker_mirrored" "central_storage"
strategy.type "one_device" "default"
strategy.devices ["cpu:0"] ["cpu:0","cpu:0"] [] ["gpu:9"] ["cpu:-1"]
strategy.consistency "async" "ssp" "sync"
strategy.staleness_bound_steps 0 3 -1
strategy.replicas_to_aggregate 0 2
strategy.sync_mean "rows" "contributors"
strategy.pull_ahead_steps 0 1 -1
strategy.ps_wait_seconds 60 0 -1
strategy.on_worker_loss "continue" "fail"
strategy.partitioner.type "min_size" "fixed_shards" "max_size" "none"
strategy.partitioner.min_shard_bytes 262144 0
strategy.partitioner.max_shards 0 5
strategy.partitioner.num_shards 2 0
strategy.cross_device_ops "auto" "nccl" "hierarchical_copy" "reduction_to_one_device"
strategy.communication.timeout_seconds 60 0
strategy.communication.implementation "auto" "ring" "nccl"
strategy.wire.push "plain" "float16" "bfloat16" "int8" "top_k"
strategy.wire.pull "plain" "int8"
storage.directory "cairn-data" ""
storage.durability "off" "snapshot" "log" "log_sync"
storage.snapshot_interval_seconds 5 0 -1
checkpoint.directory "" "d" "s3://b/x"
checkpoint.every_steps 0 10 -1
checkpoint.keep 3 0
checkpoint.restore "latest" "none" "/x"
evaluation.every_steps 0 5
output.metrics_file "m.jsonl"
output.export "m.npz" "m.safetensors" "m.bin"
output.tensorboard "tb"
cluster.ps ["10.0.0.1:7001"] [] ["x"]
cluster.worker ["10.0.0.1:7101"]
task.type "worker" "ps"
task.index 0 -1)";

const std::vector<std::vector<std::string>>& Grammar() {
  static const auto& rules = *new std::vector<std::vector<std::string>>([] {
    std::vector<std::vector<std::string>> rules;
    for (const absl::string_view line : absl::StrSplit(kGrammar, '\n')) {
      rules.push_back(absl::StrSplit(line, ' '));
    }
    return rules;
  }());
  return rules;
}

Json ValueFor(Dice& dice, const std::vector<std::string>& rule) {
  switch (dice.Below(8)) {
    case 0: return ExtremeInteger(dice);
    case 1: return ExtremeNumber(dice);
    case 2: return dice.Of(ExtremeTexts());
    default: {
      const Json value = Json::parse(rule[1 + dice.Below(rule.size() - 1)], nullptr, false);
      return value.is_discarded() ? Json(rule[1]) : value;
    }
  }
}

Json* Member(Json* root, const std::string& path) {
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    if (!root->is_object()) *root = Json::object();
    root = &(*root)[std::string(step)];
  }
  return root;
}

// A job with some of the keys, as JSON, which is valid YAML.
std::string MadeJob(Dice& dice) {
  Json job = {{"model", {{"type", "linear"}}},
              {"data", {{"format", "libsvm"}, {"features", 5}, {"train", {"a"}}}}};
  for (size_t i = 0, keys = dice.Below(12); i < keys; ++i) {
    const std::vector<std::string>& rule = dice.Of(Grammar());
    *Member(&job, rule[0]) = ValueFor(dice, rule);
  }
  return job.dump(dice.OneIn(2) ? 1 : -1, ' ', false, Json::error_handler_t::replace);
}

const std::vector<std::string>& JobWords() {
  static const auto& words = *new std::vector<std::string>([] {
    std::vector<std::string> words = {"&a ",  "*a", "<<: *a", "- ",    ": ",    "|\n ",
                                      ">\n ", "? ", "!!int ", "---\n", "...\n", "%YAML 1.1\n",
                                      "{",    "}",  "[",      "]",     "\t"};
    for (const std::vector<std::string>& rule : Grammar()) {
      for (const absl::string_view step : absl::StrSplit(rule[0], '.')) {
        words.push_back(absl::StrCat(step, ": "));
      }
      words.insert(words.end(), rule.begin() + 1, rule.end());
    }
    return words;
  }());
  return words;
}

std::string WrongWithRefusal(const absl::Status& status, const std::string& source) {
  if (status.code() != absl::StatusCode::kInvalidArgument &&
      status.code() != absl::StatusCode::kUnimplemented) {
    return absl::StrCat("refused as ", status.ToString());
  }
  return WrongWithMessage(std::string(status.message()), source);
}

class JobTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    std::string text = dice.OneIn(2) ? MadeJob(dice) : dice.Of(JobSeeds());
    if (dice.OneIn(2)) Mutate(dice, JobSeeds(), JobWords(), kMaxConfigBytes, &text);
    return text;
  }
  std::string Try(const std::string& input) override {
    JobOptions options;
    options.check_files = false;
    const absl::StatusOr<JobConfig> job = ParseJob(input, "job.yaml", options);
    if (!job.ok()) return WrongWithRefusal(job.status(), "job.yaml");
    if (job->data.batch_size < 1 || job->data.epochs < 0 || job->data.shuffle_buffer_rows < 0 ||
        job->model.embedding.dim < 1 || job->model.classes < 1 ||
        job->strategy.devices.size() > 65536) {
      return "a job that cannot run is accepted";
    }
    for (const std::string& warning : job->warnings) {
      if (const std::string wrong = WrongWithMessage(warning, "job.yaml"); !wrong.empty()) {
        return wrong;
      }
    }
    return "";
  }
};

class SetTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    const std::vector<std::string>& rule = dice.Of(Grammar());
    std::string text = absl::StrCat(rule[0], "=", rule[1 + dice.Below(rule.size() - 1)]);
    if (dice.OneIn(2)) {
      text = absl::StrCat(
          rule[0], "=", ValueFor(dice, rule).dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    if (dice.OneIn(2)) Mutate(dice, {&text, 1}, JobWords(), kMaxConfigBytes, &text);
    return text;
  }
  std::string Try(const std::string& input) override {
    JobOptions options;
    options.check_files = false;
    options.overrides = {input};
    constexpr char kBase[] =
        "model: {type: linear}\n"
        "data: {format: libsvm, features: 5, train: [a]}\n";
    const absl::StatusOr<JobConfig> job = ParseJob(kBase, "job.yaml", options);
    if (job.ok()) return "";
    // An error about two incompatible keys may name either of them.
    const bool of_the_file = absl::StartsWith(job.status().message(), "job.yaml:");
    return WrongWithRefusal(job.status(), of_the_file ? "job.yaml" : "--set");
  }
};

const std::vector<std::string>& ClusterSeeds() {
  static const auto& seeds = *new std::vector<std::string>{
      "cluster:\n  ps: [\"10.0.0.1:7001\", \"10.0.0.1:7002\"]\n  worker: [\"10.0.0.1:7101\"]\n"
      "  chief: [\"a:1\"]\ntask: {type: worker, index: 0}\n",
      R"({"cluster": {"worker": ["host1:2222", "host2:2222"], "ps": ["[::1]:2222"]},)"
      R"( "task": {"type": "worker", "index": 1}, "environment": "cloud", "rpc_layer": "grpc"})",
      R"({"cluster": {"worker": {"1": "10.0.0.5:20000"}, "evaluator": ["e:1"]},)"
      R"( "task": {"index": "0"}})",
      R"({"cluster": null})"};
  return seeds;
}

const std::vector<std::string>& ClusterWords() {
  static const auto& words = *new std::vector<std::string>{
      "cluster", "ps",      "worker",  "chief",   "evaluator",  "task",     "type",
      "index",   "\"1\": ", "null",    "[",       "]",          "{",        "}",
      ", ",      ": ",      "grpc://", "[::1]:1", "host:65536", "0.0.0.0:", "localhost"};
  return words;
}

class ClusterTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    std::string text = dice.Of(ClusterSeeds());
    Mutate(dice, ClusterSeeds(), ClusterWords(), kMaxConfigBytes, &text);
    return text;
  }
  std::string Try(const std::string& input) override {
    const absl::StatusOr<ClusterConfig> cluster = ParseCluster(input, "TF_CONFIG");
    if (!cluster.ok()) return WrongWithRefusal(cluster.status(), "TF_CONFIG");
    for (const std::string& warning : cluster->warnings) {
      if (const std::string wrong = WrongWithMessage(warning, "TF_CONFIG"); !wrong.empty()) {
        return wrong;
      }
    }
    const absl::StatusOr<ClusterConfig> again = ParseCluster(ClusterFileText(*cluster), "again");
    if (!again.ok()) return absl::StrCat("written and refused: ", again.status().ToString());
    if (again->tasks != cluster->tasks || again->task_type != cluster->task_type ||
        again->task_index != cluster->task_index) {
      return "written and read as another cluster: " + ClusterFileText(*cluster);
    }
    return "";
  }
};

class AddressTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    static const auto& seeds =
        *new std::vector<std::string>{"10.0.0.1:7001", "[::1]:0", "host.example:1"};
    std::string text = dice.Of(seeds);
    Mutate(dice, seeds, ClusterWords(), 1000, &text);
    return text;
  }
  std::string Try(const std::string& input) override {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(input);
    if (!parsed.ok()) return WrongWithRefusal(parsed.status(), "address");
    const absl::StatusOr<HostPort> again = ParseHostPort(HostPortText(parsed->host, parsed->port));
    if (!again.ok() || again->host != parsed->host || again->port != parsed->port) {
      return "written and read as another address";
    }
    return "";
  }
};

}  // namespace

std::vector<NamedTarget> ConfigTargets() {
  return {{"job", [] { return std::make_unique<JobTarget>(); }},
          {"set", [] { return std::make_unique<SetTarget>(); }},
          {"cluster", [] { return std::make_unique<ClusterTarget>(); }},
          {"address", [] { return std::make_unique<AddressTarget>(); }}};
}

}  // namespace cairn::test
