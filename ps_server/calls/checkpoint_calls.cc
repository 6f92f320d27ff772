#include "ps_server/calls/checkpoint_calls.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/host_name.h"
#include "common/log.h"
#include "common/status.h"
#include "ps_server/calls/calls.h"
#include "storage/checkpoint_folder.h"
#include "storage/checkpoint_note.h"
#include "storage/directory.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// An earlier call may wait for the disk several times, and also copies files.
constexpr int kDiskWaits = 5;
// A small cache is enough: Describe reads a copy's records, and no rows.
constexpr size_t kReaderCacheBytes = 8 << 20;

// Returns `path` with its symbolic links resolved, as far as the path exists.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
  return error ? path : found.string();
}

}  // namespace

absl::Status Checkpoints::CheckPlace(const wire::CheckpointRequest& request) const {
  if (!absl::StartsWith(request.directory, "/")) {
    return InvalidArgument(info_.name, ": checkpoint directory '", request.directory,
                           "' is not an absolute path");
  }
  if (request.name == "." || request.name == "..") {
    return InvalidArgument(info_.name, ": '", request.name,
                           "' is not a valid name of a checkpoint");
  }
  const std::string database = Canonical(DatabasePath(info_.options.directory));
  const std::string wanted = Canonical(absl::StrCat(request.directory, "/", request.name));
  if (wanted == database || absl::StartsWith(wanted, absl::StrCat(database, "/"))) {
    return InvalidArgument(info_.name, ": checkpoint directory ", request.directory, " with name ",
                           request.name, " lies in the server's own database, ", database,
                           ": name another directory");
  }
  return absl::OkStatus();
}

// Fills in what the copy in `part` has of `job`. Numbers of rows are those in memory, which may be
// a little higher.
absl::Status Checkpoints::Describe(const std::string& part, const std::string& job,
                                   wire::CheckpointReply& reply) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<StripeStore> copy,
                   StripeStore::OpenReadOnly({.directory = part,
                                              .server_index = info_.index(),
                                              .block_cache_bytes = kReaderCacheBytes}));
  ASSIGN_OR_RETURN(const std::vector<WorkerRecord> workers, copy->Workers());
  for (const WorkerRecord& record : workers) {
    if (record.job != job) continue;
    wire::CheckpointWorker worker;
    worker.worker = record.worker;
    worker.incarnation = record.incarnation;
    worker.sequence = record.sequence;
    worker.position = record.position;
    reply.workers.push_back(std::move(worker));
  }
  std::map<std::pair<uint32_t, uint32_t>, int64_t> updates;
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, copy->Shards());
  for (const ShardRecord& shard : shards) {
    updates[{shard.variable, shard.shard}] = shard.update_count;
  }
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> variables, copy->Variables());
  const std::shared_ptr<Job> live = registry_.Find(job);
  const auto live_variables = live == nullptr ? nullptr : live->variables();
  for (const VariableRecord& record : variables) {
    if (record.job != job || live_variables == nullptr) continue;
    const auto found = live_variables->find(record.name);
    if (found == live_variables->end() || found->second->id() != record.id) continue;
    wire::VariableInfo info = InfoOf(*found->second);
    // Rows may have moved since the copy was made, so the variable's present map does not tell
    // which rows the copy has.
    ASSIGN_OR_RETURN(const Variable::Kept kept,
                     Variable::Decode(record, info_.index(), info_.max_servers()));
    info.spec = ToWire(kept.spec);
    for (wire::ShardInfo& shard : info.shards) {
      shard.version = updates[{record.id, static_cast<uint32_t>(shard.shard)}];
    }
    reply.variables.push_back(std::move(info));
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::AsStopping(const absl::Status& status) const {
  if (!absl::IsCancelled(status)) return status;
  return WithReason(
      Unavailable(info_.name, " is stopping: ", status.message(), "; retry when it is back"),
      wire::ErrorReason::STOPPING);
}

absl::StatusOr<ExclusiveSlot::Held> Checkpoints::TakeSlot(absl::string_view what) {
  const WaitBoard::Waiting waiting(&waits_, "checkpoint",
                                   "a checkpoint or restore before it to end");
  return slot_.Take(what, kDiskWaits * info_.options.disk_wait);
}

absl::Status Checkpoints::Make(const wire::CheckpointRequest& request,
                               wire::CheckpointReply& reply) {
  const absl::Duration begin = MonotonicNow();
  const std::string what = absl::StrCat(info_.name, ": checkpoint ", request.name);
  RETURN_IF_ERROR(CheckPlace(request));
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeSlot(what));
  const absl::Status flushed = flusher_.Flush(Flusher::Reach::kSynced);
  if (!flushed.ok()) return Annotate(flushed, what);
  CAIRN_CRASH_POINT("checkpoint: flushed");
  // Epochs may run during the copy: if half of one is copied, stripes are ahead of the workers'
  // records, as after a crash, and never behind them.
  const absl::StatusOr<std::vector<PartFileSum>> files =
      WriteCheckpointPart(store_, request.directory, request.name, info_.index(), &cancelled_);
  if (!files.ok()) return Annotate(AsStopping(files.status()), what);
  // The note serves only an error message, so a checkpoint does not fail without it.
  if (const absl::Status noted = NoteCheckpoints(info_.options.directory, request.directory);
      !noted.ok()) {
    LOG(WARNING) << what << ": " << noted.message();
  }
  reply.folder = CheckpointPartPath(request.directory, request.name, info_.index());
  RETURN_IF_ERROR(Annotate(Describe(reply.folder, request.caller.job, reply), what));
  int64_t bytes = 0;
  for (const PartFileSum& sum : *files) {
    wire::CheckpointFile file;
    file.name = sum.name;
    file.bytes = sum.bytes;
    file.checksum = static_cast<int64_t>(sum.checksum);
    reply.files.push_back(std::move(file));
    bytes += sum.bytes;
  }
  if (const std::shared_ptr<Job> job = registry_.Find(request.caller.job); job != nullptr) {
    job->NoteCheckpoint();
  }
  CAIRN_CRASH_POINT("checkpoint: before the answer");
  reply.server_index = info_.index();
  reply.host = HostName();
  reply.seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  LOG(INFO) << info_.name << " wrote " << reply.folder << ": " << reply.files.size() << " files, "
            << bytes << " bytes, in " << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

absl::Status Checkpoints::Drop(const wire::CheckpointRequest& request,
                               absl::Span<const int32_t> departed) {
  const std::string what = absl::StrCat(info_.name, ": drop_checkpoint ", request.name);
  RETURN_IF_ERROR(CheckPlace(request));
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeSlot(what));
  CAIRN_CRASH_POINT("checkpoint: before an old part is deleted");
  absl::Status status = DropCheckpointPart(request.directory, request.name, info_.index());
  for (const int32_t index : departed) {
    status.Update(DropCheckpointPart(request.directory, request.name, index));
  }
  return Annotate(status, what);
}

}  // namespace cairn
