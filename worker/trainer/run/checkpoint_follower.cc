#include "worker/trainer/run/checkpoint_follower.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/status.h"
#include "common/time_text.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/reports/run_output.h"

namespace cairn {
namespace {

// Each poll reads the manifests, some kilobytes each.
constexpr absl::Duration kFolderPollInterval = absl::Milliseconds(500);

class Follower {
 public:
  Follower(const TrainerOptions& options, const CheckpointOpener& open)
      : options_(options), open_(open), config_(options.job.checkpoint) {
    options_.job.output.export_file.clear();  // the first worker exports
  }

  absl::StatusOr<Report> Run() {
    RETURN_IF_ERROR(Begin());
    const absl::Duration timeout = absl::Seconds(options_.job.evaluation.checkpoint_wait_seconds);
    absl::Duration waiting_since = MonotonicNow();
    while (!options_.stop_requested()) {
      ASSIGN_OR_RETURN(const std::optional<CheckpointManifest> next, FindNext());
      if (next.has_value()) {
        const absl::Status status = Score(*next);
        if (absl::IsCancelled(status)) break;
        RETURN_IF_ERROR(status);
        if (run_ended_ && last_ != first_) return End("completed");
        waiting_since = MonotonicNow();
      } else if (MonotonicNow() - waiting_since > timeout) {
        if (run_ended_) return End("completed");
        return NothingCame(timeout);
      } else {
        absl::SleepFor(kFolderPollInterval);
      }
    }
    return End("interrupted");
  }

 private:
  absl::Status Begin() {
    if (config_.directory.empty()) {
      return AsBadInput(absl::InvalidArgumentError(
          "the evaluator follows the job's checkpoints, but checkpoint.directory names none"));
    }
    if (options_.job.data.eval.empty()) {
      return AsBadInput(absl::InvalidArgumentError(
          "data.eval names no file; the evaluator scores the rows there"));
    }
    ASSIGN_OR_RETURN(const CheckpointFolders folders,
                     ListCheckpoints(config_.directory, options_.job.name));
    if (!folders.finished.empty()) first_ = folders.finished.back().name;
    LOG(INFO) << options_.task << ": follows the checkpoints of job '" << options_.job.name
              << "' in " << config_.directory
              << (first_.empty() ? ", where there are none yet" : absl::StrCat(", from ", first_));
    const std::string& metrics_file = options_.job.output.metrics_file;
    if (metrics_file.empty()) return absl::OkStatus();
    metrics_file_ =
        options_.own_metrics_file ? metrics_file : TaskMetricsFile(metrics_file, options_.task);
    LOG(INFO) << options_.task << ": writes its evaluations to " << metrics_file_;
    // Opened now, because a file that cannot be written is an error before the first checkpoint.
    return output_.OpenMetrics(metrics_file_, /*append=*/true);
  }

  // Keeps the evaluations of an earlier evaluator, except those of later steps than `step`, the
  // first that this one scores: the job has started over since.
  absl::Status BeginOutput(int64_t step) {
    if (!metrics_file_.empty() && LastStepOf(metrics_file_) > step) {
      RETURN_IF_ERROR(output_.OpenMetrics(metrics_file_, /*append=*/false));
    }
    const std::string& tensorboard = options_.job.output.tensorboard;
    if (tensorboard.empty()) return absl::OkStatus();
    return output_.OpenEvents(EventFolder(tensorboard, options_.task), step, std::nullopt);
  }

  // The newest checkpoint, unless it is the last one scored.
  absl::StatusOr<std::optional<CheckpointManifest>> FindNext() {
    ASSIGN_OR_RETURN(CheckpointFolders folders,
                     ListCheckpoints(config_.directory, options_.job.name));
    if (!folders.damaged.empty() && folders.damaged != damaged_) {
      LOG(WARNING) << folders.damaged.back();
      damaged_ = std::move(folders.damaged);
    }
    if (folders.finished.empty() || folders.finished.back().name == last_) return std::nullopt;
    return std::move(folders.finished.back());
  }

  absl::Status Score(const CheckpointManifest& manifest) {
    const std::string folder = absl::StrCat(config_.directory, "/", manifest.name);
    const absl::StatusOr<Report> scored = Evaluate(folder);
    if (!scored.ok()) {
      if (IsFinished(folder) || absl::IsCancelled(scored.status())) return scored.status();
      LOG(INFO) << manifest.name << " was deleted before it was scored";
      return absl::OkStatus();
    }
    if (checkpoints_ == 0) RETURN_IF_ERROR(BeginOutput(manifest.step));
    report_ = *scored;
    report_.total_steps = manifest.step;
    last_ = manifest.name;
    run_ended_ = manifest.finished;
    ++checkpoints_;
    LOG(INFO) << "step " << manifest.step << " (" << manifest.name
              << "): " << EvaluationText(*report_.eval);
    return output_.Evaluated(manifest.step, *report_.eval);
  }

  absl::StatusOr<Report> Evaluate(const std::string& folder) {
    ASSIGN_OR_RETURN(const std::unique_ptr<InProcessServer> server, open_(folder));
    absl::StatusOr<Report> report =
        RunEvaluation(options_, [&](const ClientOptions& client, Deadline deadline) {
          return server->Connect(client, deadline);
        });
    RETURN_IF_ERROR(server->Close());
    return report;
  }

  absl::StatusOr<Report> End(const std::string& status) {
    RETURN_IF_ERROR(output_.Close());
    report_.status = status;
    report_.task = options_.task;
    report_.checkpoints = checkpoints_;
    report_.metrics_file = metrics_file_;
    return report_;
  }

  absl::Status NothingCame(absl::Duration timeout) const {
    return DeadlineExceeded(
        options_.task, ": no ", last_.empty() ? "" : "newer ", "checkpoint of job '",
        options_.job.name, "' came to ", config_.directory, " for ", DurationText(timeout),
        last_.empty() ? "" : absl::StrCat(", the last was ", last_),
        ": see why the job's first worker (chief, else worker 0) makes none; they come every ",
        "checkpoint.every_steps (", config_.every_steps,
        ") and at the end, and evaluation.checkpoint_wait_seconds is how long one may take");
  }

  TrainerOptions options_;
  const CheckpointOpener& open_;
  const CheckpointConfig& config_;
  RunOutput output_;
  std::string metrics_file_;
  std::string first_;  // the newest checkpoint at the start
  std::string last_;   // the last one scored
  bool run_ended_ = false;
  int64_t checkpoints_ = 0;
  std::vector<std::string> damaged_;  // already logged
  Report report_;
};

}  // namespace

absl::StatusOr<Report> FollowCheckpoints(const TrainerOptions& options,
                                         const CheckpointOpener& open) {
  return Follower(options, open).Run();
}

}  // namespace cairn
