#include "worker/ctl/launch_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/config/job_config.h"
#include "common/create_directory.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "worker/cluster/named_cluster.h"
#include "worker/ctl/certs.h"
#include "worker/ctl/launch_record.h"
#include "worker/ctl/local_ports.h"
#include "worker/trainer/reports/report.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kServer = "ps";
constexpr absl::string_view kEvaluator = "evaluator";
constexpr absl::string_view kAnyPort = "127.0.0.1:0";

absl::Status BadFlag(absl::string_view text) { return absl::InvalidArgumentError(text); }

absl::StatusOr<ClusterConfig> WantedCluster(const LaunchOptions& options) {
  if (!options.cluster_file.empty()) {
    ASSIGN_OR_RETURN(ClusterConfig cluster, ReadClusterFile(options.cluster_file));
    cluster.task_type.clear();
    cluster.task_index = -1;
    return cluster;
  }
  ClusterConfig cluster;
  const auto fill = [&](absl::string_view job, int32_t count) {
    if (count > 0) {
      cluster.tasks[std::string(job)].assign(static_cast<size_t>(count), std::string(kAnyPort));
    }
  };
  fill(kServer, options.servers);
  fill("worker", options.workers);
  return cluster;
}

// Chooses a free port for each address; all are held at once so that they differ.
absl::Status ChoosePorts(ClusterConfig* cluster) {
  LocalPorts ports;
  for (auto& [job, addresses] : cluster->tasks) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      const absl::StatusOr<std::string> address = ports.Hold(addresses[i], job == kServer);
      if (!address.ok()) return Annotate(address.status(), absl::StrCat(job, ":", i));
      addresses[i] = *address;
    }
  }
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  std::ofstream out(path);
  out << text << "\n";
  out.close();
  if (out) return absl::OkStatus();
  return Unavailable(path, " cannot be written: is the disk full?");
}

// Without a job file, which only `needed` requires, a job without a name.
absl::StatusOr<JobConfig> ReadJobOf(const LaunchOptions& options, bool needed, size_t servers) {
  if (options.job_file.empty()) {
    if (!needed) return JobConfig();
    return BadFlag("--job FILE is needed for the workers; --worker 0 starts only servers");
  }
  JobOptions reading;
  reading.data_root = options.data_root;
  reading.overrides = options.sets;
  ASSIGN_OR_RETURN(JobConfig job, ReadJobFile(options.job_file, reading));
  if (needed && servers == 0 && job.strategy.type == "parameter_server") {
    return BadFlag(absl::StrCat(options.cluster_file.empty()
                                    ? "--ps 0"
                                    : absl::StrCat(options.cluster_file, " has no ps tasks"),
                                ": the workers of job '", job.name,
                                "' (strategy.type: parameter_server) need servers: give at least "
                                "one, or run one worker with "
                                "a server in its process: cairn-worker --job ",
                                options.job_file));
  }
  return job;
}

// The flags of the task that `cairnctl certs` calls `name`; none without TLS.
std::vector<std::string> TlsFlags(const std::string& directory, const std::string& name) {
  if (directory.empty()) return {};
  const std::string path = absl::StrCat(directory, "/", name);
  return {"--tls_certificate", absl::StrCat(path, ".crt"),
          "--tls_key",         absl::StrCat(path, ".key"),
          "--tls_ca",          absl::StrCat(directory, "/ca.crt")};
}

void Append(const std::vector<std::string>& flags, std::vector<std::string>* command) {
  command->insert(command->end(), flags.begin(), flags.end());
}

absl::Status MakeTls(const LaunchOptions& options, const LaunchPlan& plan) {
  if (options.tls_directory.empty()) return absl::OkStatus();
  if (plan.cluster.addresses(kServer).empty()) {
    return BadFlag(
        "--tls_directory is for calls to ps tasks, and the cluster has none: leave it out");
  }
  std::error_code error;
  if (fs::exists(options.tls_directory, error)) return absl::OkStatus();
  return MakeCerts({.directory = options.tls_directory, .cluster_file = plan.cluster_file})
      .status();
}

// Appends a free HTTP port, which the task's log names, unless the user's `flags` choose one.
void AppendHttpPort(const std::vector<std::string>& flags, std::vector<std::string>* command) {
  const bool chosen = std::ranges::any_of(flags, [](absl::string_view flag) {
    return flag.substr(0, flag.find('=')) == "--http_port";
  });
  if (!chosen) Append({"--http_port", "0"}, command);
}

// The reader's certificate, for commands that watch the servers.
SecurityOptions ReaderOf(const std::string& directory) {
  if (directory.empty()) return {};
  return {.tls_certificate = absl::StrCat(directory, "/reader.crt"),
          .tls_key = absl::StrCat(directory, "/reader.key"),
          .tls_ca = absl::StrCat(directory, "/ca.crt")};
}

// The user's own file, unless it has a port of 0, which the launch has replaced in its copy.
std::string ShownClusterFile(const LaunchOptions& options, const LaunchPlan& plan) {
  if (options.cluster_file.empty()) return plan.cluster_file;
  const absl::StatusOr<ClusterConfig> given = ReadClusterFile(options.cluster_file);
  return given.ok() && given->tasks == plan.cluster.tasks ? options.cluster_file
                                                          : plan.cluster_file;
}

// Makes the directory of the tasks' logs. Files of an earlier launch are appended to.
absl::StatusOr<std::string> MakeLogDirectory(const LaunchOptions& options,
                                             const std::string& folder) {
  fs::path directory = !options.log_directory.empty() ? fs::path(options.log_directory)
                       : !options.state.empty()       ? fs::path(options.state) / "logs"
                                                      : fs::path(folder) / "logs";
  if (options.wait && options.log_directory.empty() && options.state.empty()) {
    return BadFlag(
        "--wait continues in the background: name its logs' directory by --log_directory DIR (or "
        "--state DIR)");
  }
  std::error_code error;
  directory = fs::absolute(directory, error);
  if (!error) error = CreateDirectories(directory);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("making the log directory ", directory.string()));
  }
  return directory.string();
}

PlannedTask ServerTask(const LaunchOptions& options, const std::string& program,
                       const std::string& cluster_file, const std::string& folder, size_t index) {
  PlannedTask task{.task = absl::StrCat(kServer, ":", index), .server = true};
  task.port_file = absl::StrCat(folder, "/", kServer, index, ".port");
  const std::string& state = options.state.empty() ? folder : options.state;
  task.command = {program,
                  "--cluster",
                  cluster_file,
                  "--task_index",
                  absl::StrCat(index),
                  "--data_dir",
                  absl::StrCat(state, "/", kServer, index),
                  "--port_file",
                  task.port_file};
  AppendHttpPort(options.server_flags, &task.command);
  Append(TlsFlags(options.tls_directory, absl::StrCat(kServer, "-", index)), &task.command);
  Append(options.server_flags, &task.command);
  return task;
}

PlannedTask WorkerTask(const LaunchOptions& options, const std::string& program,
                       const std::string& cluster_file, const std::string& folder,
                       const std::string& type, size_t index) {
  PlannedTask task{.task = absl::StrCat(type, ":", index)};
  task.command = {program,       "--job", options.job_file, "--cluster",        cluster_file,
                  "--task_type", type,    "--task_index",   absl::StrCat(index)};
  if (!options.data_root.empty()) Append({"--data_root", options.data_root}, &task.command);
  AppendHttpPort(options.worker_flags, &task.command);
  for (const std::string& set : options.sets) Append({"--set", set}, &task.command);
  if (type != kEvaluator) {  // an evaluator reads checkpoints and calls no server
    Append(TlsFlags(options.tls_directory, absl::StrCat(type, "-", index)), &task.command);
    if (options.restart_on_failure) {
      task.applied_flags_file = absl::StrCat(folder, "/", type, index, ".obeyed");
      Append({"--obeyed_file", task.applied_flags_file}, &task.command);
    }
  }
  Append(options.worker_flags, &task.command);
  return task;
}

absl::Status CheckNumbers(const LaunchOptions& options) {
  constexpr int32_t kMostTasks = 1000;
  if (options.servers < 0 || options.workers < 0 || options.servers + options.workers == 0 ||
      options.servers + options.workers > kMostTasks) {
    return BadFlag(absl::StrCat("--ps ", options.servers, " --worker ", options.workers,
                                ": from 1 to ", kMostTasks, " tasks together can be started"));
  }
  if (options.max_restarts < 0 || options.grace_seconds < 0 || options.progress_seconds < 0) {
    return BadFlag(
        "--max_restarts, --grace_seconds and --progress_seconds are numbers of at least 0");
  }
  return absl::OkStatus();
}

bool Trains(const PlannedTask& task) {
  return !task.server && !absl::StartsWith(task.task, absl::StrCat(kEvaluator, ":"));
}

// The user's flags name one metrics file for all workers: the first one writes it, and each other
// task its own.
void DivideMetricsFile(std::vector<PlannedTask>* tasks) {
  constexpr absl::string_view kFlag = "--metrics_file";
  const auto first = std::ranges::find_if(*tasks, Trains);
  for (auto task = tasks->begin(); task != tasks->end(); ++task) {
    if (task->server || task == first) continue;
    std::string before;
    for (std::string& word : task->command) {
      if (before == kFlag) word = TaskMetricsFile(word, task->task);
      absl::string_view file = word;
      if (absl::ConsumePrefix(&file, kFlag) && absl::ConsumePrefix(&file, "=")) {
        word = absl::StrCat(kFlag, "=", TaskMetricsFile(std::string(file), task->task));
      }
      before = word;
    }
  }
}

// The tasks that train divide the machine's GPUs among themselves (worker/cluster/local_gpus.h).
// Beside them an evaluator computes on the CPU, unless the job names devices.
void ShareGpus(const JobConfig& job, std::vector<PlannedTask>* tasks) {
  const auto trainers = std::ranges::count_if(*tasks, Trains);
  int rank = 0;
  for (PlannedTask& task : *tasks) {
    if (Trains(task)) {
      task.environment = {absl::StrCat("LOCAL_RANK=", rank++),
                          absl::StrCat("LOCAL_WORLD_SIZE=", trainers)};
    } else if (!task.server && trainers > 0 && job.strategy.devices.empty()) {
      task.environment = {"CUDA_VISIBLE_DEVICES="};
    }
  }
}

absl::StatusOr<LaunchPlan> Plan(const LaunchOptions& options, const std::string& folder) {
  RETURN_IF_ERROR(CheckNumbers(options));
  LaunchPlan plan;
  ASSIGN_OR_RETURN(plan.cluster, WantedCluster(options));
  const size_t servers = plan.cluster.addresses(kServer).size();
  const bool trains = plan.cluster.tasks.size() > (servers > 0 ? 1U : 0U);
  ASSIGN_OR_RETURN(const JobConfig job, ReadJobOf(options, trains, servers));
  plan.job = job.name;
  std::string cairn_ps;
  std::string cairn_worker;
  if (servers > 0) {
    ASSIGN_OR_RETURN(cairn_ps, FindProgram("cairn-ps", options.cairn_ps, "--cairn_ps"));
  }
  if (trains) {
    ASSIGN_OR_RETURN(cairn_worker,
                     FindProgram("cairn-worker", options.cairn_worker, "--cairn_worker"));
  }
  RETURN_IF_ERROR(ChoosePorts(&plan.cluster));
  plan.cluster_file = absl::StrCat(folder, "/cluster.json");
  RETURN_IF_ERROR(WriteText(plan.cluster_file, ClusterFileText(plan.cluster)));
  RETURN_IF_ERROR(MakeTls(options, plan));
  plan.shown_cluster_file = ShownClusterFile(options, plan);
  plan.reader_flags = TlsFlags(options.tls_directory, "reader");
  plan.reader = ReaderOf(options.tls_directory);
  ASSIGN_OR_RETURN(plan.log_directory, MakeLogDirectory(options, folder));
  if (!options.state.empty()) {
    if (const std::error_code error = CreateDirectories(options.state)) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat("making --state ", options.state));
    }
  }
  for (size_t i = 0; i < servers; ++i) {
    plan.tasks.push_back(ServerTask(options, cairn_ps, plan.cluster_file, folder, i));
  }
  for (const auto& [type, addresses] : plan.cluster.tasks) {
    if (type == kServer) continue;
    for (size_t i = 0; i < addresses.size(); ++i) {
      plan.tasks.push_back(WorkerTask(options, cairn_worker, plan.cluster_file, folder, type, i));
    }
  }
  ShareGpus(job, &plan.tasks);
  DivideMetricsFile(&plan.tasks);
  for (PlannedTask& task : plan.tasks) task.log_file = TaskLogPath(plan.log_directory, task.task);
  return plan;
}

}  // namespace

absl::StatusOr<std::string> FindProgram(absl::string_view name, const std::string& given,
                                        absl::string_view flag) {
  std::vector<std::string> places;
  std::error_code error;
  if (!given.empty()) {
    places.push_back(given);
  } else {
    const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
    const fs::path build = self.parent_path().parent_path();
    // Looks in an installation, then in build/worker/ctl beside build/worker and build/ps_server.
    for (const fs::path& folder : {self, self.parent_path(), build / "ps_server"}) {
      places.push_back((folder / std::string(name)).string());
    }
  }
  for (const std::string& place : places) {
    if (fs::is_regular_file(place, error) && access(place.c_str(), X_OK) == 0) return place;
  }
  return NotFound(name, " is not at ", absl::StrJoin(places, ", nor at "),
                  ": build or install it, or say where it is by ", flag);
}

absl::StatusOr<LaunchPlan> PlanLaunch(const LaunchOptions& options, const std::string& folder) {
  ASSIGN_OR_RETURN(LaunchPlan plan, AsBadInput(Plan(options, folder)));
  return plan;
}

}  // namespace cairn
