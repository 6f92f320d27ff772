// The job file (examples/reference/job.yaml): model, data, optimizer, strategy, storage,
// checkpoint, output.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/cluster_config.h"
#include "common/optimizer/optimizer.h"
#include "common/variables/initializer.h"
#include "common/variables/row_storage.h"

namespace cairn {

struct TableRowStorage {
  std::string match;
  RowStorage storage;
};

struct RowStorageConfig {
  RowStorage storage;
  std::vector<TableRowStorage> per_table;  // the first matching entry sets both formats
};

struct EmbeddingConfig {
  int64_t dim = 16;
  int64_t hash_buckets = 0;  // 0: vocabulary: dynamic, which keeps one row for every key
  // The fields of RowRules.
  int64_t admit_after_pushes = 1;
  int64_t expire_after_seconds = 0;
  int64_t max_rows = 0;
  RowStorageConfig row_storage;
};

struct ModelConfig {
  std::string type;  // linear mlp fm wide_deep dlrm matrix_factorization skip_gram
  std::string loss;  // sigmoid_cross_entropy softmax_cross_entropy mean_squared_error; filled in
  int64_t classes = 1;
  std::vector<int64_t> hidden = {128};
  std::vector<int64_t> bottom_hidden = {64};  // dlrm; its last layer has embedding.dim outputs
  std::vector<int64_t> top_hidden = {64};     // dlrm
  int64_t factors = 8;
  std::string tables = "shared";  // per_column shared_vocabulary; of the key columns
  EmbeddingConfig embedding;
  // For the kernels of mlp, wide_deep and dlrm, the factors of fm, matrix_factorization, and the
  // input vectors of skip_gram. If it is not given, each model has its own default.
  bool init_given = false;
  InitializerConfig init;
  // skip_gram.
  int64_t window = 5;
  int64_t negatives = 5;
  int64_t min_count = 5;
  double subsample = 1e-3;  // words with a larger share are subsampled; 0, 1: none
};

// One input file, or an image file with its labels (idx).
struct DataFile {
  std::string path;    // absolute or relative to the working directory
  std::string labels;  // idx
};

struct DataConfig {
  std::string format;  // libsvm criteo_tsv criteo_csv csv idx text movielens
  std::vector<DataFile> train;
  std::vector<DataFile> eval;
  int64_t features = 0;
  int64_t index_base = 1;
  int64_t label_base = 0;
  int64_t label_column = 0;  // csv
  int64_t batch_size = 128;
  int64_t epochs = 1;
  int64_t max_steps = 0;
  bool drop_remainder = false;
  int64_t shuffle_buffer_rows = 0;
  int64_t parse_threads = 0;  // 0: a quarter of the processors, 1 to 8
  int64_t shuffle_seed = 1;
  std::string auto_shard = "auto";  // file data off
};

// First match wins; '*' matches any run of characters.
struct OptimizerOverride {
  std::string match;
  OptimizerConfig optimizer;
};

struct PartitionerConfig {
  std::string type = "min_size";  // fixed_shards max_size none
  int64_t min_shard_bytes = 262144;
  int64_t max_shard_bytes = 0;
  int64_t num_shards = 0;
  int64_t max_shards = 0;  // 0: number of ps
};

// How workers that train as one exchange gradients (multi_worker_mirrored).
struct CommunicationConfig {
  std::string implementation = "auto";   // ring nccl
  int64_t bytes_per_pack = 0;            // packs of small gradients; 0: one pack
  double timeout_seconds = 60;           // how long a worker waits for the others in one exchange
  double connect_timeout_seconds = 300;  // how long it waits for all of them at the start
};

// The formats in which values travel (common/value_format.h).
struct WireFormatConfig {
  std::string push = "plain";  // float16 bfloat16 int8 top_k
  std::string pull = "plain";  // float16 bfloat16 int8
  double top_k_fraction = 0.01;
  bool delta_pulls = false;  // whole pulls of dense variables send only changed rows
};

struct VariableWireFormat {
  std::string match;
  WireFormatConfig format;
};

struct WireConfig {
  WireFormatConfig format;
  std::vector<VariableWireFormat> per_variable;  // the first matching entry sets the whole format
};

struct StrategyConfig {
  // mirrored, central_storage, one_device and default run in one process, which also hosts the
  // server for the variables. multi_worker_mirrored does the same in each of several processes.
  std::string type = "parameter_server";
  std::vector<std::string> devices;  // one replica each; empty: every usable GPU, else cpu:0
  std::string consistency = "async";
  int64_t staleness_bound_steps = 0;
  int64_t replicas_to_aggregate = 0;
  std::string sync_mean = "rows";
  int64_t pull_ahead_steps = 0;
  double ps_wait_seconds = 60;
  std::string on_worker_loss = "continue";
  PartitionerConfig partitioner;
  std::string cross_device_ops = "auto";     // between the GPUs of a worker
  std::string matmul_precision = "float32";  // on GPUs
  bool deterministic = false;                // on GPUs; CPUs always are
  CommunicationConfig communication;
  WireConfig wire;  // parameter_server
};

struct StorageConfig {
  std::string directory = "cairn-data";
  std::string durability = "snapshot";
  double snapshot_interval_seconds = 5;
  int64_t memory_budget_bytes = 0;  // 0: the default of cairn-ps
};

// Initial values for a new job, taken from a checkpoint of another job.
struct WarmStartConfig {
  std::string from;  // a checkpoint's folder; empty: no warm start
  // Which of the job's variables to load; '*' matches any run of characters.
  std::vector<std::string> variables = {"*"};
};

struct CheckpointConfig {
  std::string directory;  // empty: no checkpoints
  int64_t every_steps = 0;
  int64_t keep = 3;
  std::string restore = "latest";  // none, or a checkpoint's folder
  WarmStartConfig warm_start;
};

struct EvaluationConfig {
  int64_t every_steps = 0;
  // For the evaluator task: how long to wait for the next checkpoint.
  double checkpoint_wait_seconds = 600;
};

struct OutputConfig {
  std::string metrics_file;
  std::string export_file;  // key `export`
  std::string tensorboard;  // a folder
  // Interval of progress lines when stderr is not a terminal; 0: none.
  double progress_seconds = 10;
};

// Thread safety: a value.
struct JobConfig {
  std::string name;
  std::string path;  // of the job file
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  std::vector<OptimizerOverride> per_variable;
  std::string not_finite = "reject";  // optimizer.not_finite: reject skip
  std::string divergence = "stop";    // optimizer.divergence: stop ignore
  StrategyConfig strategy;
  StorageConfig storage;
  CheckpointConfig checkpoint;
  EvaluationConfig evaluation;
  OutputConfig output;
  bool has_cluster = false;
  ClusterConfig cluster;
  // Keys that do nothing in this job, one line each, for the log. cluster.warnings are separate.
  std::vector<std::string> warnings;
  // Keys that do nothing when the job's servers run in other processes, one line each. Only a
  // worker that calls such servers logs them.
  std::vector<std::string> in_process_warnings;
};

struct JobOptions {
  std::string data_root;  // empty: paths are relative to the job file
  // "key.path=value" from --set, applied over the file; value is YAML.
  std::vector<std::string> overrides;
  bool check_files = true;  // globs must match, files must be readable
};

// kInvalidArgument: "job.yaml:12: unknown key 'optimzer' (did you mean 'optimizer'?) …".
// kUnimplemented: a value that this version does not build; names the key and the available
// choices.
absl::StatusOr<JobConfig> ParseJob(absl::string_view text, absl::string_view source,
                                   const JobOptions& options);
absl::StatusOr<JobConfig> ReadJobFile(const std::string& path, const JobOptions& options);

const WireFormatConfig& WireFormatFor(const WireConfig& config, absl::string_view variable);
RowStorage RowStorageFor(const RowStorageConfig& config, absl::string_view table);

// Whether `name` matches `pattern`, in which '*' stands for any run of characters.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// The optimizer of `variable`: the first per_variable match, else the job's. Variables "wide/*" of
// wide_deep that match no entry use ftrl with the job's learning rate and clipping.
const OptimizerConfig& OptimizerFor(const JobConfig& job, absl::string_view variable);

}  // namespace cairn
