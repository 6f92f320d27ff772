// The cluster of the pods in a Kubernetes pod list
// (tf.distribute.cluster_resolver.KubernetesClusterResolver).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

struct KubernetesOptions {
  // Selects the pods of each job: first the pods that match the job's first selector, then those of
  // the second, …, each group sorted by pod name. A selector has the syntax of kubectl's
  // --selector, without sets: "job-name=tensorflow,tier!=test", "gpu", "!gpu".
  std::map<std::string, std::vector<std::string>> job_to_label_mapping = {
      {"worker", {"job-name=tensorflow"}}};
  int32_t server_port = 8470;  // the same on every pod
  // TensorFlow's hostIP needs pods with hostNetwork, one for each node; podIP works for all pods.
  enum class Address { kHostIp, kPodIp };
  Address address = Address::kHostIp;
  // This process's pod, which determines its task; std::nullopt: unknown.
  std::optional<std::string> pod_name = {};
  std::optional<std::string> rpc_layer = "grpc";
};

// This class does not call the Kubernetes API: pass it the output of `kubectl get pods -o json`.
// Thread safety: as ClusterResolver.
class KubernetesClusterResolver : public StaticClusterResolver {
 public:
  // `pods` is a PodList, or a Pod, as JSON of at most 64 MiB. Pods that no selector matches are
  // ignored.
  // kFailedPrecondition: a pod that is not Running, or has no address yet.
  // kInvalidArgument: not a pod list; two tasks with the same address; pod_name is not a task.
  // kUnimplemented: a selector with a set ("tier in (a, b)").
  static absl::StatusOr<std::unique_ptr<KubernetesClusterResolver>> FromJson(
      absl::string_view pods, const KubernetesOptions& options = {});
  // Like FromJson, with the text of a file. kNotFound, kInvalidArgument: the file cannot be read.
  static absl::StatusOr<std::unique_ptr<KubernetesClusterResolver>> FromFile(
      const std::string& path, const KubernetesOptions& options = {});

 protected:
  // The limits "nvidia.com/gpu" of the pod's containers. kInvalidArgument: no such task.
  absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const override;

 private:
  explicit KubernetesClusterResolver(ResolverOverrides overrides)
      : StaticClusterResolver(std::move(overrides)) {}

  std::map<std::string, std::vector<int32_t>> gpus_;  // for each task of a job
};

}  // namespace cairn
