#include "worker/trainer/joint/joint_state.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/checkpoints/checkpointer.h"
#include "worker/trainer/joint/group_text.h"
#include "worker/trainer/resume/job_restore.h"
#include "worker/trainer/resume/run_position.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// No job's name begins with a dot, and two workers on one machine have different tasks.
std::string ScratchFolder(const JobConfig& job, const std::string& task) {
  const std::string name =
      absl::StrCat(".", job.name, ".", absl::StrReplaceAll(task, {{":", "-"}}), ".state");
  std::error_code error;
  const fs::path folder = fs::absolute(fs::path(job.storage.directory) / name, error);
  return folder.lexically_normal().string();
}

// Also removes what a killed process has left.
absl::Status Remove(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("removing ", folder));
}

absl::Status WriteState(const JobConfig& job, const std::string& scratch, PsClient& client) {
  JobConfig state = job;
  state.checkpoint.directory = scratch;
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpointer> checkpointer,
                   Checkpointer::Create(state, client));
  return checkpointer->End(0);
}

absl::StatusOr<std::string> WrittenState(const JobConfig& job, const std::string& scratch) {
  ASSIGN_OR_RETURN(const CheckpointFolders folders, ListCheckpoints(scratch, job.name));
  if (folders.finished.empty()) return Internal(scratch, " is empty");
  return absl::StrCat(scratch, "/", folders.finished.back().name);
}

}  // namespace

absl::StatusOr<NewestState> FindNewestState(CollectiveGroup& group, absl::string_view stored,
                                            absl::Duration timeout) {
  const std::string own = absl::StrCat(absl::ToUnixMicros(absl::Now()), " ", stored);
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(group, own, timeout));
  NewestState newest;
  RunPosition best;
  newest.log_line = "found";
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = texts[static_cast<size_t>(rank)];
    const size_t blank = text.find(' ');
    int64_t now = 0;
    if (blank == std::string::npos || !absl::SimpleAtoi(text.substr(0, blank), &now)) {
      return DataLoss("worker ", rank, " (", group.peer(rank), ") reports the position '", text,
                      "'");
    }
    if (rank == 0) newest.next_start = std::max(newest.next_start, now);
    const std::string position = text.substr(blank + 1);
    absl::StrAppend(&newest.log_line, rank == 0 ? " " : ", ", "worker ", rank);
    if (position.empty()) {
      absl::StrAppend(&newest.log_line, " without state");
      continue;
    }
    ASSIGN_OR_RETURN(const RunPosition decoded, RunPosition::Decode(position));
    absl::StrAppend(&newest.log_line, " after step ", decoded.total_steps);
    newest.next_start = std::max(newest.next_start, decoded.start + 1);
    const auto age = [](const RunPosition& of) { return std::tuple(of.start, of.total_steps); };
    if (newest.rank >= 0 && age(decoded) <= age(best)) continue;
    newest.rank = rank;
    best = decoded;
  }
  if (newest.rank >= 0) absl::StrAppend(&newest.log_line, ": all resume from worker ", newest.rank);
  return newest;
}

absl::Status ShareState(Lockstep& lockstep, int from, const JobConfig& job, const std::string& task,
                        PsClient& client, absl::Duration timeout) {
  const bool sends = lockstep.group().rank() == from;
  const std::string scratch = ScratchFolder(job, task);
  const absl::Cleanup remove = [&scratch] { Remove(scratch).IgnoreError(); };
  RETURN_IF_ERROR(lockstep.Meanwhile([&]() -> absl::Status {
    RETURN_IF_ERROR(Remove(scratch));
    return sends ? WriteState(job, scratch, client) : absl::OkStatus();
  }));
  std::string folder = absl::StrCat(scratch, "/state");
  if (sends) {
    absl::StatusOr<std::string> written = WrittenState(job, scratch);
    lockstep.group().Abort(written.status());
    RETURN_IF_ERROR(written.status());
    folder = *std::move(written);
  }
  RETURN_IF_ERROR(BroadcastFolder(lockstep.group(), from, folder, timeout));
  return lockstep.Meanwhile([&]() -> absl::Status {
    if (sends) return absl::OkStatus();
    JobConfig taken = job;
    taken.checkpoint.restore = folder;
    return RestoreJob(client, taken, /*fresh=*/true);
  });
}

}  // namespace cairn
