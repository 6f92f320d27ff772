#include "worker/trainer/checkpoints/checkpointer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/crash_point.h"
#include "common/create_directory.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpointer>> Checkpointer::Create(const JobConfig& job,
                                                                   PsClient& client) {
  if (job.name.size() > kMaxCheckpointJobBytes) {
    return InvalidArgument("job name of ", job.name.size(), " bytes: with checkpoints at most ",
                           kMaxCheckpointJobBytes, " are allowed");
  }
  std::error_code error;
  const fs::path directory = fs::absolute(job.checkpoint.directory, error).lexically_normal();
  if (!error) error = CreateDirectories(directory);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("making the checkpoints' directory ",
                                                           job.checkpoint.directory));
  }
  return std::unique_ptr<Checkpointer>(new Checkpointer(job, directory.string(), client));
}

Checkpointer::~Checkpointer() { Join(); }

void Checkpointer::Join() {
  if (thread_.joinable()) thread_.join();
}

void Checkpointer::Begin(int64_t step) {
  if (synchronous_) return MakeOrLog(step);
  Join();
  absl::StatusOr<std::thread> thread = StartThread([this, step] { MakeOrLog(step); });
  if (!thread.ok()) {
    LOG(WARNING) << "training waits for the checkpoint of step " << step << ": "
                 << thread.status().message();
    return MakeOrLog(step);
  }
  thread_ = *std::move(thread);
}

absl::StatusOr<std::string> Checkpointer::MakeNow(int64_t step) {
  Join();
  return Make(step, /*finished=*/false);
}

absl::Status Checkpointer::End(int64_t step) {
  Join();
  return Make(step, /*finished=*/true).status();
}

void Checkpointer::MakeOrLog(int64_t step) {
  const absl::Status status = Make(step, /*finished=*/false).status();
  if (!status.ok()) LOG(ERROR) << status.message() << "; training continues";
}

absl::StatusOr<std::string> Checkpointer::Make(int64_t step, bool finished) {
  const Deadline deadline = Deadline::In(kTimeout);
  std::string name = NewCheckpointName(job_, step);
  const absl::Status status =
      Write({.job = job_, .name = name, .number = 1, .step = step, .finished = finished}, deadline);
  if (!status.ok()) {
    failed_.push_back(name);  // the next checkpoint deletes its files
    return Annotate(status, absl::StrCat("checkpoint of step ", step, " in ", directory_));
  }
  const absl::Status deleted = DeleteOld(name, deadline);
  if (!deleted.ok()) {
    LOG(WARNING) << "old checkpoints in " << directory_ << ": " << deleted.message();
  }
  return name;
}

absl::Status Checkpointer::Write(const CheckpointManifest& wanted, Deadline deadline) {
  const absl::Duration begin = MonotonicNow();
  const std::string folder = absl::StrCat(directory_, "/", wanted.name);
  // Created before any server writes, so that a failed checkpoint is visible here even if the
  // servers' directories are not shared. Durable before an older checkpoint is deleted.
  if (const std::error_code error = CreateDirectory(folder)) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("making ", folder));
  }
  CAIRN_CRASH_POINT("checkpoint: folder made");
  ASSIGN_OR_RETURN(const CheckpointFolders before, ListCheckpoints(directory_, job_));
  CheckpointManifest manifest = wanted;
  // A counter orders the checkpoints. The clock or the step could make a restarted run look older
  // than the run before it.
  if (!before.finished.empty()) manifest.number = before.finished.back().number + 1;
  ASSIGN_OR_RETURN(manifest.servers, client_.Checkpoint(directory_, manifest.name, deadline));
  manifest.timeline = TimelineOf(manifest.servers);
  manifest.made = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  manifest.seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  CAIRN_CRASH_POINT("checkpoint: before the manifest");
  RETURN_IF_ERROR(manifest.WriteTo(folder));
  CAIRN_CRASH_POINT("checkpoint: manifest written");
  LOG(INFO) << "checkpoint of step " << manifest.step << ": " << folder << ", in "
            << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

absl::StatusOr<Checkpointer::Old> Checkpointer::ListOld(const std::string& made) const {
  ASSIGN_OR_RETURN(const CheckpointFolders folders, ListCheckpoints(directory_, job_));
  for (const std::string& why : folders.damaged) LOG(WARNING) << why;
  const std::vector<std::string> interrupted =
      UnchangedFor(kTimeout, directory_, made, folders.unfinished);
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  };
  Old old;
  for (const std::string& name : folders.unfinished) {
    if (has(failed_, name) || has(interrupted, name)) old.unfinished.push_back(name);
  }
  for (const std::string& name : NotKept(folders, keep_)) {
    if (name != made) old.superseded.push_back(name);  // others have made newer ones meanwhile
  }
  return old;
}

absl::Status Checkpointer::DeleteUnfinished(const std::string& name, Deadline deadline) {
  CAIRN_CRASH_POINT("checkpoint: before an old one is deleted");
  const std::string folder = absl::StrCat(directory_, "/", name);
  if (IsFinished(folder)) return absl::OkStatus();  // since it was listed
  RETURN_IF_ERROR(client_.DropCheckpoint(directory_, name, deadline));
  return RemoveEmptyCheckpoint(folder);
}

absl::Status Checkpointer::DeleteOld(const std::string& made, Deadline deadline) {
  ASSIGN_OR_RETURN(const Old old, ListOld(made));
  failed_.clear();
  absl::Status first;  // a checkpoint that cannot be deleted keeps no other from being deleted
  const auto note = [&](const std::string& name, const absl::Status& deleted) {
    if (!deleted.ok()) failed_.push_back(name);
    first.Update(deleted);
  };
  for (const std::string& name : old.unfinished) note(name, DeleteUnfinished(name, deadline));
  for (const std::string& name : old.superseded) {
    if (deadline.Expired()) break;  // no server would delete its part any more
    const absl::Status removed = RemoveManifest(absl::StrCat(directory_, "/", name));
    note(name, removed.ok() ? DeleteUnfinished(name, deadline) : removed);
  }
  return first;
}

absl::Status EndCheckpoints(const JobConfig& job, PsClient& client, Checkpointer* running,
                            int64_t step) {
  if (running != nullptr) return running->End(step);
  if (job.checkpoint.directory.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpointer> checkpointer,
                   Checkpointer::Create(job, client));
  ASSIGN_OR_RETURN(const CheckpointFolders folders,
                   ListCheckpoints(job.checkpoint.directory, job.name));
  const bool has_it = std::ranges::any_of(folders.finished, [step](const CheckpointManifest& one) {
    return one.finished && one.step == step;
  });
  return has_it ? absl::OkStatus() : checkpointer->End(step);
}

}  // namespace cairn
