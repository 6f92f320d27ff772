#include "common/config/client_config.h"

#include <optional>
#include <utility>

#include "common/config/cluster_config.h"
#include "common/config/cluster_section.h"
#include "common/config/config_node.h"
#include "common/config/job_sections.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kMaxWorkers = 1 << 20;

// The keys of section `strategy` that concern a client.
constexpr absl::string_view kStrategyKeys[] = {
    "consistency", "staleness_bound_steps", "replicas_to_aggregate",
    "sync_mean",   "ps_wait_seconds",       "on_worker_loss",
    "partitioner"};

absl::Status ReadClientStrategy(const ConfigNode& section, const std::string& path,
                                StrategyConfig* strategy) {
  for (const ConfigNode& member : section.children) {
    bool known = false;
    for (const absl::string_view key : kStrategyKeys) known = known || member.key == key;
    if (section.kind == ConfigNode::Kind::kMap && !known) {
      return InvalidArgument(
          member.key_where, ": ", path, ".", member.key,
          ": has no effect here; a client has consistency, staleness_bound_steps, "
          "replicas_to_aggregate, sync_mean, on_worker_loss, ps_wait_seconds and "
          "partitioner");
    }
  }
  JobConfig job;
  RETURN_IF_ERROR(ReadStrategy(section, path, &job));
  *strategy = std::move(job.strategy);
  return absl::OkStatus();
}

absl::Status ReadServers(const ConfigNode& value, const std::string& path,
                         std::vector<std::string>* servers) {
  constexpr absl::string_view kExpected = "a list of addresses, as in [\"127.0.0.1:7001\"]";
  if (value.children.empty()) return Unexpected(value, path, kExpected);
  const auto read = [](const ConfigNode& item, const std::string& at, std::string* address) {
    RETURN_IF_ERROR(ReadText(item, at, address));
    return Annotate(ParseHostPort(*address).status(), absl::StrCat(item.where, ": ", at));
  };
  return ReadList(value, path, kExpected, read, servers);
}

std::vector<Field> SecurityFields(SecurityOptions* security) {
  return {Path("tls_certificate", &security->tls_certificate), Path("tls_key", &security->tls_key),
          Path("tls_ca", &security->tls_ca), Path("token_file", &security->token_file),
          Boolean("allow_plaintext", &security->allow_plaintext)};
}

struct Given {
  ClusterConfig cluster;  // of cluster_file, cluster and task, or TF_CONFIG
  std::string cluster_file;
  std::string worker = "none";
  int64_t workers = -1;
  std::string not_finite = "reject";
  std::string local_transport = "auto";
};

std::vector<Field> Fields(ClientConfig* config, Given* given) {
  const auto later = [](const ConfigNode&, const std::string&) { return absl::OkStatus(); };
  return {Value("servers", ReadServers, &config->servers),
          Path("cluster_file", &given->cluster_file),
          Custom("cluster", later),
          Custom("task", later),
          Text("job", &config->job),
          Text("worker", &given->worker),
          Integer("workers", &given->workers, 0, kMaxWorkers),
          Value("strategy", ReadClientStrategy, &config->strategy),
          Choice("not_finite", &given->not_finite, {"reject", "skip"}),
          NumberAbove("rpc_timeout_seconds", 0, &config->rpc_timeout_seconds),
          Integer("retained_bytes", &config->retained_bytes, 0),
          Choice("local_transport", &given->local_transport, {"auto", "off", "any_user"}),
          Section("security", SecurityFields(&config->security))};
}

absl::Status FindServers(const ConfigNode& root, ClientConfig* config, Given* given) {
  const bool has_cluster = root.Find("cluster") != nullptr;
  const int named = (config->servers.empty() ? 0 : 1) + (given->cluster_file.empty() ? 0 : 1) +
                    (has_cluster ? 1 : 0);
  if (named > 1) {
    return InvalidArgument(root.where,
                           ": servers, cluster_file and cluster each name servers; keep one");
  }
  if (!config->servers.empty()) return absl::OkStatus();
  if (!given->cluster_file.empty()) {
    ASSIGN_OR_RETURN(given->cluster, ReadClusterFile(given->cluster_file));
  } else if (has_cluster) {
    RETURN_IF_ERROR(ReadClusterSections(root, &given->cluster));
  } else {
    ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
    if (!environment.has_value()) {
      return absl::InvalidArgumentError(
          "which servers? name them by servers, cluster_file or cluster, or set TF_CONFIG");
    }
    given->cluster = *std::move(environment);
  }
  config->servers = given->cluster.addresses("ps");
  if (!config->servers.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("the cluster has no ps tasks; a client needs at least one");
}

absl::Status FindWorker(const ConfigNode& root, const Given& given, ClientConfig* config) {
  const ClusterConfig& cluster = given.cluster;
  config->workers =
      given.workers >= 0 ? static_cast<int32_t>(given.workers) : cluster.training_task_count();
  config->task = "client";
  const ConfigNode* const worker = root.Find("worker");
  if (given.worker == "none" || given.worker.empty()) return absl::OkStatus();
  if (given.worker == "auto") {
    if (cluster.task_type.empty()) {
      return Unexpected(*worker, "worker",
                        "the worker's index: the servers are given without a task (TF_CONFIG and "
                        "cluster files can name one) from which auto would take it");
    }
    config->worker = cluster.training_ordinal(cluster.task_type, cluster.task_index);
    if (config->worker < 0) return absl::OkStatus();
    config->task = absl::StrCat(cluster.task_type, ":", cluster.task_index);
    return absl::OkStatus();
  }
  int64_t index = 0;
  RETURN_IF_ERROR(ReadInteger(*worker, "worker", 0, kMaxWorkers, &index));
  if (config->workers > 0 && index >= config->workers) {
    return Unexpected(*worker, "worker",
                      absl::StrCat("an index below the number of workers, ", config->workers));
  }
  config->worker = static_cast<int32_t>(index);
  config->task = cluster.training_task(config->worker);
  return absl::OkStatus();
}

// A setting of another consistency, or one that the workers cannot fulfil, is refused: the program
// would run under other rules than those it names.
absl::Status CheckStrategy(const ConfigNode& root, const Given& given, const ClientConfig& config) {
  const StrategyConfig& strategy = config.strategy;
  const ConfigNode* const section = root.Find("strategy");
  if (section == nullptr) return absl::OkStatus();
  constexpr struct {
    absl::string_view key, consistency;
  } kUses[] = {
      {"staleness_bound_steps", "ssp"}, {"replicas_to_aggregate", "sync"}, {"sync_mean", "sync"}};
  for (const auto& use : kUses) {
    const ConfigNode* const member = section->Find(use.key);
    if (member == nullptr || strategy.consistency == use.consistency) continue;
    return InvalidArgument(member->key_where, ": strategy.", use.key,
                           ": has no effect with consistency ", strategy.consistency,
                           "; leave it out, or choose ", use.consistency);
  }
  if (config.workers > 0 && strategy.replicas_to_aggregate > config.workers) {
    return Unexpected(*section->Find("replicas_to_aggregate"), "strategy.replicas_to_aggregate",
                      absl::StrCat("at most the number of workers, ", config.workers));
  }
  if (strategy.consistency == "sync" && config.worker >= 0 && config.workers == 0 &&
      strategy.replicas_to_aggregate == 0) {
    return InvalidArgument(
        section->Find("consistency")->key_where,
        ": strategy.consistency: sync needs workers, the number of workers with "
        "which the job starts: a list of servers does not have it. Give workers, "
        "or replicas_to_aggregate");
  }
  // With `auto`, tasks that do not train may share the description of the workers.
  if (strategy.consistency == "async" || given.worker == "auto" || config.worker >= 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(section->Find("consistency")->key_where,
                         ": strategy.consistency: ", strategy.consistency,
                         " has no effect without worker, the index of this training worker; give "
                         "worker, or leave the consistency out");
}

absl::StatusOr<ClientConfig> ReadClientText(absl::string_view text, absl::string_view source) {
  ASSIGN_OR_RETURN(const ConfigNode root, ParseTree(text, source));
  ClientConfig config;
  Given given;
  RETURN_IF_ERROR(ReadSection(root, "", Fields(&config, &given)));
  if (config.job.empty()) {
    return InvalidArgument(source,
                           ": job: is missing; expected the name under which the servers keep "
                           "the variables");
  }
  RETURN_IF_ERROR(FindServers(root, &config, &given));
  RETURN_IF_ERROR(FindWorker(root, given, &config));
  RETURN_IF_ERROR(CheckStrategy(root, given, config));
  RETURN_IF_ERROR(config.security.Validate());
  config.skip_not_finite = given.not_finite == "skip";
  ASSIGN_OR_RETURN(config.local_transport, LocalTransportFromName(given.local_transport));
  return config;
}

}  // namespace

absl::StatusOr<ClientConfig> ParseClientConfig(absl::string_view text, absl::string_view source) {
  absl::StatusOr<ClientConfig> config = ReadClientText(text, source);
  if (!config.ok()) return PrintableStatus(config.status());  // the message quotes the text
  return config;
}

Consistency ConsistencyOf(const StrategyConfig& strategy) {
  Consistency consistency;
  if (strategy.consistency == "ssp") {
    consistency.mode = ConsistencyMode::kSsp;
    // A step's values are pulled that many steps before it begins.
    consistency.staleness_bound_steps = strategy.staleness_bound_steps - strategy.pull_ahead_steps;
  }
  if (strategy.consistency == "sync") {
    consistency.mode = ConsistencyMode::kSync;
    consistency.replicas_to_aggregate = static_cast<int32_t>(strategy.replicas_to_aggregate);
    consistency.sync_mean =
        strategy.sync_mean == "contributors" ? SyncMean::kContributors : SyncMean::kRows;
  }
  if (strategy.on_worker_loss == "fail") consistency.on_worker_loss = WorkerLoss::kFail;
  return consistency;
}

}  // namespace cairn
