#include "worker/cluster/named_cluster.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/status.h"
#include "worker/cluster/kubernetes_cluster_resolver.h"
#include "worker/cluster/resolved_config.h"
#include "worker/cluster/simple_cluster_resolver.h"
#include "worker/cluster/slurm_cluster_resolver.h"

namespace cairn {
namespace {

constexpr absl::string_view kResolvers[] = {"file", "tf_config", "slurm", "kubernetes"};

absl::Status BadFlag(const NamedCluster& named, absl::string_view why) {
  return InvalidArgument("--cluster_resolver ", named.resolver, ": ", why);
}

absl::Status TakesNoJobs(const NamedCluster& named) {
  if (named.jobs.empty() && named.port == 0) return absl::OkStatus();
  return BadFlag(named, "--cluster_jobs and --cluster_port are for slurm and kubernetes");
}

absl::StatusOr<ClusterConfig> ReadFile(const NamedCluster& named) {
  RETURN_IF_ERROR(TakesNoJobs(named));
  if (named.file.empty()) return BadFlag(named, "give the file by --cluster FILE");
  return ReadClusterFile(named.file);
}

absl::StatusOr<ClusterConfig> ReadTfConfig(const NamedCluster& named,
                                           const Environment& environment) {
  RETURN_IF_ERROR(TakesNoJobs(named));
  if (!named.file.empty()) return BadFlag(named, "--cluster is for a file; leave one of them out");
  const std::optional<std::string> text = environment("TF_CONFIG");
  if (!text.has_value() || text->empty()) {
    return BadFlag(named, "the variable TF_CONFIG is not set");
  }
  return ParseCluster(*text, "TF_CONFIG");
}

// Parses "ps=2,worker=4".
absl::StatusOr<std::map<std::string, int32_t>> SlurmJobs(const NamedCluster& named) {
  std::map<std::string, int32_t> jobs;
  for (const absl::string_view part : absl::StrSplit(named.jobs, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string job(absl::StripAsciiWhitespace(pair[0]));
    int32_t tasks = 0;
    if (pair.size() != 2 || job.empty() || !absl::SimpleAtoi(pair[1], &tasks) || tasks < 0 ||
        !jobs.emplace(job, tasks).second) {
      return BadFlag(named, absl::StrCat("--cluster_jobs: found '", part,
                                         "'; expected each job once with its number of tasks, as "
                                         "in ps=2,worker=4"));
    }
  }
  return jobs;
}

absl::StatusOr<ClusterConfig> ReadSlurm(const NamedCluster& named, const Environment& environment) {
  if (!named.file.empty()) return BadFlag(named, "--cluster is for a file; leave one of them out");
  SlurmOptions options;
  ASSIGN_OR_RETURN(options.jobs, SlurmJobs(named));
  if (options.jobs.empty()) {
    return BadFlag(named,
                   "give --cluster_jobs, which says how many tasks of the step are servers, "
                   "as in ps=2,worker=4");
  }
  if (named.port != 0) options.port_base = named.port;
  options.gpus_per_node = 0;
  options.auto_set_gpu = false;
  options.environment = environment;
  ASSIGN_OR_RETURN(const auto resolver, SlurmClusterResolver::Create(options));
  return ResolveClusterConfig(*resolver, "slurm");
}

// Parses "ps:role=ps;worker:role=worker".
absl::StatusOr<std::map<std::string, std::vector<std::string>>> PodSelectors(
    const NamedCluster& named) {
  std::map<std::string, std::vector<std::string>> selectors;
  for (const absl::string_view part : absl::StrSplit(named.jobs, ';', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::string job(absl::StripAsciiWhitespace(pair[0]));
    if (pair.size() != 2 || job.empty() || absl::StripAsciiWhitespace(pair[1]).empty()) {
      return BadFlag(named, absl::StrCat("--cluster_jobs: found '", part,
                                         "'; expected jobs and their label selectors, as in "
                                         "ps:role=ps;worker:role=worker"));
    }
    selectors[job].emplace_back(pair[1]);
  }
  return selectors;
}

absl::StatusOr<ClusterConfig> ReadPods(const NamedCluster& named, const Environment& environment) {
  if (named.file.empty()) {
    return BadFlag(named,
                   "give --cluster FILE, a list of pods as kubectl get pods -o json writes it; the "
                   "program does not call the Kubernetes API");
  }
  KubernetesOptions options;
  ASSIGN_OR_RETURN(options.job_to_label_mapping, PodSelectors(named));
  if (options.job_to_label_mapping.empty()) {
    return BadFlag(named,
                   "give --cluster_jobs, which says which pods are which job, as in "
                   "ps:role=ps;worker:role=worker");
  }
  if (named.port != 0) options.server_port = named.port;
  options.address = KubernetesOptions::Address::kPodIp;
  options.pod_name = environment("POD_NAME");
  ASSIGN_OR_RETURN(const auto resolver, KubernetesClusterResolver::FromFile(named.file, options));
  return ResolveClusterConfig(*resolver, "kubernetes");
}

}  // namespace

absl::StatusOr<ClusterConfig> ReadNamedCluster(const NamedCluster& named,
                                               const Environment& environment) {
  if (named.port < 0 || named.port > 65535) {
    return BadFlag(named,
                   absl::StrCat("--cluster_port is ", named.port, "; ports go from 1 to 65535"));
  }
  if (named.resolver == "file") return ReadFile(named);
  if (named.resolver == "tf_config") return ReadTfConfig(named, environment);
  if (named.resolver == "slurm") return ReadSlurm(named, environment);
  if (named.resolver == "kubernetes") return ReadPods(named, environment);
  return BadFlag(named, absl::StrCat("there are file, tf_config, slurm and kubernetes",
                                     DidYouMean(named.resolver, kResolvers)));
}

std::string ClusterFileText(const ClusterConfig& config) {
  ResolverOverrides task;
  if (!config.task_type.empty()) task.task_type = config.task_type;
  if (config.task_index >= 0) task.task_id = config.task_index;
  // Resolving a cluster that is already in memory cannot fail.
  return TfConfigText(SimpleClusterResolver(ClusterSpec::FromLists(config.tasks), std::move(task)))
      .value();
}

}  // namespace cairn
