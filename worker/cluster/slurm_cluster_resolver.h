// The cluster of a Slurm job step (tf.distribute.cluster_resolver.SlurmClusterResolver).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/cluster/cluster_resolver.h"

namespace cairn {

struct SlurmHost {
  std::string name = {};
  int32_t tasks = 0;
};

struct SlurmOptions {
  // Number of tasks of each job. Jobs take the step's tasks in alphabetical order of their names
  // (ps before worker). Empty: SLURM_STEP_NUM_TASKS workers. The jobs may have fewer tasks than the
  // step; the remaining tasks have no task_type.
  std::map<std::string, int32_t> jobs = {};
  int32_t port_base = 8888;  // a host's tasks listen at this port and the following ones
  // std::nullopt: SLURM_GPUS_ON_NODE, otherwise the GPUs of this machine.
  std::optional<int32_t> gpus_per_node = {};
  // std::nullopt: gpus_per_node / tasks of the host with the most tasks.
  std::optional<int32_t> gpus_per_task = {};
  // Tasks of every host of SLURM_STEP_NODELIST; replaces SLURM_STEP_TASKS_PER_NODE.
  std::optional<int32_t> tasks_per_node = {};
  // Hosts in rank order; replaces both variables.
  std::vector<SlurmHost> hosts = {};
  // Sets CUDA_VISIBLE_DEVICES of this process to its task's GPUs. Set to false if Slurm binds GPUs
  // to tasks (--gpus-per-task), because Slurm has then set the variable.
  bool auto_set_gpu = true;
  std::optional<std::string> rpc_layer = "grpc";
  Environment environment = ProcessEnvironment();  // source of the SLURM_ variables
};

// Hosts are taken in the order of SLURM_STEP_NODELIST, in which Slurm numbers tasks (TensorFlow
// sorts them as text, which puts n10 before n9 and assigns wrong addresses to tasks). This process
// is task SLURM_PROCID in that order; if SLURMD_NODENAME and SLURM_LOCALID are set, these determine
// the task instead, which is correct for any distribution of tasks over hosts. Thread safety: as
// ClusterResolver; call Create before other threads exist, because it may set an environment
// variable.
class SlurmClusterResolver : public StaticClusterResolver {
 public:
  // kFailedPrecondition: a variable is missing ("Not running inside a SLURM step?"), or more tasks
  // or GPUs are requested than assigned. kInvalidArgument: a variable or option has an invalid
  // value.
  static absl::StatusOr<std::unique_ptr<SlurmClusterResolver>> Create(
      const SlurmOptions& options = {});

  int32_t gpus_per_task() const { return gpus_per_task_; }
  // This task's slice of its host's GPUs: "2,3"; "" for none.
  const std::string& cuda_visible_devices() const { return cuda_visible_devices_; }

 protected:
  // gpus_per_task, for every task.
  absl::StatusOr<AcceleratorCounts> CountAccelerators(
      const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const override;

 private:
  explicit SlurmClusterResolver(ResolverOverrides overrides)
      : StaticClusterResolver(std::move(overrides)) {}

  int32_t gpus_per_task_ = 0;
  std::string cuda_visible_devices_;
};

}  // namespace cairn
