#include "worker/trainer/run/in_process_server.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/create_directory.h"
#include "common/log.h"
#include "common/memory_limit.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "thrift/ParameterServer.h"
#include "worker/trainer/resume/job_restore.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kConnectTimeout = absl::Minutes(1);

class EngineServer : public InProcessServer {
 public:
  // `scratch`: a directory that is deleted with the server; empty: none.
  EngineServer(std::unique_ptr<Engine> engine, fs::path scratch)
      : engine_(std::move(engine)), scratch_(std::move(scratch)) {}
  ~EngineServer() override {
    engine_.reset();
    if (scratch_.empty()) return;
    std::error_code error;
    fs::remove_all(scratch_, error);
    fs::remove(scratch_.parent_path(), error);  // only if it is empty
  }

  absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                    Deadline deadline) override {
    ClientOptions kept = options;
    kept.retained_bytes =
        0;  // the engine ends with this process, so pushes need not be kept for a replay
    return PsClient::ConnectInProcess(kept, {&engine_->service()}, deadline);
  }
  absl::Status Close() override { return engine_->Close(); }

 private:
  std::unique_ptr<Engine> engine_;
  const fs::path scratch_;
};

absl::Status MakeParent(const fs::path& parent) {
  const std::error_code error = CreateDirectories(parent);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("making storage.directory ", parent.string()));
}

// Opens a store in a directory whose contents nobody needs. A process that was killed while it
// made, filled or deleted its store may have left one that does not open.
absl::StatusOr<std::unique_ptr<Engine>> OpenScratch(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options);
  const bool unusable =
      absl::IsDataLoss(engine.status()) || absl::IsFailedPrecondition(engine.status());
  if (!unusable || Engine::IsOpen(options.directory)) return engine;
  LOG(INFO) << "deletes the remains of a killed process: " << engine.status().message();
  std::error_code error;
  fs::remove_all(options.directory, error);
  if (!error) return Engine::Open(options);
  return absl::ErrnoToStatus(error.value(), absl::StrCat("deleting ", options.directory));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InProcessServer>> InProcessServer::Open(const JobConfig& job,
                                                                       bool create,
                                                                       absl::string_view task) {
  const fs::path parent = job.storage.directory;
  const std::string suffix =
      task.empty() ? "" : absl::StrCat("@", absl::StrReplaceAll(task, {{":", "-"}}));
  const fs::path folder = parent / absl::StrCat(job.name, suffix);
  if (create) RETURN_IF_ERROR(MakeParent(parent));
  std::error_code error;
  if (!create && !fs::exists(folder, error)) {
    if (error) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat("looking at ", folder.string()));
    }
    return absl::NotFoundError(
        absl::StrCat(folder.string(), ": no state of job '", job.name,
                     "' is there; train first, or name its directory by storage.directory"));
  }
  EngineOptions options;
  options.directory = folder.string();
  const int64_t budget = job.storage.memory_budget_bytes;
  options.memory_budget_bytes = budget > 0 ? budget : DefaultMemoryBudgetBytes();
  options.snapshot_interval = absl::Seconds(job.storage.snapshot_interval_seconds);
  ASSIGN_OR_RETURN(options.durability, DurabilityFromName(job.storage.durability));
  if (job.not_finite == "skip") options.not_finite = NotFinitePolicy::kSkip;
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Open(options));
  return std::make_unique<EngineServer>(std::move(engine), fs::path());
}

absl::StatusOr<std::unique_ptr<InProcessServer>> OpenCheckpoint(const JobConfig& job,
                                                                const std::string& folder,
                                                                const std::string& purpose) {
  const fs::path parent = job.storage.directory;
  const fs::path scratch = parent / absl::StrCat(".", job.name, ".", purpose);
  RETURN_IF_ERROR(MakeParent(parent));
  EngineOptions options;
  options.directory = scratch.string();
  options.durability = Durability::kOff;
  options.memory_budget_bytes = MemoryLimitBytes();
  // Rows that are too old by now belong to the checkpoint all the same.
  options.row_rules_interval = absl::InfiniteDuration();
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, OpenScratch(options));
  auto server = std::make_unique<EngineServer>(std::move(engine), scratch);
  ASSIGN_OR_RETURN(const std::unique_ptr<PsClient> client,
                   server->Connect({.job = job.name}, Deadline::In(kConnectTimeout)));
  JobConfig source = job;
  source.checkpoint.restore = folder;
  // First drops the job that a killed process left.
  RETURN_IF_ERROR(RestoreJob(*client, source, /*fresh=*/true));
  return server;
}

}  // namespace cairn
