#include "worker/cluster/kubernetes_cluster_resolver.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/memory/memory.h"
#include "common/config/cluster_config.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/cluster/kubernetes_pods.h"

namespace cairn {
namespace {

using Address = KubernetesOptions::Address;

// The pods of a job in task order.
absl::StatusOr<std::vector<const Pod*>> Select(const std::vector<Pod>& pods,
                                               const std::vector<std::string>& selectors) {
  std::vector<const Pod*> selected;
  for (const std::string& text : selectors) {
    ASSIGN_OR_RETURN(const LabelSelector selector, LabelSelector::Parse(text));
    for (const Pod& pod : pods) {
      if (selector.Matches(pod.labels)) selected.push_back(&pod);
    }
  }
  return selected;
}

absl::StatusOr<std::string> AddressOf(const Pod& pod, const KubernetesOptions& options) {
  if (pod.phase != "Running") {
    return FailedPrecondition("Pod \"", pod.name, "\" is not running; phase: \"", pod.phase,
                              "\": wait for it, then read the list again");
  }
  const bool of_host = options.address == Address::kHostIp;
  const std::string& ip = of_host ? pod.host_ip : pod.pod_ip;
  if (ip.empty()) {
    return FailedPrecondition("Pod \"", pod.name, "\" has no status.", of_host ? "hostIP" : "podIP",
                              " yet");
  }
  return HostPortText(ip, options.server_port);
}

absl::Status TakenTwice(const std::string& address, const std::string& one, const Pod& other,
                        Address kind) {
  return InvalidArgument("Pods \"", one, "\" and \"", other.name, "\" would both be at ", address,
                         kind == Address::kHostIp
                             ? "; they share a node: use their podIP, or hostNetwork and one a node"
                             : "; a pod is one task: let no two selectors match it");
}

}  // namespace

absl::StatusOr<std::unique_ptr<KubernetesClusterResolver>> KubernetesClusterResolver::FromJson(
    absl::string_view pods_json, const KubernetesOptions& options) {
  if (options.server_port < 1 || options.server_port > 65535) {
    return InvalidArgument("server_port is ", options.server_port, "; ports go from 1 to 65535");
  }
  ASSIGN_OR_RETURN(const std::vector<Pod> pods, ParsePods(pods_json));
  auto resolver = absl::WrapUnique(new KubernetesClusterResolver({.rpc_layer = options.rpc_layer}));
  std::map<std::string, std::vector<std::string>> jobs;
  std::map<std::string, std::string> taken;  // address -> pod
  for (const auto& [job, selectors] : options.job_to_label_mapping) {
    ASSIGN_OR_RETURN(const std::vector<const Pod*> selected, Select(pods, selectors));
    std::vector<std::string>& addresses = jobs[job];
    for (const Pod* const pod : selected) {
      ASSIGN_OR_RETURN(std::string address, AddressOf(*pod, options));
      const auto [other, is_new] = taken.emplace(address, pod->name);
      if (!is_new) return TakenTwice(address, other->second, *pod, options.address);
      if (options.pod_name == pod->name) {
        resolver->task_type_ = job;
        resolver->task_id_ = static_cast<int32_t>(addresses.size());
      }
      addresses.push_back(std::move(address));
      resolver->gpus_[job].push_back(pod->gpus);
    }
  }
  if (options.pod_name.has_value() && !resolver->task_type_.has_value()) {
    return InvalidArgument("Pod \"", *options.pod_name,
                           "\", this process's, is none of the pods that the selectors match");
  }
  resolver->spec_ = ClusterSpec::FromLists(jobs);
  return resolver;
}

absl::StatusOr<std::unique_ptr<KubernetesClusterResolver>> KubernetesClusterResolver::FromFile(
    const std::string& path, const KubernetesOptions& options) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    return NotFound("pod list ", path, " cannot be read, or is empty");
  }
  absl::StatusOr<std::unique_ptr<KubernetesClusterResolver>> resolver =
      FromJson(text.str(), options);
  if (!resolver.ok()) return Annotate(resolver.status(), path);
  return resolver;
}

absl::StatusOr<AcceleratorCounts> KubernetesClusterResolver::CountAccelerators(
    const std::optional<std::string>& type, std::optional<int32_t> id) const {
  AcceleratorCounts counts;
  ASSIGN_OR_RETURN(const MasterArguments task, Completed({.task_type = type, .task_id = id}));
  if (!task.task_type.has_value() || !task.task_id.has_value()) {
    return absl::InvalidArgumentError(
        "num_accelerators: name a task, or give pod_name, which says this process's");
  }
  RETURN_IF_ERROR(spec_.task_address(*task.task_type, *task.task_id).status());
  const int32_t gpus = gpus_.at(*task.task_type)[*task.task_id];
  if (gpus > 0) counts["GPU"] = gpus;
  return counts;
}

}  // namespace cairn
