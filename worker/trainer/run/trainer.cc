#include "worker/trainer/run/trainer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/status.h"
#include "common/variables/variable_map.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"
#include "worker/trainer/checkpoints/checkpointer.h"
#include "worker/trainer/devices/replicated_model.h"
#include "worker/trainer/devices/resident_state.h"
#include "worker/trainer/files/exporter.h"
#include "worker/trainer/joint/joint_settings.h"
#include "worker/trainer/joint/joint_state.h"
#include "worker/trainer/joint/lockstep.h"
#include "worker/trainer/reports/run_meter.h"
#include "worker/trainer/reports/training_events.h"
#include "worker/trainer/resume/job_restore.h"
#include "worker/trainer/resume/run_start.h"
#include "worker/trainer/resume/warm_start.h"
#include "worker/trainer/run/evaluator.h"
#include "worker/trainer/run/task_client.h"
#include "worker/trainer/run/train_loop.h"
#include "worker/trainer/steps/gradient_clipper.h"
#include "worker/trainer/steps/heartbeat_thread.h"
#include "worker/trainer/steps/roster.h"
#include "worker/trainer/steps/variable_plan.h"

namespace cairn {
namespace {

// Timeout of Leave after an error: the user must see the error soon.
constexpr absl::Duration kShortLeave = absl::Seconds(10);

Report NewReport(const TrainerOptions& options) {
  const StrategyConfig& strategy = options.job.strategy;
  return {.task = options.task,
          .strategy = strategy.type,
          .consistency = strategy.type == "parameter_server" ? strategy.consistency : "sync"};
}

absl::StatusOr<std::unique_ptr<Reader>> OpenTrainReader(const TrainerOptions& options) {
  ReaderOptions reader;
  reader.data = options.job.data;
  reader.model = options.job.model;
  reader.files = options.job.data.train;
  reader.worker = options.worker;
  reader.workers = options.workers;
  absl::StatusOr<std::unique_ptr<Reader>> opened = Reader::Open(reader);
  if (!opened.ok()) return AsBadInput(Annotate(opened.status(), "data.train"));
  return opened;
}

// The model for rows of `schema`, on `devices`. `ranks`: as DivideOverReplicas.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const JobConfig& job, const Schema& schema,
                                                 std::vector<Device> devices,
                                                 std::unique_ptr<GpuRanks> ranks = nullptr) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   AsBadInput(Model::Create(job.model, job.data, schema)));
  return DivideOverReplicas(std::move(model), job.strategy.type, std::move(devices),
                            job.strategy.cross_device_ops,
                            {.precision = ParseMatmulPrecision(job.strategy.matmul_precision),
                             .deterministic = job.strategy.deterministic},
                            std::move(ranks));
}

// One worker's run, from the first call to the last.
class Training {
 public:
  Training(const TrainerOptions& options, const Connector& connect)
      : options_(options), connect_(connect), entry_(WorkerOnServers(options)) {}

  absl::StatusOr<Report> Run() {
    RETURN_IF_ERROR(CheckQuorum());
    const absl::Status status = RunSteps();
    // Notifies the other workers, which would otherwise wait for this one.
    if (options_.group != nullptr) options_.group->Abort(status);
    if (client_ == nullptr) return status;
    if (!status.ok()) {
      // If the error is the worker's own (bad input), its pushes still become durable.
      if (ExitCodeOf(status) == 2) client_->Leave(Deadline::In(kShortLeave)).IgnoreError();
      return status;
    }
    checkpointer_.reset();  // waits for a running checkpoint, whose calls use this worker's client
    const absl::Status left = client_->Leave(Deadline::In(CallTimeout(options_)));
    if (!left.ok()) return Annotate(left, "making the last pushes durable");
    return report_;
  }

 private:
  absl::Status RunSteps() {
    if (options_.worker == 0) RETURN_IF_ERROR(CheckExportPlace(options_.job.output.export_file));
    RETURN_IF_ERROR(OpenInput());
    if (options_.group == nullptr) {
      RETURN_IF_ERROR(Connect());
      RETURN_IF_ERROR(CreateVariables());
    } else {
      RETURN_IF_ERROR(StartTogether());
    }
    if (options_.fresh) RecordAppliedFlag("--fresh");
    RETURN_IF_ERROR(DecideStart());
    report_ = NewReport(options_);
    report_.total_steps = start_.position.total_steps;
    absl::Status status;
    if (!start_.nothing_to_do) status = Train();
    if (start_.nothing_to_do && lockstep_.has_value()) LeaveTogether();
    if (status.ok()) status = CheckAnyStep();
    if (status.ok()) status = EndSteps();
    if (status.ok() && options_.worker == 0 && SharesServers()) status = AwaitOthers();
    if (status.ok() && options_.worker == 0) {
      status = EndCheckpoints(options_.job, *client_, checkpointer_.get(), report_.total_steps);
    }
    if (status.ok() && options_.worker == 0) status = EvaluateAndExport();
    if (status.ok() || absl::IsCancelled(status)) RETURN_IF_ERROR(output_.Close());
    if (!absl::IsCancelled(status)) return status;
    report_.status = "interrupted";
    return absl::OkStatus();
  }

  // Checks what cannot be checked with the job file alone.
  absl::Status CheckQuorum() const {
    const int64_t wanted = options_.job.strategy.replicas_to_aggregate;
    if (wanted <= options_.workers) return absl::OkStatus();
    return AsBadInput(InvalidArgument("strategy.replicas_to_aggregate is ", wanted,
                                      ", but the job has ", options_.workers,
                                      options_.workers == 1 ? " worker" : " workers",
                                      ": give at most that, or 0 for every worker"));
  }

  // Another worker may have rows. If no worker has any, nothing was trained.
  absl::Status CheckAnyStep() const {
    if (report_.total_steps > 0 || start_.nothing_to_do) return absl::OkStatus();
    const std::string why = NothingTrainedText(options_.job.data, options_.task);
    if (options_.workers == 1) return AsBadInput(absl::InvalidArgumentError(why));
    LOG(WARNING) << why;
    return absl::OkStatus();
  }

  absl::Status OpenInput() {
    if (options_.job.data.train.empty()) {
      return AsBadInput(
          absl::InvalidArgumentError("data.train names no file; there is nothing to train on"));
    }
    ASSIGN_OR_RETURN(reader_, OpenTrainReader(options_));
    ASSIGN_OR_RETURN(devices_, DevicesOf(options_.job.strategy));
    LOG(INFO) << options_.task << ": computes on " << DevicesText(devices_)
              << (options_.job.strategy.devices.empty() && devices_[0].is_cpu()
                      ? ", since there is no GPU that it can use"
                      : "");
    ASSIGN_OR_RETURN(model_, MakeModel(options_.job, reader_->schema(), devices_));
    return absl::OkStatus();
  }

  void RecordAppliedFlag(absl::string_view flag) const {
    if (options_.obeyed != nullptr) options_.obeyed(flag);
  }

  // Whether other workers use the same servers.
  bool SharesServers() const { return WorkersOnServers(options_) > 1; }
  // Whether the servers apply the mean of several workers' gradients.
  bool ServersAverage() const {
    return SharesServers() && options_.job.strategy.consistency == "sync";
  }
  // Whether this worker is the first of those that use the same servers.
  bool FirstOnServers() const { return WorkerOnServers(options_) == 0; }

  CommunicationOptions Communication() const {
    const CommunicationConfig& config = options_.job.strategy.communication;
    return {.bytes_per_pack = config.bytes_per_pack,
            .timeout = absl::Seconds(config.timeout_seconds)};
  }

  // For workers that train as one: checks that all have the same job and gives all the same state.
  absl::Status StartTogether() {
    const absl::Duration timeout = *Communication().timeout;
    ASSIGN_OR_RETURN(specs_, PlanVariables(options_.job, *model_, {0}));
    RETURN_IF_ERROR(AsBadInput(CheckSameSettings(
        *options_.group, JointSettings(options_.job, options_.fresh, specs_), timeout)));
    ASSIGN_OR_RETURN(std::unique_ptr<GpuRanks> gpus,
                     RanksOfWorkers(options_.job.strategy, devices_, *options_.group));
    if (gpus != nullptr) {
      LOG(INFO) << options_.task << ": sums gradients between the GPUs of all workers by NCCL";
      summing_workers_ = options_.group;
      ASSIGN_OR_RETURN(model_,
                       MakeModel(options_.job, reader_->schema(), devices_, std::move(gpus)));
    }
    lockstep_.emplace(*options_.group, *model_, Communication(), options_.stop_requested);
    RETURN_IF_ERROR(lockstep_->Meanwhile([this]() -> absl::Status {
      RETURN_IF_ERROR(Connect());
      return CreateVariables();
    }));
    ASSIGN_OR_RETURN(NewestState newest,
                     FindNewestState(*options_.group, StoredPosition(), timeout));
    joint_start_ = newest.next_start;
    // Only the first worker has read the warm start's values.
    if (newest.rank < 0 && WarmStarts()) newest.rank = 0;
    if (newest.rank < 0) return absl::OkStatus();
    LOG(INFO) << "job '" << options_.job.name << "': " << newest.log_line;
    return TakeStateOf(newest.rank, timeout);
  }

  absl::Status TakeStateOf(int rank, absl::Duration timeout) {
    if (rank == options_.group->rank()) {
      return ShareState(*lockstep_, rank, options_.job, options_.task, *client_, timeout);
    }
    client_ = nullptr;
    const Deadline deadline = Deadline::In(CallTimeout(options_));
    ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> non_training,
                     connect_(ClientOptionsFor(options_, -1), deadline));
    RETURN_IF_ERROR(
        ShareState(*lockstep_, rank, options_.job, options_.task, *non_training, timeout));
    ASSIGN_OR_RETURN(client_, connect_(ClientOptionsFor(options_, 0), deadline));
    adopted_state_ = true;
    return CreateVariables();
  }

  absl::Status Connect() {
    const Deadline deadline = Deadline::In(CallTimeout(options_));
    ASSIGN_OR_RETURN(std::unique_ptr<PsClient> non_training,
                     connect_(ClientOptionsFor(options_, -1), deadline));
    RETURN_IF_ERROR(PrepareServers(*non_training));
    non_training = nullptr;
    ASSIGN_OR_RETURN(client_, connect_(ClientOptionsFor(options_, WorkerOnServers(options_)),
                                       Deadline::In(CallTimeout(options_))));
    return absl::OkStatus();
  }

  bool RestoreNamed() const {
    const std::string& restore = options_.job.checkpoint.restore;
    return restore != "latest" && restore != "none";
  }

  bool WarmStarts() const { return !options_.job.checkpoint.warm_start.from.empty(); }

  // Runs before this worker calls hello, since a restore decides where the worker continues.
  // --fresh ignores checkpoints too, unless one is named.
  absl::Status PrepareServers(PsClient& non_training) {
    const bool first = options_.worker == 0;
    rewound_ = options_.fresh && first && RestoreNamed();
    if (options_.fresh && !rewound_) {
      if (!FirstOnServers()) {
        return WaitForFreshStart(non_training, absl::Seconds(options_.job.strategy.ps_wait_seconds),
                                 /*any_run=*/RestoreNamed(), options_.stop_requested);
      }
      LOG(INFO) << "job '" << options_.job.name << "': --fresh deletes its state on the servers";
      return non_training.DropJob(Deadline::In(CallTimeout(options_)));
    }
    if (first) return RestoreJob(non_training, options_.job, options_.fresh);
    if (!SharesServers()) return absl::OkStatus();  // takes the first worker's state
    const bool always = RestoreWanted(options_.job.checkpoint) || WarmStarts();
    return WaitForJob(non_training, options_.job.name, always, options_.stop_requested);
  }

  absl::Status CreateVariables() {
    ASSIGN_OR_RETURN(specs_, PlanVariables(options_.job, *model_, client_->servers()));
    for (const std::string& warning : UnmatchedPatterns(options_.job, specs_)) {
      LOG(WARNING) << warning;
    }
    std::vector<VariableSpec> all = specs_;
    all.push_back(RosterSpec());
    ASSIGN_OR_RETURN(const std::vector<VariableSpec> there,
                     client_->Describe(Deadline::In(CallTimeout(options_))));
    RETURN_IF_ERROR(CheckTables(there, specs_));
    for (VariableSpec& spec : all) KeepPlacement(there, spec);
    for (const std::string& change : OptimizerChanges(there, all)) LOG(INFO) << change;
    std::copy_n(all.begin(), specs_.size(), specs_.begin());
    if (ServersAverage()) {
      RETURN_IF_ERROR(
          AsBadInput(CheckServersCanClip(options_.job, specs_, client_->servers().size())));
    }
    if (!HasRoster(there) && options_.worker == 0 && WarmStarts()) {
      // Variables without a roster are the remains of an interrupted warm start.
      if (!there.empty()) RETURN_IF_ERROR(client_->DropJob(Deadline::In(CallTimeout(options_))));
      // The other workers begin when the roster exists, so it is created last, after the warm
      // start's values.
      RETURN_IF_ERROR(Create(specs_));
      RETURN_IF_ERROR(WarmStartFromCheckpoint());
    }
    return Create(all);
  }

  absl::Status WarmStartFromCheckpoint() {
    const WarmStartConfig& config = options_.job.checkpoint.warm_start;
    LOG(INFO) << "job '" << options_.job.name << "': warm start from " << config.from;
    const absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::ReadFrom(config.from);
    if (!manifest.ok()) {
      return AsBadInput(Annotate(manifest.status(), "checkpoint.warm_start.from"));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<InProcessServer> server,
                     options_.open_checkpoint(config.from));
    absl::Status status;
    {
      ASSIGN_OR_RETURN(
          const std::unique_ptr<PsClient> source,
          server->Connect(ClientOptionsFor(options_, -1), Deadline::In(CallTimeout(options_))));
      status = WarmStart(*source, config, specs_, *client_, CallTimeout(options_));
    }
    RETURN_IF_ERROR(status);
    return server->Close();
  }

  absl::Status Create(absl::Span<const VariableSpec> specs) {
    absl::Status created = client_->Create(specs, Deadline::In(CallTimeout(options_)));
    if (absl::IsInvalidArgument(created)) return AsBadInput(created);
    if (!absl::IsAlreadyExists(created)) return created;
    return AlreadyExists(created.message(),
                         "; the job file has changed since its state was made: undo that, give "
                         "the job another name, or start over with --fresh");
  }

  // Returns the position in the servers' current state. --fresh may have dropped the state that the
  // servers had at this worker's hello.
  std::string StoredPosition() const {
    const bool dropped = options_.fresh && FirstOnServers() && !rewound_ && !adopted_state_;
    return dropped ? "" : client_->position();
  }

  absl::Status DecideStart() {
    ASSIGN_OR_RETURN(
        std::vector<RosterRow> roster,
        ReadRoster(*client_, WorkersOnServers(options_), Deadline::In(CallTimeout(options_))));
    // Workers that train as one have finished the same runs.
    roster.resize(static_cast<size_t>(options_.workers), roster.front());
    const std::string stored = StoredPosition();
    ASSIGN_OR_RETURN(start_, DecideRunStart(options_.job, stored, WorkerOnServers(options_), roster,
                                            options_.trains_more));
    if (options_.group != nullptr) start_.position.start = joint_start_;
    LOG(INFO) << start_.log_line;
    last_position_ = stored;
    return absl::OkStatus();
  }

  absl::Status OpenMetrics() {
    const std::string& file = options_.job.output.metrics_file;
    const bool named_for_all = options_.worker != 0 && !options_.own_metrics_file;
    report_.metrics_file = named_for_all ? TaskMetricsFile(file, options_.task) : file;
    LOG_IF(INFO, named_for_all) << options_.task << ": writes its metrics to "
                                << report_.metrics_file << ", since the first worker writes "
                                << file;
    return output_.OpenMetrics(report_.metrics_file, /*append=*/start_.position.run_steps > 0);
  }

  absl::Status OpenOutput() {
    const OutputConfig& config = options_.job.output;
    if (options_.worker != 0 && options_.group != nullptr) {
      LOG_IF(INFO, !config.metrics_file.empty())
          << "the first worker writes the metrics of all: no " << config.metrics_file;
      return absl::OkStatus();
    }
    if (!config.metrics_file.empty()) RETURN_IF_ERROR(OpenMetrics());
    if (config.tensorboard.empty()) return absl::OkStatus();
    const int32_t workers = WorkersOnServers(options_);
    return output_.OpenEvents(
        workers > 1 ? EventFolder(config.tensorboard, options_.task) : config.tensorboard,
        start_.position.total_steps + 1, KnownLearningRate(options_.job, workers));
  }

  absl::StatusOr<std::unique_ptr<ResidentState>> KeepOnGpu() {
    return ResidentState::TakeIfPossible({.job = options_.job,
                                          .specs = specs_,
                                          .client = *client_,
                                          .devices = devices_,
                                          .workers = options_.workers,
                                          .summing_workers = summing_workers_,
                                          .task = options_.task,
                                          .call_timeout = CallTimeout(options_)});
  }

  absl::Status MakeCheckpointer() {
    if (options_.worker != 0 || options_.job.checkpoint.directory.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(checkpointer_, AsBadInput(Checkpointer::Create(options_.job, *client_)));
    return absl::OkStatus();
  }

  // Null: nobody would hear them.
  absl::StatusOr<std::unique_ptr<HeartbeatThread>> SendHeartbeats() {
    if (!SharesServers()) return nullptr;
    const Deadline deadline = Deadline::In(CallTimeout(options_));
    ASSIGN_OR_RETURN(std::unique_ptr<PsClient> client,
                     connect_(ClientOptionsFor(options_, -1), deadline));
    RETURN_IF_ERROR(client->Describe(deadline).status());  // learns the roster's variable
    return HeartbeatThread::Start(std::move(client), options_.worker);
  }

  absl::Status Train() {
    reader_->StartAt(start_.position.epoch, start_.position.row, start_.end_epoch);
    RETURN_IF_ERROR(OpenOutput());
    // Ends an evaluation early if another worker is lost: the others would wait for it in vain.
    const StopRequested cut_short = [this] {
      return options_.stop_requested() || (lockstep_.has_value() && lockstep_->lost());
    };
    Evaluator evaluator(options_.job, *model_, *client_, CallTimeout(options_), cut_short);
    const bool synchronous = options_.job.strategy.consistency == "sync";
    ASSIGN_OR_RETURN(const std::unique_ptr<HeartbeatThread> heartbeats, SendHeartbeats());
    RETURN_IF_ERROR(MakeCheckpointer());
    const bool evaluates = options_.worker == 0 && !options_.job.data.eval.empty();
    const StopRequested stopped_together = [this] { return lockstep_->stopped_by() >= 0; };
    ASSIGN_OR_RETURN(WireFormats formats,
                     AsBadInput(WireFormats::Create(options_.job.strategy.wire, *model_)));
    ASSIGN_OR_RETURN(const std::unique_ptr<ResidentState> resident, KeepOnGpu());
    const RunMeter::Watching watching(options_.meter, client_.get());
    TrainLoop loop(
        {.job = options_.job,
         .model = *model_,
         .client = *client_,
         .reader = *reader_,
         .output = output_,
         .roster_entry = entry_,
         .formats = formats,
         .evaluator = evaluates ? &evaluator : nullptr,
         .checkpointer = checkpointer_.get(),
         .meter = options_.meter,
         .resident = resident.get(),
         .task = options_.task,
         .stored_first =
             [this] {
               if (options_.trains_more) RecordAppliedFlag("--continue");
             },
         .lockstep = lockstep_.has_value() ? &*lockstep_ : nullptr,
         .synchronous = synchronous,
         .call_timeout = CallTimeout(options_),
         .stop_requested = lockstep_.has_value() ? stopped_together : options_.stop_requested},
        start_);
    const GpuUsage before = ReadGpuUsage();
    RETURN_IF_ERROR(loop.Run());
    report_.gpu = ReadGpuUsage().Since(before);
    if (lockstep_.has_value()) LeaveTogether();
    RETURN_IF_ERROR(output_.CloseMetrics());
    loop.position().EncodeTo(&last_position_);
    report_.steps = loop.steps();
    report_.total_steps = loop.position().total_steps;
    report_.examples = loop.examples();
    report_.seconds = loop.seconds();
    report_.train_loss = loop.train_loss();
    report_.staleness = client_->staleness();
    report_.counters = client_->counters();
    if (resident != nullptr) report_.counters.pushes_dropped += resident->dropped();
    if (!loop.stopped()) return absl::OkStatus();
    if (!lockstep_.has_value() || options_.stop_requested()) {
      return absl::CancelledError("stopped in training");
    }
    return Aborted(lockstep_->PeerText(lockstep_->stopped_by()),
                   " was asked to stop, so all stopped after step ", report_.total_steps,
                   ", which each has; restart every worker to continue");
  }

  // The workers need not agree on anything any more, so this worker's run is complete even if
  // others fail.
  void LeaveTogether() {
    const absl::Status status = lockstep_->Leave();
    if (!status.ok()) LOG(WARNING) << "after the last step: " << status.message();
  }

  absl::Status EndSteps() {
    const Deadline deadline = Deadline::In(CallTimeout(options_));
    RETURN_IF_ERROR(client_->EndSteps(deadline));
    ASSIGN_OR_RETURN(report_.largest_step_gap, client_->LargestStepGap(deadline));
    return absl::OkStatus();
  }

  absl::Status AwaitOthers() {
    ASSIGN_OR_RETURN(
        const Others others,
        WaitForOthers(*client_, options_.worker, options_.workers, start_.position.run, entry_,
                      last_position_, absl::Seconds(options_.job.strategy.ps_wait_seconds),
                      CallTimeout(options_), options_.stop_requested));
    LOG_IF(WARNING, !others.silent.empty())
        << WorkersText(others.silent) << " did not finish and is silent; continues without it";
    return absl::OkStatus();
  }

  absl::Status EvaluateAndExport() {
    if (!options_.job.data.eval.empty()) {
      Evaluator evaluator(options_.job, *model_, *client_, CallTimeout(options_),
                          options_.stop_requested);
      ASSIGN_OR_RETURN(report_.eval, evaluator.Evaluate());
      RETURN_IF_ERROR(output_.Evaluated(report_.total_steps, *report_.eval));
    }
    const std::string& path = report_.exported = options_.job.output.export_file;
    return ExportVariables(*client_, specs_, {&options_.job, reader_->vocabulary()}, path,
                           CallTimeout(options_));
  }

  const TrainerOptions& options_;
  const Connector& connect_;
  RosterEntry entry_;
  std::unique_ptr<Reader> reader_;
  std::vector<Device> devices_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PsClient> client_;
  std::unique_ptr<Checkpointer> checkpointer_;  // only on the first worker, if a directory is named
  RunOutput output_;
  std::vector<VariableSpec> specs_;
  bool rewound_ = false;                        // --fresh returned the job to a checkpoint
  std::optional<Lockstep> lockstep_;            // set for workers that train as one
  bool adopted_state_ = false;                  // this worker took another one's state
  CollectiveGroup* summing_workers_ = nullptr;  // set if the GPUs of all workers sum by NCCL
  int64_t joint_start_ = 0;
  RunStart start_;
  std::string last_position_;
  Report report_;
};

// A trained job as a reader sees it: its model, and a client that has checked the variables.
struct Trained {
  std::unique_ptr<Reader> reader;  // of data.eval; provides schema and vocabulary
  std::unique_ptr<Model> model;
  std::unique_ptr<PsClient> client;
  std::vector<VariableSpec> specs;
};

absl::Status CheckFits(const VariableSpec& wanted, absl::Span<const VariableSpec> there,
                       const std::string& job) {
  for (const VariableSpec& spec : there) {
    if (spec.name != wanted.name) continue;
    if (spec.kind == wanted.kind && spec.shape == wanted.shape) return absl::OkStatus();
    return FailedPrecondition("job '", job, "': variable '", spec.name, "' has shape ",
                              ShapeText(spec.shape), " on the servers, ", ShapeText(wanted.shape),
                              " in the job file; use the job file that it was trained with");
  }
  return NotFound("job '", job, "': the servers have no variable '", wanted.name,
                  "'; train it first");
}

absl::StatusOr<Trained> OpenTrained(const TrainerOptions& options, const Connector& connect) {
  if (options.job.data.eval.empty()) {
    return AsBadInput(absl::InvalidArgumentError(
        "data.eval names no file; --mode evaluate and predict read the rows there"));
  }
  RETURN_IF_ERROR(CheckExportPlace(options.job.output.export_file));
  Trained trained;
  ASSIGN_OR_RETURN(trained.reader, OpenEvalReader(options.job));
  ASSIGN_OR_RETURN(std::vector<Device> devices, DevicesOf(options.job.strategy));
  ASSIGN_OR_RETURN(trained.model,
                   MakeModel(options.job, trained.reader->schema(), std::move(devices)));
  const Deadline deadline = Deadline::In(CallTimeout(options));
  ASSIGN_OR_RETURN(trained.client, connect(ClientOptionsFor(options, -1), deadline));
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> there, trained.client->Describe(deadline));
  RETURN_IF_ERROR(CheckTables(there, trained.model->variables()));
  for (const VariableSpec& spec : trained.model->variables()) {
    RETURN_IF_ERROR(CheckFits(spec, there, options.job.name));
    trained.specs.push_back(spec);
  }
  return trained;
}

// `score` scores with the trained variables and fills in the report.
absl::StatusOr<Report> Score(const TrainerOptions& options, const Connector& connect,
                             absl::FunctionRef<absl::Status(Evaluator&, Report&)> score) {
  ASSIGN_OR_RETURN(const Trained trained, OpenTrained(options, connect));
  Evaluator evaluator(options.job, *trained.model, *trained.client, CallTimeout(options),
                      options.stop_requested);
  Report report = NewReport(options);
  RETURN_IF_ERROR(score(evaluator, report));
  report.counters = trained.client->counters();
  RETURN_IF_ERROR(ExportVariables(*trained.client, trained.specs,
                                  {&options.job, trained.reader->vocabulary()},
                                  options.job.output.export_file, CallTimeout(options)));
  return report;
}

}  // namespace

absl::StatusOr<Report> RunTraining(const TrainerOptions& options, const Connector& connect) {
  return Training(options, connect).Run();
}

absl::StatusOr<Report> RunEvaluation(const TrainerOptions& options, const Connector& connect) {
  return Score(options, connect, [](Evaluator& evaluator, Report& report) -> absl::Status {
    ASSIGN_OR_RETURN(report.eval, evaluator.Evaluate());
    return absl::OkStatus();
  });
}

absl::StatusOr<Report> RunPrediction(const TrainerOptions& options, const std::string& path,
                                     const Connector& connect) {
  return Score(options, connect, [&path](Evaluator& evaluator, Report& report) -> absl::Status {
    ASSIGN_OR_RETURN(report.examples, evaluator.Predict(path));
    return absl::OkStatus();
  });
}

}  // namespace cairn
