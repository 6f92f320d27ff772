// create and restore: checkpoints that the servers write and read.
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/create_directory.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "worker/client/delivery/position.h"
#include "worker/client/ps_client.h"
#include "worker/ctl/job_commands.h"
#include "worker/ctl/server_view.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"
#include "worker/trainer/checkpoints/checkpointer.h"
#include "worker/trainer/resume/job_restore.h"
#include "worker/trainer/resume/run_position.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

std::string NewName(const std::string& job) {
  std::random_device random;
  return absl::StrFormat("%s.kept-%s-%08x", job,
                         absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()),
                         static_cast<uint32_t>(random()));
}

// The step after which the first worker would resume; 0: it has taken no step.
int64_t StepOf(const std::vector<ServerCheckpoint>& parts) {
  std::vector<ResumeAnswer> answers;
  for (const ServerCheckpoint& part : parts) {
    const CheckpointWorker* const first = FindWorker(part, 0);
    answers.push_back(first == nullptr ? ResumeAnswer{}
                                       : ResumeAnswer{first->sequence, first->position});
  }
  const absl::StatusOr<RunPosition> position =
      RunPosition::Decode(ChooseResumePoint(answers).position);
  return position.ok() ? position->total_steps : 0;
}

// Deletes an incomplete checkpoint. Returns `why` it is incomplete, which names the directory if
// something of it stays.
absl::Status Discard(PsClient& client, const std::string& directory, const std::string& name,
                     Deadline deadline, const absl::Status& why) {
  const std::string folder = absl::StrCat(directory, "/", name);
  const bool dropped = client.DropCheckpoint(directory, name, deadline).ok();
  std::error_code error;
  if (dropped) fs::remove(folder, error);
  if (dropped && !error) return why;
  return Annotate(why, absl::StrCat("delete the incomplete ", folder));
}

absl::StatusOr<std::string> MakeDirectory(const CheckpointCreateOptions& options,
                                          const Target& target) {
  std::string directory = options.directory;
  if (directory.empty() && target.job_file.has_value()) {
    directory = target.job_file->checkpoint.directory;
  }
  if (directory.empty()) {
    return AsBadInput(
        absl::InvalidArgumentError("no checkpoint directory: name one, or give --job FILE, a job "
                                   "file with checkpoint.directory"));
  }
  if (target.job.size() > kMaxCheckpointJobBytes) {
    return AsBadInput(InvalidArgument("job name of ", target.job.size(),
                                      " bytes: with checkpoints at most ", kMaxCheckpointJobBytes,
                                      " are allowed"));
  }
  std::error_code error;
  const fs::path absolute = fs::absolute(directory, error).lexically_normal();
  if (!error) error = CreateDirectories(absolute);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("making ", directory));
  return absolute.string();
}

// kFailedPrecondition if workers of the job are live: a restore would take the job from them.
absl::Status CheckNoLiveWorkers(const Target& target) {
  const std::vector<ServerView> servers = AskServers(target);
  RETURN_IF_ERROR(AnyMissing(servers));
  for (const wire::WorkerStanding& worker : WorkersOf(servers)) {
    const bool there =
        worker.state == "live" || worker.state == "joining" || worker.state == "returning";
    if (!there) continue;
    return FailedPrecondition(target.WorkerName(worker.worker), " (", worker.origin, ") is ",
                              worker.state, " at step ", worker.step,
                              ": a restore would fence it; end the job's workers first");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointManifest> MakeCheckpoint(PsClient& client, const std::string& job,
                                                  const std::string& directory) {
  const Deadline deadline = Deadline::In(Checkpointer::kTimeout);
  const absl::Duration begin = MonotonicNow();
  CheckpointManifest manifest{.job = job, .name = NewName(job), .number = 1};
  const std::string folder = absl::StrCat(directory, "/", manifest.name);
  const std::error_code error = CreateDirectory(folder);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("making ", folder));
  absl::StatusOr<std::vector<ServerCheckpoint>> parts =
      client.Checkpoint(directory, manifest.name, deadline);
  if (!parts.ok()) return Discard(client, directory, manifest.name, deadline, parts.status());
  manifest.servers = *std::move(parts);
  manifest.step = StepOf(manifest.servers);
  manifest.timeline = TimelineOf(manifest.servers);
  manifest.made = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  manifest.seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  const absl::Status written = manifest.WriteTo(folder);
  if (!written.ok()) return Discard(client, directory, manifest.name, deadline, written);
  return manifest;
}

absl::StatusOr<Answer> CreateCheckpoint(const CheckpointCreateOptions& options) {
  ASSIGN_OR_RETURN(const Target target, ResolveTarget(options.target));
  ASSIGN_OR_RETURN(const std::string directory, MakeDirectory(options, target));
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client, target.ConnectClient("off"));
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs,
                   client->Describe(Deadline::In(target.timeout)));
  if (specs.empty()) {
    return NotFound("the servers hold nothing of a job '", target.job, "': is that its name?");
  }
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   MakeCheckpoint(*client, target.job, directory));
  const std::string folder = absl::StrCat(directory, "/", manifest.name);
  Answer answer;
  answer.json = {
      {"folder", folder},      {"job", manifest.job},         {"step", manifest.step},
      {"made", manifest.made}, {"seconds", manifest.seconds}, {"servers", manifest.servers.size()}};
  answer.text =
      absl::StrFormat("%s\n  job %s at step %d, parts of %d servers, in %.1f s\n", folder,
                      manifest.job, manifest.step, manifest.servers.size(), manifest.seconds);
  return answer;
}

absl::StatusOr<Answer> RestoreCheckpoint(const CheckpointRestoreOptions& options) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   AsBadInput(CheckpointManifest::ReadFrom(options.folder)));
  TargetOptions wanted = options.target;
  if (wanted.job.empty()) wanted.job = manifest.job;
  ASSIGN_OR_RETURN(const Target target, ResolveTarget(wanted));
  RETURN_IF_ERROR(CheckNoLiveWorkers(target));
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client, target.ConnectClient("off"));
  ASSIGN_OR_RETURN(const JobHoldings holdings, client->Examine(Deadline::In(target.timeout)));
  if (!holdings.specs.empty() && !holdings.from_unfinished_restore && !options.replace) {
    return AlreadyExists(
        "the servers hold ", holdings.specs.size(), " variables of job ", target.job,
        ": --replace drops them for the checkpoint's, --job NAME restores under another name");
  }
  JobConfig job;
  job.name = target.job;
  job.checkpoint.restore = options.folder;
  RETURN_IF_ERROR(RestoreJob(*client, job, /*fresh=*/true));
  Answer answer;
  answer.json = {{"folder", options.folder},
                 {"job", target.job},
                 {"step", manifest.step},
                 {"servers", target.members.addresses.size()}};
  answer.text = absl::StrCat("job ", target.job, " is on ", target.members.addresses.size(),
                             " servers as it was at step ", manifest.step,
                             ": start its workers, which continue from there\n");
  return answer;
}

}  // namespace cairn
