#include "worker/cluster/slurm_cluster_resolver.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/local_gpus.h"
#include "common/status.h"
#include "worker/cluster/slurm_text.h"

namespace cairn {
namespace {

constexpr int32_t kMaxPort = 65535;

// The host of a task of the step.
struct Slot {
  std::string host;
  int32_t local = 0;  // among the host's tasks
};

class Step {
 public:
  explicit Step(const SlurmOptions& options) : options_(options) {}

  absl::StatusOr<std::vector<SlurmHost>> Hosts() const {
    if (!options_.hosts.empty()) return options_.hosts;
    ASSIGN_OR_RETURN(const std::string list, Variable("SLURM_STEP_NODELIST"));
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandHostlist(list));
    std::vector<int32_t> tasks;
    if (options_.tasks_per_node.has_value()) {
      tasks.assign(names.size(), *options_.tasks_per_node);
    } else {
      ASSIGN_OR_RETURN(const std::string text, Variable("SLURM_STEP_TASKS_PER_NODE"));
      ASSIGN_OR_RETURN(tasks, ExpandTasksPerNode(text));
    }
    if (tasks.size() != names.size()) {
      return InvalidArgument("SLURM_STEP_NODELIST names ", names.size(),
                             " hosts and SLURM_STEP_TASKS_PER_NODE ", tasks.size());
    }
    std::vector<SlurmHost> hosts;
    for (size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], tasks[i]});
    return hosts;
  }

  absl::StatusOr<std::map<std::string, int32_t>> Jobs() const {
    if (!options_.jobs.empty()) return options_.jobs;
    ASSIGN_OR_RETURN(const int32_t tasks, Number("SLURM_STEP_NUM_TASKS"));
    return std::map<std::string, int32_t>{{"worker", tasks}};
  }

  // This process's index in `slots`.
  absl::StatusOr<int32_t> OwnRank(const std::vector<Slot>& slots) const {
    ASSIGN_OR_RETURN(const int32_t rank, Number("SLURM_PROCID"));
    const std::optional<std::string> host = options_.environment("SLURMD_NODENAME");
    if (host.has_value() && options_.environment("SLURM_LOCALID").has_value()) {
      ASSIGN_OR_RETURN(const int32_t local, Number("SLURM_LOCALID"));
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].host == *host && slots[i].local == local) return static_cast<int32_t>(i);
      }
      return InvalidArgument(
          "this is task ", local, " on host ", *host,
          " (SLURM_LOCALID, SLURMD_NODENAME), which the step's list of hosts does not "
          "have");
    }
    if (rank >= static_cast<int64_t>(slots.size())) {
      return InvalidArgument("SLURM_PROCID is ", rank, "; the step has ", slots.size(), " tasks");
    }
    return rank;
  }

  absl::StatusOr<int32_t> GpusPerNode() const {
    if (options_.gpus_per_node.has_value()) return *options_.gpus_per_node;
    if (options_.environment("SLURM_GPUS_ON_NODE").has_value()) return Number("SLURM_GPUS_ON_NODE");
    return LocalGpuCount();
  }

 private:
  absl::StatusOr<std::string> Variable(const std::string& name) const {
    std::optional<std::string> value = options_.environment(name);
    if (value.has_value()) return *std::move(value);
    return FailedPrecondition(
        name,
        " not found in environment. Not running inside a SLURM step? Start the "
        "program with srun");
  }

  absl::StatusOr<int32_t> Number(const std::string& name) const {
    ASSIGN_OR_RETURN(const std::string text, Variable(name));
    int32_t number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= 0) return number;
    return InvalidArgument(name, " is '", text.substr(0, 60), "'; expected a number from 0");
  }

  const SlurmOptions& options_;
};

absl::StatusOr<std::vector<Slot>> SlotsOf(const std::vector<SlurmHost>& hosts, int32_t port_base) {
  std::vector<Slot> slots;
  for (const SlurmHost& host : hosts) {
    if (host.tasks < 0) {
      return InvalidArgument("host ", host.name, " has ", host.tasks, " tasks; expected 0 or more");
    }
    if (port_base < 1 || host.tasks > kMaxPort + 1 - port_base) {
      return InvalidArgument("port_base ", port_base, " leaves no port for ", host.tasks,
                             " tasks on ", host.name, "; ports go from 1 to ", kMaxPort);
    }
    for (int32_t local = 0; local < host.tasks; ++local) {
      if (slots.size() == kMaxTasksPerJob) {
        return InvalidArgument("the step has more than ", kMaxTasksPerJob, " tasks");
      }
      slots.push_back({host.name, local});
    }
  }
  return slots;
}

// GPUs of each task. `fullest` is the number of tasks on the host with the most tasks.
absl::StatusOr<int32_t> GpusPerTask(const SlurmOptions& options, int32_t per_node,
                                    int32_t fullest) {
  if (per_node < 0 || options.gpus_per_task.value_or(0) < 0) {
    return absl::InvalidArgumentError("a number of GPUs is negative");
  }
  if (!options.gpus_per_task.has_value() && per_node > 0 && per_node < fullest) {
    return FailedPrecondition(
        "Requested more GPUs per node than available: ", fullest, " tasks on a host with ",
        per_node, " GPUs; run fewer tasks there, or give gpus_per_task = 0 to train on CPUs");
  }
  const int64_t per_task = options.gpus_per_task.value_or(fullest == 0 ? 0 : per_node / fullest);
  if (per_task * fullest > per_node) {
    return FailedPrecondition("Requested more GPUs per node than available: ", fullest,
                              " tasks of ", per_task, " GPUs on a host with ", per_node);
  }
  return static_cast<int32_t>(per_task);
}

absl::Status CheckRequest(const std::map<std::string, int32_t>& jobs, size_t assigned) {
  int64_t requested = 0;
  for (const auto& [job, tasks] : jobs) {
    if (tasks < 0) return InvalidArgument("job ", job, " has ", tasks, " tasks");
    requested += tasks;
  }
  if (requested <= static_cast<int64_t>(assigned)) return absl::OkStatus();
  return FailedPrecondition("Requested ", requested, " tasks but only ", assigned,
                            " were assigned: ask srun for more (--ntasks), or give the jobs fewer");
}

// GPUs first, first + 1, … in the format of CUDA_VISIBLE_DEVICES.
std::string Slice(int32_t first, int32_t count) {
  std::vector<int32_t> gpus;
  gpus.reserve(count);
  for (int32_t i = 0; i < count; ++i) gpus.push_back(first + i);
  return absl::StrJoin(gpus, ",");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlurmClusterResolver>> SlurmClusterResolver::Create(
    const SlurmOptions& options) {
  const Step step(options);
  ASSIGN_OR_RETURN(const auto jobs, step.Jobs());
  ASSIGN_OR_RETURN(const std::vector<SlurmHost> hosts, step.Hosts());
  ASSIGN_OR_RETURN(const std::vector<Slot> slots, SlotsOf(hosts, options.port_base));
  RETURN_IF_ERROR(CheckRequest(jobs, slots.size()));
  int32_t fullest = 0;
  for (const SlurmHost& host : hosts) fullest = std::max(fullest, host.tasks);
  ASSIGN_OR_RETURN(const int32_t gpus_per_node, step.GpusPerNode());
  ASSIGN_OR_RETURN(const int32_t gpus_per_task, GpusPerTask(options, gpus_per_node, fullest));
  ASSIGN_OR_RETURN(const int32_t rank, step.OwnRank(slots));

  auto resolver = absl::WrapUnique(new SlurmClusterResolver({.rpc_layer = options.rpc_layer}));
  std::map<std::string, std::vector<std::string>> allocation;
  int32_t next = 0;
  for (const auto& [job, tasks] : jobs) {
    std::vector<std::string>& addresses = allocation[job];
    if (rank >= next && rank < next + tasks) {
      resolver->task_type_ = job;
      resolver->task_id_ = rank - next;
    }
    for (int32_t i = 0; i < tasks; ++i, ++next) {
      addresses.push_back(
          absl::StrCat(slots[next].host, ":", options.port_base + slots[next].local));
    }
  }
  resolver->spec_ = ClusterSpec::FromLists(allocation);
  resolver->gpus_per_task_ = gpus_per_task;
  resolver->cuda_visible_devices_ = Slice(slots[rank].local * gpus_per_task, gpus_per_task);
  if (options.auto_set_gpu && gpus_per_node > 0) {
    setenv("CUDA_VISIBLE_DEVICES", resolver->cuda_visible_devices_.c_str(), /*overwrite=*/1);
  }
  return resolver;
}

absl::StatusOr<AcceleratorCounts> SlurmClusterResolver::CountAccelerators(
    const std::optional<std::string>& /*task_type*/, std::optional<int32_t> /*task_id*/) const {
  AcceleratorCounts counts;
  if (gpus_per_task_ > 0) counts["GPU"] = gpus_per_task_;
  return counts;
}

}  // namespace cairn
