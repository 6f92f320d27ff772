// cairn-worker: trains, evaluates and predicts by a job file.
#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/config/cli.h"
#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "common/config/local_transport.h"
#include "common/exit_status.h"
#include "common/http/http_flags.h"
#include "common/log.h"
#include "common/monotonic_cond_var.h"
#include "common/process_start.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "thrift/security/client_security.h"
#include "worker/cluster/named_cluster.h"
#include "worker/collective/gloo_group.h"
#include "worker/monitor/worker_monitor.h"
#include "worker/trainer/files/exporter.h"
#include "worker/trainer/reports/summary.h"
#include "worker/trainer/run/checkpoint_follower.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/run/trainer.h"
#include "worker/worker_flags.h"

namespace cairn {
namespace {

constexpr absl::string_view kEvaluator = "evaluator";

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void OnStopSignal(int signal) {
  // A second signal ends the process at once: a user should not have to wait for a lost server.
  if (stop_signal.exchange(signal) != 0) _Exit(128 + signal);
}

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // SIGHUP means that the terminal closed. nohup ignores the signal, and so does this process then.
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed connection is an error of its call
}

absl::Status BadFlag(absl::string_view text) {
  return AsBadInput(absl::InvalidArgumentError(text));
}

absl::StatusOr<JobConfig> ReadJob(const WorkerFlags& flags) {
  if (flags.job.empty()) return BadFlag("--job FILE is required; --help lists the flags");
  JobOptions options;
  options.data_root = flags.data_root;
  options.overrides = flags.overrides;
  ASSIGN_OR_RETURN(JobConfig job, AsBadInput(ReadJobFile(flags.job, options)));
  const std::string& restore = job.checkpoint.restore;
  if (flags.fresh && flags.trains_more && (restore == "latest" || restore == "none")) {
    return BadFlag(
        "--fresh starts the job over, so --continue has nothing to continue: give one of them, or "
        "name the checkpoint to return to by checkpoint.restore");
  }
  if (!flags.metrics_file.empty()) job.output.metrics_file = flags.metrics_file;
  if (!flags.export_file.empty()) job.output.export_file = flags.export_file;
  const std::string& target = job.output.export_file;
  if (!target.empty()) RETURN_IF_ERROR(AsBadInput(CheckExportFile(target)));
  job.data.max_steps = flags.max_steps.value_or(job.data.max_steps);
  for (const std::string& warning : job.warnings) LOG(WARNING) << warning;
  return job;
}

// Reads the cluster from --cluster_resolver, else --cluster, else TF_CONFIG, else the job file. A
// cluster without tasks means a server in this process.
absl::StatusOr<ClusterConfig> ReadCluster(const WorkerFlags& flags, const JobConfig& job) {
  const NamedCluster named = {.resolver = flags.cluster_resolver,
                              .file = flags.cluster,
                              .jobs = flags.cluster_jobs,
                              .port = flags.cluster_port};
  if (!named.resolver.empty()) return ReadNamedCluster(named, ProcessEnvironment());
  if (!named.jobs.empty() || named.port != 0 || flags.print_cluster) {
    return absl::InvalidArgumentError(
        "--cluster_jobs, --cluster_port and --print_cluster go with --cluster_resolver");
  }
  if (!named.file.empty()) return ReadClusterFile(named.file);
  ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
  if (environment.has_value()) return *std::move(environment);
  return job.has_cluster ? job.cluster : ClusterConfig();
}

absl::StatusOr<ClusterConfig> FindCluster(const WorkerFlags& flags, const JobConfig& job) {
  ASSIGN_OR_RETURN(ClusterConfig cluster, AsBadInput(ReadCluster(flags, job)));
  const std::string& type = flags.task_type;
  const int32_t index = flags.task_index.value_or(-1);
  const bool names_task = (!type.empty() && type != kEvaluator) || (type.empty() && index >= 0);
  if (names_task && cluster.tasks.empty()) {
    return BadFlag(
        "--task_type and --task_index name a task of a cluster, and there is none: give --cluster "
        "FILE, or leave them out for an in-process server");
  }
  if (!type.empty()) {
    cluster.task_type = type;
    cluster.task_index = 0;
  }
  if (index >= 0) cluster.task_index = index;
  for (const std::string& warning : cluster.warnings) LOG(WARNING) << warning;
  return cluster;
}

// Determines which of the job's workers this process is.
absl::Status FindTask(const ClusterConfig& cluster, TrainerOptions* options) {
  if (cluster.training_task_count() == 0) {
    return BadFlag(
        "the cluster has no task that trains: add \"worker\", a list of addresses, to it");
  }
  if (cluster.task_type.empty()) {
    return BadFlag(
        "the cluster does not say which task this is: give --task_type and --task_index");
  }
  const std::string task = absl::StrCat(cluster.task_type, ":", cluster.task_index);
  const int32_t ordinal = cluster.training_ordinal(cluster.task_type, cluster.task_index);
  if (ordinal < 0) {
    const absl::string_view advice = cluster.task_type == "ps"
                                         ? "that task is served by cairn-ps"
                                         : "the tasks that train are chief and worker";
    return BadFlag(absl::StrCat("task ", task, " is not one of the cluster's ",
                                cluster.training_task_count(), " training tasks; ", advice));
  }
  options->worker = ordinal;
  options->workers = cluster.training_task_count();
  options->task = task;
  return absl::OkStatus();
}

absl::StatusOr<Report> RunMode(const WorkerFlags& flags, const TrainerOptions& options,
                               const Connector& connect) {
  if (flags.mode == "evaluate") return RunEvaluation(options, connect);
  if (flags.mode == "predict") return RunPrediction(options, flags.predictions, connect);
  return RunTraining(options, connect);
}

// A restart that cannot read the note obeys `flag` once more.
void RecordAppliedFlag(const std::string& file, absl::string_view flag) {
  if (file.empty()) return;
  std::ofstream out(file, std::ios::app);
  out << flag << "\n";
  out.close();
  LOG_IF(WARNING, !out) << "--obeyed_file " << file << " cannot be written: a restart obeys "
                        << flag << " once more";
}

CheckpointOpener OpensCheckpoints(const JobConfig& job, const std::string& purpose) {
  return [job, purpose](const std::string& folder) { return OpenCheckpoint(job, folder, purpose); };
}

absl::StatusOr<Report> RunEvaluator(const WorkerFlags& flags, TrainerOptions options,
                                    int32_t index) {
  if (!flags.trains()) {
    return BadFlag(absl::StrCat("--mode ", flags.mode,
                                " is not for the evaluator task, which follows checkpoints: leave "
                                "the mode or the task out"));
  }
  if (options.fresh || options.trains_more || !flags.export_file.empty() ||
      flags.max_steps.has_value()) {
    return BadFlag(
        "--fresh, --continue, --export and --max_steps are for tasks that train, not the "
        "evaluator");
  }
  index = std::max(index, 0);
  options.task = absl::StrCat(kEvaluator, ":", index);
  return FollowCheckpoints(options,
                           OpensCheckpoints(options.job, absl::StrCat(kEvaluator, "-", index)));
}

// Runs with a server in this process. `directory_task` is the `task` of InProcessServer::Open.
absl::StatusOr<Report> RunInProcess(const WorkerFlags& flags, const TrainerOptions& options,
                                    const std::string& directory_task) {
  ASSIGN_OR_RETURN(const std::unique_ptr<InProcessServer> server,
                   InProcessServer::Open(options.job, /*create=*/flags.trains(), directory_task));
  const Connector connect = [&](const ClientOptions& client, Deadline deadline) {
    return server->Connect(client, deadline);
  };
  absl::StatusOr<Report> report = RunMode(flags, options, connect);
  const absl::Status closed = server->Close();
  RETURN_IF_ERROR(report.status());
  if (!closed.ok()) return Annotate(closed, "closing the in-process server");
  return report;
}

// Runs with the ps tasks of the cluster.
absl::StatusOr<Report> RunOnServers(const WorkerFlags& flags, TrainerOptions options,
                                    const ClusterConfig& cluster, LocalTransport local_transport) {
  if (cluster.addresses("ps").empty()) {
    return BadFlag(
        "the cluster has no ps tasks, and strategy parameter_server needs them; add \"ps\" to the "
        "cluster, or leave the cluster out for an in-process server");
  }
  if (flags.trains() || !cluster.task_type.empty()) {
    RETURN_IF_ERROR(FindTask(cluster, &options));
  }
  for (const std::string& warning : options.job.in_process_warnings) LOG(WARNING) << warning;
  const absl::Status usable = ClientSecurity::Load(flags.security).status();
  if (!usable.ok()) return AsBadInput(usable);
  const Connector connect = [&](ClientOptions client, Deadline deadline) {
    client.servers = cluster.addresses("ps");
    client.security = flags.security;
    client.local_transport = local_transport;
    return PsClient::Connect(client, deadline);
  };
  return RunMode(flags, options, connect);
}

absl::StatusOr<GlooOptions> JointGroup(const WorkerFlags& flags, const TrainerOptions& options,
                                       const ClusterConfig& cluster) {
  GlooOptions gloo = {.rank = options.worker, .addresses = cluster.addresses("chief")};
  const std::vector<std::string>& others = cluster.addresses("worker");
  gloo.addresses.insert(gloo.addresses.end(), others.begin(), others.end());
  const std::string& own = gloo.addresses[static_cast<size_t>(gloo.rank)];
  ASSIGN_OR_RETURN(const HostPort host_port, AsBadInput(ParseHostPort(own)));
  if (IsLoopback(host_port.host) || flags.security.allow_plaintext) return gloo;
  return BadFlag(absl::StrCat(options.task, " at ", own,
                              " can be reached by other hosts, and between workers there is "
                              "neither encryption nor authentication: give "
                              "--allow_plaintext if the network is trusted"));
}

// Connects to all other workers. A stop signal in the meantime ends the process, which has nothing
// open yet.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectWorkers(const GlooOptions& gloo,
                                                                absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<CollectiveGroup>> group;
  StopFlag done;
  ASSIGN_OR_RETURN(std::thread connecting, StartThread([&] {
                     group = ConnectGloo(gloo, Deadline::In(timeout));
                     done.Stop();
                   }));
  while (!done.WaitFor(absl::Milliseconds(100))) {
    const int signal = stop_signal.load();
    if (signal == 0) continue;
    std::fputs("cairn-worker: stopped while waiting for the other workers\n", stderr);
    _Exit(128 + signal);
  }
  connecting.join();
  return group;
}

// Runs without ps tasks: workers that train as one, each with a server in its process.
absl::StatusOr<Report> RunTogether(const WorkerFlags& flags, TrainerOptions options,
                                   const ClusterConfig& cluster) {
  if (!cluster.addresses("ps").empty()) {
    return BadFlag(
        "the cluster has ps tasks, but with strategy.type multi_worker_mirrored every worker keeps "
        "the variables itself: leave ps out of the cluster, or use parameter_server");
  }
  if (flags.trains() || !cluster.task_type.empty()) RETURN_IF_ERROR(FindTask(cluster, &options));
  const std::string directory_task = options.worker == 0 ? "" : options.task;
  if (!flags.trains() || options.workers == 1) return RunInProcess(flags, options, directory_task);
  ASSIGN_OR_RETURN(const GlooOptions gloo, JointGroup(flags, options, cluster));
  const absl::Duration timeout =
      absl::Seconds(options.job.strategy.communication.connect_timeout_seconds);
  LOG(INFO) << options.task << ": waits at " << gloo.addresses.front() << " for " << options.workers
            << " workers to come, at most " << timeout;
  ASSIGN_OR_RETURN(const std::unique_ptr<CollectiveGroup> group, ConnectWorkers(gloo, timeout));
  options.group = group.get();
  absl::StatusOr<Report> report = RunInProcess(flags, options, directory_task);
  group->Abort(report.status());  // if the folder could not be opened, the others must not wait for
                                  // this worker
  return report;
}

// Starts the pages for operators. Null: the flags ask for none.
absl::StatusOr<std::unique_ptr<HttpServer>> Monitor(const WorkerFlags& flags,
                                                    const RunMeter& meter) {
  ASSIGN_OR_RETURN(const std::optional<HttpFlags> http,
                   AsBadInput(ReadHttpFlags(flags.http, flags.security.allow_plaintext)));
  if (!http.has_value()) return std::unique_ptr<HttpServer>();
  return StartWorkerMonitor(*http, meter);
}

// Runs the worker; also fills `job`, the configuration used, and `summary`.
absl::StatusOr<Report> Run(const WorkerFlags& flags, JobConfig& job, SummaryOptions& summary) {
  RETURN_IF_ERROR(AsBadInput(flags.Validate()));
  TrainerOptions options;
  ASSIGN_OR_RETURN(options.job, ReadJob(flags));
  job = options.job;
  summary = {.mode = flags.mode,
             .predictions = flags.predictions,
             .training_flags = flags.TrainingFlags()};
  options.fresh = flags.fresh;
  options.trains_more = flags.trains_more;
  options.own_metrics_file = !flags.metrics_file.empty();
  options.obeyed = [file = flags.obeyed_file](absl::string_view flag) {
    RecordAppliedFlag(file, flag);
  };
  options.stop_requested = [] { return stop_signal.load(std::memory_order_relaxed) != 0; };
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster(flags, options.job));
  const std::string& type = options.job.strategy.type;
  const bool evaluates = cluster.task_type == kEvaluator;
  summary.follows = evaluates;
  const bool calls_servers = !evaluates && !cluster.tasks.empty() && type == "parameter_server";
  ASSIGN_OR_RETURN(const LocalTransport transport, AsBadInput(flags.CheckCalls(calls_servers)));
  options.open_checkpoint = OpensCheckpoints(options.job, "warm-start");
  RunMeter meter(options.job.name, cluster.task_type.empty()
                                       ? options.task
                                       : absl::StrCat(cluster.task_type, ":", cluster.task_index));
  options.meter = &meter;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> monitor, Monitor(flags, meter));
  if (evaluates) return RunEvaluator(flags, std::move(options), cluster.task_index);
  if (cluster.tasks.empty()) return RunInProcess(flags, options, /*directory_task=*/"");
  if (type == "parameter_server") {
    return RunOnServers(flags, std::move(options), cluster, transport);
  }
  if (type == "multi_worker_mirrored") return RunTogether(flags, std::move(options), cluster);
  return BadFlag(
      absl::StrCat("strategy.type ", type,
                   " trains in one process, but there is a cluster: leave --cluster, "
                   "TF_CONFIG and the job's cluster out, or use multi_worker_mirrored or "
                   "parameter_server"));
}

absl::Status PrintCluster(const WorkerFlags& flags) {
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster(flags, JobConfig()));
  std::printf("%s\n", ClusterFileText(cluster).c_str());
  return std::fflush(stdout) == 0 ? absl::OkStatus()
                                  : absl::InternalError("cannot write the cluster to stdout");
}

// Prints the error on one line, the last one of stderr.
void PrintError(const absl::Status& status) {
  const std::string text = absl::StrReplaceAll(std::string(status.message()), {{"\n", "; "}});
  std::fprintf(stderr, "cairn-worker: %s\n",
               text.empty() ? std::string(CodeName(status.code())).c_str() : text.c_str());
}

int Main(int argc, char** argv) {
  PrepareProcess("cairn-worker");
  // Debian's Abseil looks for lock cycles at every lock, which costs 100 ns each (30 ns without).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  cairn::LogToGlog();
  const absl::StatusOr<WorkerFlags> flags =
      ReadWorkerFlags(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)));
  if (!flags.ok()) {
    PrintError(flags.status());
    return 2;
  }
  if (!flags->text.empty()) return PrintText(flags->text);
  if (flags->print_cluster) {
    const absl::Status printed = PrintCluster(*flags);
    if (!printed.ok()) PrintError(printed);
    return printed.ok() ? 0 : ExitCodeOf(printed);
  }
  CatchStopSignals();
  JobConfig job;
  SummaryOptions summary;
  const absl::StatusOr<Report> report = Run(*flags, job, summary);
  const int signal = stop_signal.load();
  if (!report.ok()) {
    PrintError(report.status());
    // The process was stopped during a wait, before it had anything to make durable.
    return absl::IsCancelled(report.status()) && signal != 0 ? 128 + signal
                                                             : ExitCodeOf(report.status());
  }
  std::printf("%s\n", ReportJson(*report).c_str());
  if (std::fflush(stdout) != 0) {
    std::fprintf(stderr, "cairn-worker: cannot write the report to stdout\n");
    return 1;
  }
  std::fputs(SummaryText(*report, job, summary).c_str(), stderr);
  return report->status == "interrupted" ? 128 + signal : 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
