#include "worker/trainer/job_restore.h"

#include <glog/logging.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/status.h"
#include "worker/trainer/checkpoint_folders.h"
#include "worker/trainer/exit_status.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr char kLatest[] = "latest";
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr absl::Duration kDescribeTimeout = absl::Minutes(1);

// ps:0 holds the roster, and a restore comes to ps:0 last.
absl::StatusOr<bool> HoldsJob(PsClient& client, bool* anything) {
  ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs,
                   client.Describe(Deadline::In(kDescribeTimeout)));
  if (anything != nullptr) *anything = !specs.empty();
  return HasRoster(specs);
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  return error ? path : absolute.string();
}

std::string Listing(const std::string& directory, const std::string& job) {
  const absl::StatusOr<CheckpointFolders> folders = ListCheckpoints(directory, job);
  if (!folders.ok() || folders->finished.empty()) return "there are none of this job";
  std::string text = "there are";
  for (const CheckpointManifest& manifest : folders->finished) {
    absl::StrAppend(&text, " ", directory, "/", manifest.name);
  }
  return text;
}

struct Chosen {
  std::string folder;  // empty: none
  CheckpointManifest manifest;
};

absl::StatusOr<Chosen> Choose(const JobConfig& job) {
  const CheckpointConfig& checkpoint = job.checkpoint;
  Chosen chosen;
  if (checkpoint.restore != kLatest) {
    chosen.folder = Absolute(checkpoint.restore);
    std::error_code unknown;  // what cannot be looked at is told by the read below
    if (std::filesystem::is_regular_file(chosen.folder, unknown)) {
      return AsBadInput(absl::InvalidArgumentError(
          absl::StrCat("checkpoint.restore: ", chosen.folder, " is a file; name the folder of a ",
                       "checkpoint, which has a ", CheckpointManifest::kFileName)));
    }
    absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::ReadFrom(chosen.folder);
    if (absl::IsNotFound(manifest.status())) {
      const std::string around =
          checkpoint.directory.empty() ? chosen.folder : Absolute(checkpoint.directory);
      return AsBadInput(absl::NotFoundError(absl::StrCat(
          "checkpoint.restore: ", chosen.folder, " holds no finished checkpoint (no ",
          CheckpointManifest::kFileName, "); in ", around, " ", Listing(around, job.name))));
    }
    RETURN_IF_ERROR(manifest.status());
    chosen.manifest = *std::move(manifest);
    return chosen;
  }
  const std::string directory = Absolute(checkpoint.directory);
  ASSIGN_OR_RETURN(CheckpointFolders folders, ListCheckpoints(directory, job.name));
  // The newest one may be the damaged one: who takes an older one instead shall know it.
  if (!folders.damaged.empty()) return absl::DataLossError(folders.damaged.front());
  if (folders.finished.empty()) return chosen;
  chosen.manifest = std::move(folders.finished.back());
  chosen.folder = absl::StrCat(directory, "/", chosen.manifest.name);
  return chosen;
}

// Rises with every restore, of the same checkpoint too: seconds since 2020, or one more than the
// checkpoint's where the clock was set back.
int64_t NextTimeline(const CheckpointManifest& manifest) {
  static const absl::Time epoch = absl::FromCivil(absl::CivilDay(2020, 1, 1), absl::UTCTimeZone());
  return std::max(manifest.timeline + 1, absl::ToInt64Seconds(absl::Now() - epoch));
}

RestoreSource SourceOf(const Chosen& chosen) {
  RestoreSource source{.job = chosen.manifest.job, .timeline = NextTimeline(chosen.manifest)};
  for (const ServerCheckpoint& server : chosen.manifest.servers) {
    // Beside the manifest, wherever the checkpoint has been moved to.
    source.folders.push_back(
        {absl::StrCat(chosen.folder, "/ps-", server.server), server.files, server.workers});
  }
  return source;
}

}  // namespace

bool RestoreWanted(const CheckpointConfig& checkpoint) {
  if (checkpoint.restore == "none") return false;
  return checkpoint.restore != kLatest || !checkpoint.directory.empty();
}

absl::Status RestoreJob(PsClient& client, const JobConfig& job, bool fresh) {
  bool anything = false;
  ASSIGN_OR_RETURN(const bool holds, HoldsJob(client, &anything));
  if (holds && !fresh) {
    if (job.checkpoint.restore != kLatest) {
      LOG(INFO) << "job '" << job.name << "': the servers hold it, so checkpoint.restore is not "
                << "used; --fresh goes back to that checkpoint";
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Chosen chosen, Choose(job));
  if (chosen.folder.empty()) return absl::OkStatus();
  const absl::Duration begin = MonotonicNow();
  LOG(INFO) << "job '" << job.name << "': restores " << chosen.folder << ", made "
            << chosen.manifest.made << " at step " << chosen.manifest.step << " on "
            << chosen.manifest.servers.size() << " servers, to " << client.server_count();
  if (anything) RETURN_IF_ERROR(client.DropJob(Deadline::In(kRestoreTimeout)));
  CAIRN_CRASH_POINT("restore: servers are empty");
  const absl::Status restored = client.Restore(SourceOf(chosen), Deadline::In(kRestoreTimeout));
  if (!restored.ok()) {
    const std::string around = fs::path(chosen.folder).parent_path().string();
    return Annotate(restored, absl::StrCat("restoring ", chosen.folder,
                                           " (checkpoint.restore names "
                                           "another one; in ",
                                           around, " ", Listing(around, job.name), ")"));
  }
  LOG(INFO) << "job '" << job.name << "': restored in "
            << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

absl::Status WaitForJob(PsClient& client, const std::string& job,
                        const StopRequested& stop_requested, absl::Duration patience) {
  const Deadline deadline = Deadline::In(patience);
  bool told = false;
  while (!deadline.Expired()) {
    if (stop_requested()) return absl::CancelledError("stopped while waiting for the first worker");
    ASSIGN_OR_RETURN(const bool holds, HoldsJob(client, nullptr));
    if (holds) return absl::OkStatus();
    if (!told) LOG(INFO) << "waits for the first worker to restore or begin job '" << job << "'";
    told = true;
    absl::SleepFor(std::min(kPollInterval, deadline.Remaining()));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "the first worker (chief, else worker 0) has neither restored nor begun job '", job,
      "' within ", absl::FormatDuration(patience), ": start it, or see why it ended"));
}

}  // namespace cairn
