#include "ps_server/calls/checkpoint_parts.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/match.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/variables/spec_difference.h"
#include "common/variables/variable_map.h"
#include "storage/checkpoint_folder.h"

namespace cairn {
namespace {

constexpr size_t kPartCacheBytes = 8 << 20;

// Whether the server had left the cluster before the checkpoint was made: the checkpoint has no
// files of such a server.
bool HasLeft(const wire::RestoreFolder& folder) { return folder.files.empty(); }

}  // namespace

CheckpointParts::CheckpointParts(const ServerInfo& info, const wire::RestoreRequest& request,
                                 const std::atomic<bool>& cancelled)
    : info_(info),
      request_(request),
      cancelled_(cancelled),
      job_(request.from_job.empty() ? request.caller.job : request.from_job),
      same_(static_cast<int32_t>(request.folders.size()) == info.options.server_count &&
            std::none_of(request.folders.begin(), request.folders.end(), HasLeft)) {}

absl::Status CheckpointParts::Open() {
  for (size_t i = 0; i < request_.folders.size(); ++i) {
    if (same_ && static_cast<int32_t>(i) != info_.index()) continue;
    if (HasLeft(request_.folders[i])) continue;
    RETURN_IF_ERROR(OpenPart(static_cast<int32_t>(i)));
  }
  RETURN_IF_ERROR(ReadVariables());
  RETURN_IF_ERROR(CheckNoneLeft());
  RETURN_IF_ERROR(CheckNoneMissing());
  if (!variables_.empty() || same_) return absl::OkStatus();
  return NotFound("the checkpoint has no variables of job ", job_);
}

absl::Status CheckpointParts::OpenPart(int32_t index) {
  CheckpointPart part;
  part.index = index;
  part.folder = &request_.folders[static_cast<size_t>(index)];
  RETURN_IF_ERROR(VerifyFiles(part, /*tables=*/false));
  ASSIGN_OR_RETURN(part.store, StripeStore::OpenReadOnly({.directory = part.folder->path,
                                                          .server_index = index,
                                                          .block_cache_bytes = kPartCacheBytes}));
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> variables, part.store->Variables());
  for (const VariableRecord& record : variables) {
    if (record.job == job_) part.variables.emplace(record.name, record);
  }
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, part.store->Shards());
  for (const ShardRecord& record : shards) {
    part.shards[{record.variable, record.shard}] = record;
  }
  ASSIGN_OR_RETURN(part.ahead, WorkersAhead(*part.store));
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Watermark>> CheckpointParts::WorkersAhead(
    const StripeStore& store) const {
  std::vector<Watermark> ahead;
  ASSIGN_OR_RETURN(const std::vector<WorkerRecord> workers, store.Workers());
  for (const WorkerRecord& record : workers) {
    if (record.job != job_) continue;
    const auto told = std::find_if(
        request_.workers.begin(), request_.workers.end(),
        [&](const wire::CheckpointWorker& worker) { return worker.worker == record.worker; });
    const int64_t resumes_after = told == request_.workers.end() ? 0 : told->sequence;
    if (record.sequence > resumes_after) ahead.push_back({record.worker, record.sequence});
  }
  return ahead;
}

absl::Status CheckpointParts::VerifyTables(const CheckpointPart& part) const {
  return VerifyFiles(part, /*tables=*/true);
}

// Verifies RocksDB's tables, or all other files.
absl::Status CheckpointParts::VerifyFiles(const CheckpointPart& part, bool tables) const {
  for (const wire::CheckpointFile& file : part.folder->files) {
    if (absl::EndsWith(file.name, ".sst") != tables) continue;
    RETURN_IF_ERROR(VerifyPartFile(part.folder->path,
                                   {file.name, file.bytes, static_cast<uint64_t>(file.checksum)},
                                   &cancelled_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Variable::Kept> CheckpointParts::Decode(const VariableRecord& record,
                                                       const CheckpointPart& part) const {
  return Variable::Decode(record, part.index, static_cast<int32_t>(request_.folders.size()));
}

absl::Status CheckpointParts::ReadVariables() {
  for (const CheckpointPart& part : parts_) {
    for (const auto& [name, record] : part.variables) {
      ASSIGN_OR_RETURN(Variable::Kept kept, Decode(record, part));
      const auto [at, is_new] = variables_.try_emplace(name, kept);
      if (is_new) continue;
      Variable::Kept& known = at->second;
      // The optimizer's arguments changed while the checkpoint was made: the part that comes first
      // decides.
      if (MayFollow(known.spec.optimizer, kept.spec.optimizer)) {
        kept.spec.optimizer = known.spec.optimizer;
      }
      // Rows moved while the checkpoint was made: the newer map says which part has them.
      if (known.spec.map_version != kept.spec.map_version && SameButPlaces(known.spec, kept.spec)) {
        if (kept.spec.map_version > known.spec.map_version) known.spec = kept.spec;
        continue;
      }
      if (!(known.spec == kept.spec)) {
        return DataLoss(part.folder->path, " has variable \"", name, "\" as ", SpecText(kept.spec),
                        ", and an earlier part has it as ", SpecText(known.spec),
                        ": they belong to different checkpoints");
      }
    }
  }
  return absl::OkStatus();
}

// kDataLoss: a variable has rows on a server of which the checkpoint has no files.
absl::Status CheckpointParts::CheckNoneLeft() const {
  for (const auto& [name, kept] : variables_) {
    for (const int32_t ps : PlacesOf(kept.spec)) {
      if (!HasLeft(request_.folders[static_cast<size_t>(ps)])) continue;
      return DataLoss("variable \"", name, "\" has rows on ps:", ps,
                      ", but the checkpoint has no files of that server: it is incomplete");
    }
  }
  return absl::OkStatus();
}

// kDataLoss: a part was copied before rows that belong to it by the newest map had arrived there.
absl::Status CheckpointParts::CheckNoneMissing() const {
  for (const CheckpointPart& part : parts_) {
    for (const auto& [name, newest] : variables_) {
      std::optional<Variable::Kept> kept;
      if (const auto stored = part.variables.find(name); stored != part.variables.end()) {
        ASSIGN_OR_RETURN(kept, Decode(stored->second, part));
      }
      const VariableSpec* const map = kept.has_value() ? &kept->spec : nullptr;
      if (GivesAll(map, newest.spec, part.index)) continue;
      // The rows had arrived, and only the record that they belong to this server was missing.
      if (map != nullptr && kept->arriving.has_value() &&
          kept->arriving->map_version == newest.spec.map_version) {
        continue;
      }
      return DataLoss(part.folder->path, " lacks rows of variable \"", name,
                      "\": they moved to ps:", part.index,
                      " while the checkpoint was made: restore another checkpoint");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
