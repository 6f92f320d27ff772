#include "worker/trainer/resume/job_restore.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr char kLatest[] = "latest";
constexpr absl::Duration kDecisionPollInterval = absl::Milliseconds(50);
constexpr absl::Duration kDescribeTimeout = absl::Minutes(1);

// ps:0 holds the roster, and a restore fills ps:0 last.
bool HoldsJob(const JobHoldings& holdings) {
  return holdings.disagreement.empty() && HasRoster(holdings.specs);
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  return error ? path : absolute.string();
}

std::string Listing(const std::string& directory, const std::string& job) {
  const absl::StatusOr<CheckpointFolders> folders = ListCheckpoints(directory, job);
  if (!folders.ok()) return absl::StrCat("none can be found: ", folders.status().message());
  if (folders->finished.empty()) return "there are none of this job";
  std::string text = "there are";
  for (const CheckpointManifest& manifest : folders->finished) {
    absl::StrAppend(&text, " ", directory, "/", manifest.name);
  }
  return text;
}

struct Chosen {
  std::string folder;  // empty: no checkpoint
  CheckpointManifest manifest;
};

absl::StatusOr<Chosen> Choose(const JobConfig& job) {
  const CheckpointConfig& checkpoint = job.checkpoint;
  Chosen chosen;
  if (checkpoint.restore != kLatest) {
    chosen.folder = Absolute(checkpoint.restore);
    std::error_code unknown;  // the read below reports a path that cannot be examined
    if (std::filesystem::is_regular_file(chosen.folder, unknown)) {
      return AsBadInput(InvalidArgument("checkpoint.restore: ", chosen.folder,
                                        " is a file; name the directory of a ",
                                        "checkpoint, which has a ", CheckpointManifest::kFileName));
    }
    absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::ReadFrom(chosen.folder);
    if (absl::IsNotFound(manifest.status())) {
      const std::string around =
          checkpoint.directory.empty() ? chosen.folder : Absolute(checkpoint.directory);
      return AsBadInput(NotFound(
          "checkpoint.restore: ", chosen.folder, " holds no finished checkpoint (no ",
          CheckpointManifest::kFileName, "); in ", around, " ", Listing(around, job.name)));
    }
    RETURN_IF_ERROR(manifest.status());
    chosen.manifest = *std::move(manifest);
    return chosen;
  }
  const std::string directory = Absolute(checkpoint.directory);
  ASSIGN_OR_RETURN(CheckpointFolders folders, ListCheckpoints(directory, job.name));
  // The corrupt checkpoint may be the newest one, and the user must decide whether to restore an
  // older one.
  if (!folders.damaged.empty()) return absl::DataLossError(folders.damaged.front());
  if (folders.finished.empty()) return chosen;
  chosen.manifest = std::move(folders.finished.back());
  chosen.folder = absl::StrCat(directory, "/", chosen.manifest.name);
  return chosen;
}

RestoreSource SourceOf(const Chosen& chosen) {
  RestoreSource source{.job = chosen.manifest.job,
                       .timeline = NewTimeline(0, chosen.manifest.timeline)};
  for (const ServerCheckpoint& server : chosen.manifest.servers) {
    // The parts are looked for beside the manifest, since the checkpoint may have been moved.
    source.folders.push_back(
        {absl::StrCat(chosen.folder, "/ps-", server.server), server.files, server.workers});
  }
  return source;
}

absl::Status NotRestored(const absl::Status& why, const Chosen& chosen, const std::string& job,
                         absl::string_view outcome = "") {
  const std::string around = fs::path(chosen.folder).parent_path().string();
  return Annotate(why, absl::StrCat(outcome, "restoring ", chosen.folder,
                                    " (checkpoint.restore names another one; in ", around, " ",
                                    Listing(around, job), ")"));
}

}  // namespace

bool RestoreWanted(const CheckpointConfig& checkpoint) {
  if (checkpoint.restore == "none") return false;
  return checkpoint.restore != kLatest || !checkpoint.directory.empty();
}

absl::Status RestoreJob(PsClient& client, const JobConfig& job, bool fresh) {
  ASSIGN_OR_RETURN(const JobHoldings holdings, client.Examine(Deadline::In(kDescribeTimeout)));
  if (HoldsJob(holdings) && !fresh) {
    if (RestoreWanted(job.checkpoint) && job.checkpoint.restore != kLatest) {
      LOG(INFO) << "job '" << job.name << "': the servers hold it, so checkpoint.restore is not "
                << "used; --fresh goes back to that checkpoint";
    }
    return absl::OkStatus();
  }
  Chosen chosen;
  if (RestoreWanted(job.checkpoint)) {
    ASSIGN_OR_RETURN(chosen, Choose(job));
  }
  const Deadline deadline = Deadline::In(kRestoreTimeout);
  if (chosen.folder.empty()) {
    if (holdings.disagreement.empty()) return absl::OkStatus();
    if (!holdings.from_unfinished_restore) return CheckAgreement(holdings);
    LOG(INFO) << "job '" << job.name << "': drops the remains of a failed restore, and begins";
    return client.DropJob(deadline);
  }
  if (!holdings.disagreement.empty() && !holdings.from_unfinished_restore) {
    LOG(WARNING) << holdings.disagreement << "; every server goes back to the checkpoint";
  }
  const absl::Duration begin = MonotonicNow();
  LOG(INFO) << "job '" << job.name << "': restores " << chosen.folder << ", made "
            << chosen.manifest.made << " at step " << chosen.manifest.step << " on "
            << chosen.manifest.servers.size() << " servers, to " << client.server_count();
  const RestoreSource source = SourceOf(chosen);
  if (!holdings.specs.empty()) {
    // The servers hold the job until they have read the checkpoint once: it may be corrupt, or out
    // of their reach.
    const absl::Status whole = client.VerifyRestore(source, deadline);
    if (!whole.ok()) return NotRestored(whole, chosen, job.name, "the servers keep the job; ");
    RETURN_IF_ERROR(client.DropJob(Deadline::In(kRestoreTimeout)));
  }
  CAIRN_CRASH_POINT("restore: servers are empty");
  const absl::Status restored = client.Restore(source, Deadline::In(kRestoreTimeout));
  if (!restored.ok()) return NotRestored(restored, chosen, job.name);
  LOG(INFO) << "job '" << job.name << "': restored in "
            << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

absl::Status WaitForJob(PsClient& client, const std::string& job, bool always,
                        const StopRequested& stop_requested, absl::Duration timeout) {
  const Deadline deadline = Deadline::In(timeout);
  bool told = false;
  std::string disagreement;
  while (!deadline.Expired()) {
    if (stop_requested()) return absl::CancelledError("stopped while waiting for the first worker");
    ASSIGN_OR_RETURN(const JobHoldings holdings, client.Examine(Deadline::In(kDescribeTimeout)));
    if (HoldsJob(holdings) || (!always && !holdings.from_unfinished_restore))
      return absl::OkStatus();
    always = true;
    disagreement = holdings.disagreement;
    if (!told) LOG(INFO) << "waits for the first worker to restore or begin job '" << job << "'";
    told = true;
    absl::SleepFor(std::min(kDecisionPollInterval, deadline.Remaining()));
  }
  return DeadlineExceeded(
      "the first worker (chief, else worker 0) has neither restored nor begun job '", job,
      "' within ", absl::FormatDuration(timeout), ": start it, or see why it ended",
      disagreement.empty() ? "" : "; ", disagreement);
}

}  // namespace cairn
