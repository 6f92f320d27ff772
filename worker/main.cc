// cairn-worker: trains, evaluates and predicts by a job file.
#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/config/cluster_config.h"
#include "common/config/command_line.h"
#include "common/config/job_config.h"
#include "common/config/local_transport.h"
#include "common/config/security_flags.h"
#include "common/exit_status.h"
#include "common/http/http_flags.h"
#include "common/log.h"
#include "common/monotonic_cond_var.h"
#include "common/process_start.h"
#include "common/status.h"
#include "common/version.h"
#include "thrift/security/client_security.h"
#include "worker/cluster/named_cluster.h"
#include "worker/collective/gloo_group.h"
#include "worker/monitor/worker_monitor.h"
#include "worker/trainer/files/exporter.h"
#include "worker/trainer/reports/summary.h"
#include "worker/trainer/run/checkpoint_follower.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/run/trainer.h"

namespace {

// Flags that are not given.
constexpr int32_t kNoIndex = std::numeric_limits<int32_t>::min();
constexpr int64_t kNoMaxSteps = std::numeric_limits<int64_t>::min();

}  // namespace

ABSL_FLAG(std::string, job, "", "job file");
ABSL_FLAG(std::string, cluster, "", "cluster file");
ABSL_FLAG(std::string, cluster_resolver, "", "file, tf_config, slurm or kubernetes");
ABSL_FLAG(std::string, cluster_jobs, "", "tasks or label selectors of each job");
ABSL_FLAG(int32_t, cluster_port, 0, "slurm: first port of a host; kubernetes: every pod's");
ABSL_FLAG(bool, print_cluster, false, "print the cluster that was found, and end");
ABSL_FLAG(std::string, task_type, "", "worker, chief or evaluator");
ABSL_FLAG(int32_t, task_index, kNoIndex, "index of this task in the cluster file");
ABSL_FLAG(std::string, data_root, "", "folder of the job file's relative data paths");
ABSL_FLAG(std::string, metrics_file, "", "JSON lines, one a step");
ABSL_FLAG(std::string, export, "", ".npz or .safetensors of all variables");
ABSL_FLAG(int64_t, max_steps, kNoMaxSteps, "steps of this worker; 0: no limit");
ABSL_FLAG(std::string, mode, "train", "train, evaluate or predict");
ABSL_FLAG(std::string, predictions, "", "output of --mode predict");
ABSL_FLAG(bool, fresh, false, "start over");
ABSL_FLAG(bool, continue, false, "train a finished job once more");
ABSL_FLAG(std::string, local_transport, "auto", "auto, any_user or off");

namespace cairn {
namespace {

constexpr absl::string_view kEvaluator = "evaluator";

constexpr absl::string_view kFlags[] = {"job",          "cluster",      "cluster_resolver",
                                        "cluster_jobs", "cluster_port", "print_cluster",
                                        "task_type",    "task_index",   "data_root",
                                        "metrics_file", "export",       "max_steps",
                                        "mode",         "predictions",  "fresh",
                                        "continue",     "token_file",   "local_transport"};

constexpr char kUsage[] =
    R"(cairn-worker trains, evaluates and predicts by a job file.

  --job FILE            what to do: model, data, optimizer (YAML); required
  --cluster FILE        which servers and workers there are (YAML or TF_CONFIG's JSON); else the
                        variable TF_CONFIG, else the job file's cluster:, else a server in process
  --cluster_resolver R  where else the cluster is: slurm (the job step), kubernetes (--cluster is
                        then a list of pods, as kubectl get pods -o json writes it); or only file,
                        only tf_config; worker/cluster/README.md has the details
  --cluster_jobs JOBS   slurm: ps=2,worker=4; kubernetes: ps:role=ps;worker:role=worker
  --cluster_port N      slurm: the first port of each host (8888); kubernetes: every pod's (8470)
  --print_cluster       prints what --cluster_resolver found, as a cluster file with this task in it
                        (cairn-ps takes it too), and ends
  --task_type TYPE      which task this process is: worker, chief, or evaluator, which scores the
                        job's checkpoints as they come; may stand in the cluster file
  --task_index N        and its number, from 0
  --data_root DIR       where the job file's relative data paths start; else its own folder
  --metrics_file FILE   writes one JSON object a step: step, loss, examples, seconds
  --export FILE         writes all variables at the end: .npz (numpy) or .safetensors
  --max_steps N         ends when this worker has taken N steps of the job, in all its starts;
                        0: no limit
  --mode MODE           train (default), evaluate: metrics of data.eval,
                        predict: scores of data.eval
  --predictions FILE    where --mode predict writes one line a row
  --fresh               forgets what the servers hold of the job and starts over; give it to every
                        worker: the first (chief, else worker 0) forgets, the others wait for it
  --continue            a finished job: trains another data.epochs epochs (--max_steps more steps at
                        most); give it to every worker. Under a program that starts workers again
                        raise data.epochs instead: each start with --continue trains once more
  --tls_certificate FILE, --tls_key FILE, --tls_ca FILE
                        this process's certificate, its key, and who signs the servers' (PEM): TLS
                        to every server; read again when they change (thrift/SECURITY.md)
  --token_file FILE     its first line is sent to servers that ask for a token
  --allow_plaintext     multi_worker_mirrored: listen where other hosts can reach this one: between
                        workers there is neither encryption nor authentication. parameter_server:
                        send the token unencrypted
  --local_transport M   how to call servers of this host: through shared memory, where they are of
                        this process's user (auto, default) or of any (any_user); or off, over TCP
                        (thrift/LOCAL.md)
  --http_port N         answer HTTP for operators: metrics for Prometheus (/metrics) and /healthz;
                        0: a free port; default: none
  --http_address A      on this address; default 127.0.0.1. Another needs
                        --http_allow_plaintext
  --http_port_file FILE gets the address that HTTP was bound to
  --set KEY.PATH=VALUE  overrides a key of the job file; may be given several times
  --help                this text
  --version             version, build, and the versions of protocol and formats

The report is the last line of stdout, one JSON object. Logs, progress (a bar on a terminal, else a
line every output.progress_seconds) and a summary of the report go to stderr.
Exit status: 0 completed; 1 failed; 2 bad flags or files; 129, 130, 143 ended by SIGHUP (a terminal
that closes), SIGINT, SIGTERM after making its pushes durable (a second signal ends it at once).
)";

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void OnStopSignal(int signal) {
  // A second one: nobody should have to wait for a server that is gone.
  if (stop_signal.exchange(signal) != 0) _Exit(128 + signal);
}

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A terminal that closes; not under nohup.
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed connection is an error of its call
}

absl::Status BadFlag(absl::string_view text) {
  return AsBadInput(absl::InvalidArgumentError(text));
}

absl::StatusOr<JobConfig> ReadJob(const CommandLine& line) {
  const std::string path = absl::GetFlag(FLAGS_job);
  if (path.empty()) return BadFlag("--job FILE is required; --help lists the flags");
  JobOptions options;
  options.data_root = absl::GetFlag(FLAGS_data_root);
  options.overrides = line.sets;
  absl::StatusOr<JobConfig> job = ReadJobFile(path, options);
  if (!job.ok()) return AsBadInput(job.status());
  const std::string metrics = absl::GetFlag(FLAGS_metrics_file);
  if (!metrics.empty()) job->output.metrics_file = metrics;
  const std::string export_file = absl::GetFlag(FLAGS_export);
  if (!export_file.empty()) job->output.export_file = export_file;
  const std::string& target = job->output.export_file;
  if (!target.empty()) RETURN_IF_ERROR(AsBadInput(CheckExportFile(target)));
  const int64_t max_steps = absl::GetFlag(FLAGS_max_steps);
  if (max_steps != kNoMaxSteps) job->data.max_steps = max_steps;
  for (const std::string& warning : job->warnings) LOG(WARNING) << warning;
  return job;
}

// The cluster of --cluster_resolver, else of --cluster, else of TF_CONFIG, else of the job file.
// One without tasks means a server inside this process.
absl::StatusOr<ClusterConfig> ReadCluster(const JobConfig& job) {
  const NamedCluster named = {.resolver = absl::GetFlag(FLAGS_cluster_resolver),
                              .file = absl::GetFlag(FLAGS_cluster),
                              .jobs = absl::GetFlag(FLAGS_cluster_jobs),
                              .port = absl::GetFlag(FLAGS_cluster_port)};
  if (!named.resolver.empty()) return ReadNamedCluster(named, ProcessEnvironment());
  if (!named.jobs.empty() || named.port != 0 || absl::GetFlag(FLAGS_print_cluster)) {
    return absl::InvalidArgumentError(
        "--cluster_jobs, --cluster_port and --print_cluster go with --cluster_resolver");
  }
  if (!named.file.empty()) return ReadClusterFile(named.file);
  ASSIGN_OR_RETURN(std::optional<ClusterConfig> environment, ReadTfConfig());
  if (environment.has_value()) return *std::move(environment);
  return job.has_cluster ? job.cluster : ClusterConfig();
}

absl::StatusOr<ClusterConfig> FindCluster(const JobConfig& job) {
  absl::StatusOr<ClusterConfig> cluster = ReadCluster(job);
  if (!cluster.ok()) return AsBadInput(cluster.status());
  const std::string type = absl::GetFlag(FLAGS_task_type);
  const int32_t index = absl::GetFlag(FLAGS_task_index);
  const bool names_task = (!type.empty() && type != kEvaluator) || (type.empty() && index >= 0);
  if (names_task && cluster->tasks.empty()) {
    return BadFlag(
        "--task_type and --task_index name a task of a cluster, and there is none: give --cluster "
        "FILE, or leave them out for a server in process");
  }
  if (!type.empty()) {
    cluster->task_type = type;
    cluster->task_index = 0;
  }
  if (index >= 0) cluster->task_index = index;
  for (const std::string& warning : cluster->warnings) LOG(WARNING) << warning;
  return cluster;
}

// Which of the job's workers this is.
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

absl::StatusOr<Report> RunMode(const TrainerOptions& options, const Connector& connect) {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode == "evaluate") return RunEvaluation(options, connect);
  if (mode == "predict") {
    return RunPrediction(options, absl::GetFlag(FLAGS_predictions), connect);
  }
  return RunTraining(options, connect);
}

CheckpointOpener OpensCheckpoints(const JobConfig& job, const std::string& purpose) {
  return [job, purpose](const std::string& folder) { return OpenCheckpoint(job, folder, purpose); };
}

absl::StatusOr<Report> RunEvaluator(TrainerOptions options, int32_t index) {
  if (absl::GetFlag(FLAGS_mode) != "train") {
    return BadFlag(absl::StrCat("--mode ", absl::GetFlag(FLAGS_mode),
                                " is not for the evaluator task, which follows checkpoints: leave "
                                "the mode or the task out"));
  }
  if (options.fresh || options.trains_more || !absl::GetFlag(FLAGS_export).empty() ||
      absl::GetFlag(FLAGS_max_steps) != kNoMaxSteps) {
    return BadFlag(
        "--fresh, --continue, --export and --max_steps are for tasks that train, not the "
        "evaluator");
  }
  index = std::max(index, 0);
  options.task = absl::StrCat(kEvaluator, ":", index);
  return FollowCheckpoints(options,
                           OpensCheckpoints(options.job, absl::StrCat(kEvaluator, "-", index)));
}

// `folder_of`: InProcessServer::Open's task.
absl::StatusOr<Report> RunInProcess(const TrainerOptions& options, const std::string& folder_of) {
  const bool trains = absl::GetFlag(FLAGS_mode) == "train";
  ASSIGN_OR_RETURN(const std::unique_ptr<InProcessServer> server,
                   InProcessServer::Open(options.job, /*create=*/trains, folder_of));
  const Connector connect = [&](const ClientOptions& client, Deadline deadline) {
    return server->Connect(client, deadline);
  };
  absl::StatusOr<Report> report = RunMode(options, connect);
  const absl::Status closed = server->Close();
  RETURN_IF_ERROR(report.status());
  if (!closed.ok()) return Annotate(closed, "closing the server in process");
  return report;
}

absl::StatusOr<LocalTransport> LocalTransportFlag() {
  const absl::StatusOr<LocalTransport> transport =
      LocalTransportFromName(absl::GetFlag(FLAGS_local_transport));
  if (!transport.ok()) return AsBadInput(transport.status());
  return transport;
}

// With ps tasks in the cluster.
absl::StatusOr<Report> RunOnServers(TrainerOptions options, const ClusterConfig& cluster) {
  if (cluster.addresses("ps").empty()) {
    return BadFlag(
        "the cluster has no ps tasks, and strategy parameter_server needs them; add \"ps\" to the "
        "cluster, or leave the cluster out for a server in process");
  }
  if (absl::GetFlag(FLAGS_mode) == "train" || !cluster.task_type.empty()) {
    RETURN_IF_ERROR(FindTask(cluster, &options));
  }
  for (const std::string& warning : options.job.in_process_warnings) LOG(WARNING) << warning;
  const SecurityOptions security = SecurityFromFlags();
  const absl::Status usable = ClientSecurity::Load(security).status();
  if (!usable.ok()) return AsBadInput(usable);
  ASSIGN_OR_RETURN(const LocalTransport local_transport, LocalTransportFlag());
  const Connector connect = [&](ClientOptions client, Deadline deadline) {
    client.servers = cluster.addresses("ps");
    client.security = security;
    client.local_transport = local_transport;
    return PsClient::Connect(client, deadline);
  };
  return RunMode(options, connect);
}

absl::StatusOr<GlooOptions> JointGroup(const TrainerOptions& options,
                                       const ClusterConfig& cluster) {
  GlooOptions gloo = {.rank = options.worker, .addresses = cluster.addresses("chief")};
  const std::vector<std::string>& others = cluster.addresses("worker");
  gloo.addresses.insert(gloo.addresses.end(), others.begin(), others.end());
  const std::string& own = gloo.addresses[static_cast<size_t>(gloo.rank)];
  const absl::StatusOr<HostPort> host_port = ParseHostPort(own);
  if (!host_port.ok()) return AsBadInput(host_port.status());
  if (IsLoopback(host_port->host) || SecurityFromFlags().allow_plaintext) return gloo;
  return BadFlag(absl::StrCat(options.task, " at ", own,
                              " can be reached by other hosts, and between workers there is "
                              "neither encryption nor authentication: give "
                              "--allow_plaintext if the network is trusted"));
}

// All workers, or an end in between: nothing is open yet.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectWorkers(const GlooOptions& gloo,
                                                                absl::Duration patience) {
  absl::StatusOr<std::unique_ptr<CollectiveGroup>> group;
  StopFlag done;
  std::thread connecting([&] {
    group = ConnectGloo(gloo, Deadline::In(patience));
    done.Stop();
  });
  while (!done.WaitFor(absl::Milliseconds(100))) {
    const int signal = stop_signal.load();
    if (signal == 0) continue;
    std::fputs("cairn-worker: stopped while waiting for the other workers\n", stderr);
    _Exit(128 + signal);
  }
  connecting.join();
  return group;
}

// Without ps tasks: workers that train as one, each with a server in its process.
absl::StatusOr<Report> RunTogether(TrainerOptions options, const ClusterConfig& cluster) {
  if (!cluster.addresses("ps").empty()) {
    return BadFlag(
        "the cluster has ps tasks, but with strategy.type multi_worker_mirrored every worker keeps "
        "the variables itself: leave ps out of the cluster, or use parameter_server");
  }
  const bool trains = absl::GetFlag(FLAGS_mode) == "train";
  if (trains || !cluster.task_type.empty()) RETURN_IF_ERROR(FindTask(cluster, &options));
  const std::string folder_of = options.worker == 0 ? "" : options.task;
  if (!trains || options.workers == 1) return RunInProcess(options, folder_of);
  ASSIGN_OR_RETURN(const GlooOptions gloo, JointGroup(options, cluster));
  const absl::Duration patience =
      absl::Seconds(options.job.strategy.communication.connect_timeout_seconds);
  LOG(INFO) << options.task << ": waits at " << gloo.addresses.front() << " for " << options.workers
            << " workers to come, at most " << patience;
  ASSIGN_OR_RETURN(const std::unique_ptr<CollectiveGroup> group, ConnectWorkers(gloo, patience));
  options.group = group.get();
  absl::StatusOr<Report> report = RunInProcess(options, folder_of);
  group->Abort(report.status());  // the folder could not be opened: nobody is to wait for this one
  return report;
}

// Null: none is wanted.
absl::StatusOr<std::unique_ptr<HttpServer>> Monitor(const RunMeter& meter) {
  const absl::StatusOr<std::optional<HttpFlags>> flags =
      ReadHttpFlags(SecurityFromFlags().allow_plaintext);
  if (!flags.ok()) return AsBadInput(flags.status());
  if (!flags->has_value()) return std::unique_ptr<HttpServer>();
  return StartWorkerMonitor(**flags, meter);
}

absl::Status CheckCallFlags(bool calls_servers) {
  const SecurityOptions security = SecurityFromFlags();
  RETURN_IF_ERROR(AsBadInput(security.Validate()));
  ASSIGN_OR_RETURN(const LocalTransport local_transport, LocalTransportFlag());
  if (calls_servers) return absl::OkStatus();
  if (local_transport != LocalTransport::kSameUser) {
    return BadFlag(
        "--local_transport is for calls to ps tasks, and this task makes none: leave it out");
  }
  if (!security.tls() && security.token_file.empty()) return absl::OkStatus();
  return BadFlag(
      "--tls_certificate, --tls_key, --tls_ca and --token_file are for calls to ps tasks, and this "
      "task makes none: leave them out");
}

absl::Status CheckMode() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode != "train" && mode != "evaluate" && mode != "predict") {
    return BadFlag(absl::StrCat("--mode is '", mode, "'; there are train, evaluate and predict"));
  }
  if ((mode == "predict") != !absl::GetFlag(FLAGS_predictions).empty()) {
    return BadFlag("--mode predict and --predictions FILE go together");
  }
  if (mode != "train" && absl::GetFlag(FLAGS_fresh)) {
    return BadFlag(absl::StrCat("--fresh forgets what --mode ", mode, " would read"));
  }
  if (mode != "train" && absl::GetFlag(FLAGS_continue)) {
    return BadFlag(
        absl::StrCat("--continue is for --mode train; with --mode ", mode, " leave it out"));
  }
  const bool has_max_steps = absl::GetFlag(FLAGS_max_steps) != kNoMaxSteps;
  if (mode != "train" && (has_max_steps || !absl::GetFlag(FLAGS_metrics_file).empty())) {
    return BadFlag(absl::StrCat("--max_steps and --metrics_file are for --mode train; with --mode ",
                                mode, " leave them out"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers() {
  const int64_t max_steps = absl::GetFlag(FLAGS_max_steps);
  if (max_steps < 0 && max_steps != kNoMaxSteps) {
    return BadFlag(absl::StrCat("--max_steps is ", max_steps, "; 0 (no limit) or more is allowed"));
  }
  const int32_t index = absl::GetFlag(FLAGS_task_index);
  if (index >= 0 || index == kNoIndex) return absl::OkStatus();
  return BadFlag(absl::StrCat("--task_index is ", index, "; tasks are numbered from 0"));
}

// `job` and `summary` get what the report's summary says besides.
absl::StatusOr<Report> Run(const CommandLine& line, JobConfig& job, SummaryOptions& summary) {
  RETURN_IF_ERROR(CheckMode());
  RETURN_IF_ERROR(CheckNumbers());
  TrainerOptions options;
  ASSIGN_OR_RETURN(options.job, ReadJob(line));
  job = options.job;
  summary = {.mode = absl::GetFlag(FLAGS_mode), .predictions = absl::GetFlag(FLAGS_predictions)};
  options.fresh = absl::GetFlag(FLAGS_fresh);
  options.trains_more = absl::GetFlag(FLAGS_continue);
  options.stop_requested = [] { return stop_signal.load(std::memory_order_relaxed) != 0; };
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster(options.job));
  const std::string& type = options.job.strategy.type;
  const bool evaluates = cluster.task_type == kEvaluator;
  summary.follows = evaluates;
  RETURN_IF_ERROR(CheckCallFlags(
      /*calls_servers=*/!evaluates && !cluster.tasks.empty() && type == "parameter_server"));
  options.open_checkpoint = OpensCheckpoints(options.job, "warm-start");
  RunMeter meter(options.job.name, cluster.task_type.empty()
                                       ? options.task
                                       : absl::StrCat(cluster.task_type, ":", cluster.task_index));
  options.meter = &meter;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> monitor, Monitor(meter));
  if (evaluates) return RunEvaluator(std::move(options), cluster.task_index);
  if (cluster.tasks.empty()) return RunInProcess(options, /*folder_of=*/"");
  if (type == "parameter_server") return RunOnServers(std::move(options), cluster);
  if (type == "multi_worker_mirrored") return RunTogether(std::move(options), cluster);
  return BadFlag(
      absl::StrCat("strategy.type ", type,
                   " trains in one process, but there is a cluster: leave --cluster, "
                   "TF_CONFIG and the job's cluster out, or use multi_worker_mirrored or "
                   "parameter_server"));
}

absl::Status PrintCluster() {
  ASSIGN_OR_RETURN(const ClusterConfig cluster, FindCluster(JobConfig()));
  std::printf("%s\n", ClusterFileText(cluster).c_str());
  return std::fflush(stdout) == 0 ? absl::OkStatus()
                                  : absl::InternalError("cannot write the cluster to stdout");
}

// The error on one line, the last one of stderr.
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
  CommandLine line;
  const absl::Status parsed =
      ReadCommandLine(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)),
                      {.names = {kFlags, kSecurityFlags, kHttpFlags}, .allow_set = true}, line);
  if (!parsed.ok()) {
    PrintError(parsed);
    return 2;
  }
  if (line.help) {
    return std::fputs(kUsage, stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
  }
  if (line.version) return PrintVersion("cairn-worker");
  if (absl::GetFlag(FLAGS_print_cluster)) {
    const absl::Status printed = PrintCluster();
    if (!printed.ok()) PrintError(printed);
    return printed.ok() ? 0 : ExitCodeOf(printed);
  }
  CatchStopSignals();
  JobConfig job;
  SummaryOptions summary;
  const absl::StatusOr<Report> report = Run(line, job, summary);
  const int signal = stop_signal.load();
  if (!report.ok()) {
    PrintError(report.status());
    // Stopped while it waited, before there was anything to make durable.
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
