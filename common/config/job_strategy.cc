// Sections `strategy`, `storage`, `checkpoint`, `evaluation` and `output`.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kMaxShards = 65536;       // a partition map stores server numbers in 16 bits
constexpr size_t kMaxDevices = 256;         // threads; a machine has fewer cores
constexpr int64_t kMaxAggregate = 1 << 20;  // workers
constexpr int64_t kMaxPullAheadSteps = 64;  // each holds a batch and its rows in memory

absl::Status ReadType(const ConfigNode& value, const std::string& path, std::string* type) {
  if (value.kind == ConfigNode::Kind::kScalar && value.text == "tpu") {
    return Unimplemented(
        value.where, ": ", path,
        ": TPUStrategy is not built: it needs hardware and a compiler outside this project");
  }
  return Choice("type", type,
                {"parameter_server", "mirrored", "multi_worker_mirrored", "central_storage",
                 "one_device", "default"})
      .read(value, path);
}

bool IsDevice(absl::string_view text) {
  int32_t index = 0;
  return (absl::ConsumePrefix(&text, "cpu:") || absl::ConsumePrefix(&text, "gpu:")) &&
         absl::SimpleAtoi(text, &index) && index >= 0;
}

absl::Status ReadDevices(const ConfigNode& value, const std::string& path,
                         std::vector<std::string>* devices) {
  if (value.kind != ConfigNode::Kind::kList) {
    return Unexpected(value, path, "a list of devices, as in [cpu:0]");
  }
  std::vector<std::string> found;
  for (const ConfigNode& item : value.children) {
    if (!IsDevice(item.text)) return Unexpected(item, path, "cpu:N or gpu:N");
    // Several replicas may share a GPU. Logical CPU devices are unlimited, so no two need share
    // one.
    if (absl::StartsWith(item.text, "cpu:") && std::ranges::find(found, item.text) != found.end()) {
      return InvalidArgument(item.where, ": ", path, ": ", item.text,
                             " is named twice; name each once");
    }
    found.push_back(item.text);
  }
  if (found.size() > kMaxDevices) {
    return Unexpected(value, path, absl::StrCat("at most ", kMaxDevices, " devices"));
  }
  *devices = std::move(found);
  return absl::OkStatus();
}

absl::Status ReadPartitioner(const ConfigNode& value, const std::string& path,
                             PartitionerConfig* out) {
  PartitionerConfig result;
  const Field type = Choice("type", &result.type, {"min_size", "fixed_shards", "max_size", "none"});
  if (value.kind == ConfigNode::Kind::kScalar) {
    RETURN_IF_ERROR(type.read(value, path));
  } else {
    RETURN_IF_ERROR(ReadSection(value, path,
                                {type, Integer("min_shard_bytes", &result.min_shard_bytes, 1),
                                 Integer("max_shard_bytes", &result.max_shard_bytes, 1),
                                 Integer("num_shards", &result.num_shards, 1, kMaxShards),
                                 Integer("max_shards", &result.max_shards, 0, kMaxShards)}));
  }
  const auto refuse = [&](absl::string_view why) {
    return InvalidArgument(value.where, ": ", path, ": ", why);
  };
  if (result.type == "fixed_shards" && result.num_shards == 0) {
    return refuse("fixed_shards needs num_shards");
  }
  if (result.type == "max_size" && result.max_shard_bytes == 0) {
    return refuse("max_size needs max_shard_bytes");
  }
  constexpr struct {
    const char* key;
    const char* types;
  } kUses[] = {{"min_shard_bytes", "min_size"},
               {"max_shard_bytes", "max_size"},
               {"num_shards", "fixed_shards"},
               {"max_shards", "min_size max_size"}};
  for (const auto& use : kUses) {
    if (value.Find(use.key) != nullptr && !absl::StrContains(use.types, result.type)) {
      return refuse(absl::StrCat(use.key, " is for ", use.types, ", not for ", result.type));
    }
  }
  *out = std::move(result);
  return absl::OkStatus();
}

absl::Status ReadExport(const ConfigNode& value, const std::string& path, std::string* out) {
  std::string text;
  RETURN_IF_ERROR(ReadPath(value, path, &text));
  if (!text.empty() && !absl::EndsWith(text, ".npz") && !absl::EndsWith(text, ".safetensors")) {
    return Unexpected(value, path, "a path that ends in .npz or .safetensors");
  }
  *out = text;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadStrategy(const ConfigNode& section, const std::string& path, JobConfig* job) {
  StrategyConfig& strategy = job->strategy;
  return ReadSection(
      section, path,
      {Value("type", ReadType, &strategy.type), Value("devices", ReadDevices, &strategy.devices),
       Choice("consistency", &strategy.consistency, {"async", "ssp", "sync"}),
       Integer("staleness_bound_steps", &strategy.staleness_bound_steps, 0),
       Integer("replicas_to_aggregate", &strategy.replicas_to_aggregate, 0, kMaxAggregate),
       Choice("sync_mean", &strategy.sync_mean, {"rows", "contributors"}),
       Integer("pull_ahead_steps", &strategy.pull_ahead_steps, 0, kMaxPullAheadSteps),
       NumberAbove("ps_wait_seconds", 0, &strategy.ps_wait_seconds),
       Choice("on_worker_loss", &strategy.on_worker_loss, {"continue", "fail"}),
       Value("partitioner", ReadPartitioner, &strategy.partitioner),
       Value("wire", ReadWire, &strategy.wire),
       Choice("cross_device_ops", &strategy.cross_device_ops,
              {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"}),
       Choice("matmul_precision", &strategy.matmul_precision, {"float32", "tf32", "bfloat16"}),
       Boolean("deterministic", &strategy.deterministic),
       Section("communication",
               {Choice("implementation", &strategy.communication.implementation,
                       {"auto", "ring", "nccl"}),
                Integer("bytes_per_pack", &strategy.communication.bytes_per_pack, 0),
                NumberAbove("timeout_seconds", 0, &strategy.communication.timeout_seconds),
                NumberAbove("connect_timeout_seconds", 0,
                            &strategy.communication.connect_timeout_seconds)})});
}

absl::Status CheckDeviceCount(const ConfigNode& root, const StrategyConfig& strategy) {
  const bool one = strategy.type == "one_device" || strategy.type == "default";
  if (!one || strategy.devices.size() <= 1) return absl::OkStatus();
  return JobError(root, "strategy.devices",
                  absl::StrCat("names ", strategy.devices.size(), " devices; type: ", strategy.type,
                               " computes on one: name one, or use mirrored or central_storage"));
}

absl::Status FinishStrategy(const ConfigNode& root, JobConfig* job) {
  const StrategyConfig& strategy = job->strategy;
  RETURN_IF_ERROR(CheckDeviceCount(root, strategy));
  if (strategy.consistency == "sync" && strategy.replicas_to_aggregate > 0 &&
      !job->checkpoint.directory.empty()) {
    return JobError(
        root, "checkpoint.directory",
        absl::StrCat("with strategy.replicas_to_aggregate: ", strategy.replicas_to_aggregate,
                     " steps close while a checkpoint is made, and its servers would have "
                     "different ones: wait for every worker (0), or leave the directory out, the "
                     "servers' own directories survive restarts"));
  }
  if (strategy.consistency == "sync" && strategy.pull_ahead_steps > 0) {
    return JobError(root, "strategy.pull_ahead_steps",
                    absl::StrCat("is ", strategy.pull_ahead_steps,
                                 "; with consistency: sync a step is computed from the mean of the "
                                 "one before: leave it out, or use async"));
  }
  if (strategy.consistency != "ssp") return absl::OkStatus();
  if (strategy.pull_ahead_steps <= strategy.staleness_bound_steps) return absl::OkStatus();
  return JobError(root, "strategy.pull_ahead_steps",
                  absl::StrCat("is ", strategy.pull_ahead_steps,
                               "; with consistency: ssp at most staleness_bound_steps, which is ",
                               strategy.staleness_bound_steps,
                               ", as values pulled earlier are staler than that"));
}

absl::Status ReadStorage(const ConfigNode& section, const std::string& path, JobConfig* job) {
  StorageConfig& storage = job->storage;
  RETURN_IF_ERROR(ReadSection(
      section, path,
      {Path("directory", &storage.directory),
       Choice("durability", &storage.durability, {"off", "snapshot", "log", "log_sync"}),
       NumberFrom("snapshot_interval_seconds", 0.001, &storage.snapshot_interval_seconds),
       Integer("memory_budget_bytes", &storage.memory_budget_bytes, 0)}));
  if (!storage.directory.empty()) return absl::OkStatus();
  return InvalidArgument(WhereOf(section, "directory"), ": ", path,
                         ".directory: is empty; expected a directory's path");
}

absl::Status ReadPatterns(const ConfigNode& value, const std::string& path,
                          std::vector<std::string>* out) {
  constexpr absl::string_view kExpected = "a list of names of variables, as in [\"embedding/*\"]";
  if (value.children.empty()) return Unexpected(value, path, kExpected);
  const auto read = [&](const ConfigNode& item, const std::string& at, std::string* pattern) {
    RETURN_IF_ERROR(ReadText(item, at, pattern));
    return pattern->empty() ? Unexpected(item, at, kExpected) : absl::OkStatus();
  };
  return ReadList(value, path, kExpected, read, out);
}

absl::Status ReadWarmStart(const ConfigNode& section, const std::string& path,
                           WarmStartConfig* out) {
  RETURN_IF_ERROR(
      ReadSection(section, path,
                  {Path("from", &out->from), Value("variables", ReadPatterns, &out->variables)}));
  if (!out->from.empty() || section.Find("variables") == nullptr) return absl::OkStatus();
  return InvalidArgument(WhereOf(section, "variables"), ": ", path,
                         ".variables: come from a checkpoint; name its directory by ", path,
                         ".from");
}

absl::Status ReadCheckpoint(const ConfigNode& section, const std::string& path, JobConfig* job) {
  CheckpointConfig& checkpoint = job->checkpoint;
  RETURN_IF_ERROR(ReadSection(
      section, path,
      {Path("directory", &checkpoint.directory), Integer("every_steps", &checkpoint.every_steps, 0),
       Integer("keep", &checkpoint.keep, 1), Path("restore", &checkpoint.restore),
       Value("warm_start", ReadWarmStart, &checkpoint.warm_start)}));
  if (checkpoint.restore.empty()) {
    return InvalidArgument(WhereOf(section, "restore"), ": ", path,
                           ".restore: is empty; expected latest, none or a checkpoint's directory");
  }
  if (checkpoint.every_steps == 0 || !checkpoint.directory.empty()) return absl::OkStatus();
  return InvalidArgument(WhereOf(section, "every_steps"), ": ", path,
                         ".every_steps: ", checkpoint.every_steps, " asks for checkpoints; name ",
                         path, ".directory too");
}

absl::Status ReadEvaluation(const ConfigNode& section, const std::string& path, JobConfig* job) {
  EvaluationConfig& evaluation = job->evaluation;
  return ReadSection(
      section, path,
      {Integer("every_steps", &evaluation.every_steps, 0),
       NumberAbove("checkpoint_wait_seconds", 0, &evaluation.checkpoint_wait_seconds)});
}

absl::Status ReadOutput(const ConfigNode& section, const std::string& path, JobConfig* job) {
  return ReadSection(section, path,
                     {Path("metrics_file", &job->output.metrics_file),
                      Value("export", ReadExport, &job->output.export_file),
                      Path("tensorboard", &job->output.tensorboard),
                      NumberFrom("progress_seconds", 0, &job->output.progress_seconds)});
}

}  // namespace cairn
