#include "worker/worker_flags.h"

#include <utility>

#include "common/config/cli.h"
#include "common/config/security_flags.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr char kPurpose[] = "cairn-worker trains, evaluates and predicts by a job file.\n";

constexpr char kFooter[] =
    R"(The report is the last line of stdout, one JSON object. Logs, progress (a bar on a terminal,
else a line every output.progress_seconds) and a summary of the report go to stderr.
Exit status: 0 completed; 1 failed; 2 bad flags or files; 129, 130, 143 ended by SIGHUP (a terminal
that closes), SIGINT, SIGTERM after making its pushes durable (a second signal ends it at once).)";

void AddTaskFlags(Flags flags, WorkerFlags& values) {
  flags
      .Add("cluster", "FILE", values.cluster,
           "the servers and workers (YAML or TF_CONFIG's JSON); else the variable TF_CONFIG, else "
           "the job file's cluster:, else an in-process server")
      .Add("cluster_resolver", "R", values.cluster_resolver,
           "source of the cluster instead of a file: slurm (the job step), kubernetes (--cluster "
           "is then a list of pods, as kubectl get pods -o json writes it); or only file, only "
           "tf_config; worker/cluster/README.md has the details")
      .Add("cluster_jobs", "JOBS", values.cluster_jobs,
           "slurm: ps=2,worker=4; kubernetes: ps:role=ps;worker:role=worker")
      .Add("cluster_port", "N", values.cluster_port,
           "slurm: the first port of each host (8888); kubernetes: every pod's (8470)")
      .Add("print_cluster", "", values.print_cluster,
           "prints the cluster that --cluster_resolver found, as a cluster file with this task in "
           "it (cairn-ps takes it too), and ends")
      .Add("task_type", "TYPE", values.task_type,
           "which task this process is: worker, chief, or evaluator, which scores the job's "
           "checkpoints as they come; can also be set in the cluster file")
      .Add("task_index", "N", values.task_index, "index of this task, from 0");
}

void AddRunFlags(Flags flags, WorkerFlags& values) {
  flags
      .Add("data_root", "DIR", values.data_root,
           "where the job file's relative data paths start; else the job file's own directory")
      .Add("metrics_file", "FILE", values.metrics_file,
           "file for one JSON object per step: step, loss, examples, seconds; this worker's own "
           "file")
      .Add("export", "FILE", values.export_file,
           "writes all variables at the end: .npz (numpy) or .safetensors")
      .Add("max_steps", "N", values.max_steps,
           "ends when this worker has taken N steps of the job, in all its runs; 0: no limit")
      .Add("mode", "MODE", values.mode,
           "train (default), evaluate: metrics of data.eval, predict: scores of data.eval")
      .Add("predictions", "FILE", values.predictions, "where --mode predict writes one line a row")
      .Add("fresh", "", values.fresh,
           "deletes the job's state on the servers and starts over; give it to every worker: the "
           "first (chief, else worker 0) deletes, the others wait for it")
      .Add("continue", "", values.trains_more,
           "a finished job: trains another data.epochs epochs (at most --max_steps more steps); "
           "give it to every worker. Under a program that restarts workers raise data.epochs "
           "instead: each start with --continue trains once more")
      .Add("obeyed_file", "FILE", values.obeyed_file,
           "file to which this worker appends --fresh or --continue, one a line, once it has "
           "applied it: a program that restarts the worker then leaves that flag out, as cairnctl "
           "launch does")
      .Add("set", "KEY.PATH=VALUE", values.overrides,
           "overrides a key of the job file; may be given several times");
}

void AddCallFlags(Flags flags, WorkerFlags& values) {
  AddClientSecurityFlags(flags, values.security);
  flags
      .Add("allow_plaintext", "", values.security.allow_plaintext,
           "multi_worker_mirrored: listen where other hosts can connect: between workers there is "
           "neither encryption nor authentication. parameter_server: send the token unencrypted. "
           "Implies --http_allow_plaintext")
      .Add("local_transport", "M", values.local_transport, std::string(kLocalTransportText));
}

}  // namespace

absl::StatusOr<WorkerFlags> ReadWorkerFlags(absl::Span<const char* const> arguments) {
  WorkerFlags values;
  Program program("cairn-worker", kPurpose, kFooter);
  program.flags().Add("job", "FILE", values.job,
                      "what to do: model, data, optimizer (YAML); required");
  AddTaskFlags(program.flags(), values);
  AddRunFlags(program.flags(), values);
  AddCallFlags(program.flags("Calls to servers"), values);
  Flags http = program.flags("Status over HTTP");
  AddHttpFlags(http, values.http, "metrics for Prometheus (/metrics) and /healthz");
  ParsedLine line = program.Parse(arguments);
  RETURN_IF_ERROR(line.status);
  values.text = std::move(line.text);
  return values;
}

std::vector<std::string> WorkerFlags::TrainingFlags() const {
  std::vector<std::string> given;
  if (fresh) given.emplace_back("--fresh");
  if (trains_more) given.emplace_back("--continue");
  if (max_steps.has_value()) given.emplace_back("--max_steps");
  if (!metrics_file.empty()) given.emplace_back("--metrics_file");
  return given;
}

absl::Status WorkerFlags::Validate() const {
  if (mode != "train" && mode != "evaluate" && mode != "predict") {
    return InvalidArgument("--mode is '", mode, "'; there are train, evaluate and predict");
  }
  if ((mode == "predict") != !predictions.empty()) {
    return absl::InvalidArgumentError("--mode predict and --predictions FILE go together");
  }
  if (!trains() && fresh) {
    return InvalidArgument("--fresh deletes the state that --mode ", mode, " would read");
  }
  if (!trains() && trains_more) {
    return InvalidArgument("--continue is for --mode train; with --mode ", mode, " leave it out");
  }
  if (!trains() && (max_steps.has_value() || !metrics_file.empty())) {
    return InvalidArgument("--max_steps and --metrics_file are for --mode train; with --mode ",
                           mode, " leave them out");
  }
  if (!trains() && !obeyed_file.empty()) {
    return InvalidArgument("--obeyed_file is for --mode train; with --mode ", mode,
                           " leave it out");
  }
  if (max_steps.value_or(0) < 0) {
    return InvalidArgument("--max_steps is ", *max_steps, "; 0 (no limit) or more is allowed");
  }
  if (task_index.value_or(0) < 0) {
    return InvalidArgument("--task_index is ", *task_index, "; tasks are numbered from 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalTransport> WorkerFlags::CheckCalls(bool calls_servers) const {
  RETURN_IF_ERROR(security.Validate());
  ASSIGN_OR_RETURN(const LocalTransport transport, LocalTransportFromName(local_transport));
  if (calls_servers) return transport;
  if (transport != LocalTransport::kSameUser) {
    return absl::InvalidArgumentError(
        "--local_transport is for calls to ps tasks, and this task makes none: leave it out");
  }
  if (security.tls() || !security.token_file.empty()) {
    return absl::InvalidArgumentError(
        "--tls_certificate, --tls_key, --tls_ca and --token_file are for calls to ps tasks, and "
        "this task makes none: leave them out");
  }
  return transport;
}

}  // namespace cairn
