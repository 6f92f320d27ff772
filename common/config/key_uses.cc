// Which keys a job reads. A key that nothing reads is reported, never silently ignored.
//
// A key for another model, format or consistency is a warning, so that a job file can keep the keys
// of several and --set can switch between them. A key for another strategy.type is an error: the
// job would train under other rules than those it names.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"

namespace cairn {
namespace {

// The key whose value decides whether another key is read.
struct Selector {
  absl::string_view path;
  std::string (*value)(const JobConfig&);
};

constexpr Selector kModel = {"model.type", [](const JobConfig& job) { return job.model.type; }};
constexpr Selector kLoss = {"model.loss", [](const JobConfig& job) { return job.model.loss; }};
constexpr Selector kFormat = {"data.format", [](const JobConfig& job) { return job.data.format; }};
constexpr Selector kStrategy = {"strategy.type",
                                [](const JobConfig& job) { return job.strategy.type; }};
constexpr Selector kConsistency = {"strategy.consistency",
                                   [](const JobConfig& job) { return job.strategy.consistency; }};
constexpr Selector kDurability = {"storage.durability",
                                  [](const JobConfig& job) { return job.storage.durability; }};
// Selectors for keys that must be given. The value is "" if the key is missing.
constexpr Selector kCheckpoints = {"checkpoint.directory",
                                   [](const JobConfig& job) { return job.checkpoint.directory; }};
constexpr Selector kEvalFiles = {"data.eval", [](const JobConfig& job) {
                                   return std::string(job.data.eval.empty() ? "" : "given");
                                 }};
constexpr Selector kReplicas = {"several strategy.devices", [](const JobConfig& job) {
                                  const std::string& type = job.strategy.type;
                                  // Without devices, the job uses every GPU.
                                  const bool one = job.strategy.devices.size() == 1 ||
                                                   type == "one_device" || type == "default";
                                  return std::string(one ? "" : "given");
                                }};
constexpr Selector kGpus = {"a GPU in strategy.devices", [](const JobConfig& job) {
                              const std::vector<std::string>& devices = job.strategy.devices;
                              // Without devices, the job uses every GPU.
                              const bool given =
                                  devices.empty() ||
                                  std::ranges::any_of(devices, [](const std::string& device) {
                                    return absl::StartsWith(device, "gpu:");
                                  });
                              return std::string(given ? "given" : "");
                            }};
constexpr Selector kShuffling = {"data.shuffle.buffer_rows above 1", [](const JobConfig& job) {
                                   // The format text draws its pairs from the shuffle's seed.
                                   const bool draws = job.data.shuffle_buffer_rows > 1 ||
                                                      job.data.format == "text";
                                   return std::string(draws ? "given" : "");
                                 }};

struct KeyUse {
  absl::string_view path;
  Selector by;
  Names values;  // values of `by` for which the key is read; empty: all except ""
  bool refused = false;
  // For a refused key: whether the key has its default value, which has no effect and is only a
  // warning.
  bool (*is_default)(const JobConfig&) = nullptr;
};

template <auto kMember>
bool HasDefault(const JobConfig& job) {
  return job.strategy.communication.*kMember == CommunicationConfig().*kMember;
}

const std::vector<KeyUse>& KeyUses() {
  const Names keyed = {"criteo_tsv", "criteo_csv", "movielens", "text"};
  const Names servers = {"parameter_server"};
  const Names joint = {"multi_worker_mirrored"};
  static const auto* const kUses = new std::vector<KeyUse>{
      {"model.classes", kModel, {"linear", "mlp"}},
      {"model.hidden", kModel, {"mlp", "wide_deep"}},
      {"model.bottom_hidden", kModel, {"dlrm"}},
      {"model.top_hidden", kModel, {"dlrm"}},
      {"model.factors", kModel, {"fm", "matrix_factorization", "skip_gram"}},
      {"model.tables", kModel, {"mlp", "fm", "wide_deep", "dlrm"}},
      {"model.tables", kFormat, keyed},
      {"model.embedding", kModel, {"mlp", "wide_deep", "dlrm"}},
      {"model.embedding", kFormat, keyed},
      {"model.init",
       kModel,
       {"mlp", "fm", "wide_deep", "dlrm", "matrix_factorization", "skip_gram"}},
      {"model.window", kFormat, {"text"}},
      {"model.negatives", kFormat, {"text"}},
      {"model.min_count", kFormat, {"text"}},
      {"model.subsample", kFormat, {"text"}},
      {"data.features", kFormat, {"libsvm", "csv"}},
      {"data.index_base", kFormat, {"libsvm"}},
      {"data.label_column", kFormat, {"csv"}},
      {"data.label_base", kLoss, {"softmax_cross_entropy"}},
      {"data.shuffle.seed", kShuffling, {}},
      {"strategy.consistency", kStrategy, servers, true},
      {"strategy.staleness_bound_steps", kStrategy, servers, true},
      {"strategy.replicas_to_aggregate", kStrategy, servers, true},
      {"strategy.sync_mean", kStrategy, servers, true},
      {"strategy.on_worker_loss", kStrategy, servers, true},
      {"strategy.wire", kStrategy, servers, true},
      {"strategy.staleness_bound_steps", kConsistency, {"ssp"}},
      {"strategy.replicas_to_aggregate", kConsistency, {"sync"}},
      {"strategy.sync_mean", kConsistency, {"sync"}},
      {"strategy.communication.implementation", kStrategy, joint, true,
       HasDefault<&CommunicationConfig::implementation>},
      {"strategy.communication.bytes_per_pack", kStrategy, joint, true,
       HasDefault<&CommunicationConfig::bytes_per_pack>},
      {"strategy.communication.timeout_seconds", kStrategy, joint, true,
       HasDefault<&CommunicationConfig::timeout_seconds>},
      {"strategy.communication.connect_timeout_seconds", kStrategy, joint, true,
       HasDefault<&CommunicationConfig::connect_timeout_seconds>},
      {"strategy.cross_device_ops", kReplicas, {}},
      {"strategy.matmul_precision", kGpus, {}},
      {"strategy.deterministic", kGpus, {}},
      // The other models have no dense variable with several rows.
      {"strategy.partitioner", kModel, {"linear", "mlp", "fm", "wide_deep", "dlrm"}},
      {"storage.snapshot_interval_seconds", kDurability, {"snapshot"}},
      {"checkpoint.keep", kCheckpoints, {}},
      {"evaluation.every_steps", kEvalFiles, {}},
  };
  return *kUses;
}

const ConfigNode* Find(const ConfigNode& root, absl::string_view path) {
  const ConfigNode* node = &root;
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    node = node->Find(step);
    if (node == nullptr) return nullptr;
  }
  return node;
}

bool IsRead(const KeyUse& use, const std::string& value) {
  if (use.values.empty()) return !value.empty();
  return std::ranges::find(use.values, value) != use.values.end();
}

std::string Refusal(const KeyUse& use, const std::string& value) {
  return absl::StrCat(use.path, ": is for type: ", absl::StrJoin(use.values, ", "),
                      "; with type: ", value, " leave it out");
}

std::string Warning(const KeyUse& use, const std::string& value) {
  if (use.values.empty()) return absl::StrCat(use.path, " does nothing without ", use.by.path);
  return absl::StrCat(use.path, " does nothing with ", use.by.path, ": ", value, "; it is for ",
                      absl::StrJoin(use.values, ", "));
}

// Warns about keys for an in-process server, for a job whose cluster has servers.
void ListStorageKeys(const ConfigNode& root, JobConfig* job) {
  const ConfigNode* storage = root.Find("storage");
  if (storage == nullptr) return;
  for (const ConfigNode& member : storage->children) {
    job->in_process_warnings.push_back(
        absl::StrCat(member.key_where, ": storage.", member.key,
                     " does nothing with the servers of a cluster, which have their own flags"));
  }
}

}  // namespace

absl::Status CheckKeyUses(const ConfigNode& root, JobConfig* job) {
  std::vector<absl::string_view> reported;
  for (const KeyUse& use : KeyUses()) {
    const ConfigNode* member = Find(root, use.path);
    const std::string value = use.by.value(*job);
    if (member == nullptr || IsRead(use, value)) continue;
    if (std::ranges::find(reported, use.path) != reported.end()) continue;
    reported.push_back(use.path);
    if (use.refused && (use.is_default == nullptr || !use.is_default(*job))) {
      return InvalidArgument(member->key_where, ": ", Refusal(use, value));
    }
    job->warnings.push_back(absl::StrCat(member->key_where, ": ", Warning(use, value)));
    // Row rules and formats apply to every table; tables of models without embeddings must stay
    // plain.
    if (use.path == "model.embedding" && use.by.path == kModel.path) job->model.embedding = {};
  }
  ListStorageKeys(root, job);
  return absl::OkStatus();
}

}  // namespace cairn
