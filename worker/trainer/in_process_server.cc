#include "worker/trainer/in_process_server.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/engine.h"

namespace cairn {
namespace {

class EngineServer : public InProcessServer {
 public:
  explicit EngineServer(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                    Deadline deadline) override {
    ClientOptions kept = options;
    kept.retained_bytes = 0;  // the engine ends with this process, never without it
    return PsClient::ConnectInProcess(kept, {&engine_->service()}, deadline);
  }
  absl::Status Close() override { return engine_->Close(); }

 private:
  const std::unique_ptr<Engine> engine_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InProcessServer>> InProcessServer::Open(const JobConfig& job,
                                                                       bool create) {
  const std::filesystem::path parent = job.storage.directory;
  const std::filesystem::path folder = parent / job.name;
  std::error_code error;
  if (create) std::filesystem::create_directories(parent, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("making storage.directory ", parent.string()));
  }
  if (!create && !std::filesystem::exists(folder, error)) {
    return absl::NotFoundError(
        absl::StrCat(folder.string(), ": no state of job '", job.name,
                     "' is there; train first, or name its folder by storage.directory"));
  }
  EngineOptions options;
  options.directory = folder.string();
  options.snapshot_interval = absl::Seconds(job.storage.snapshot_interval_seconds);
  ASSIGN_OR_RETURN(options.durability, DurabilityFromName(job.storage.durability));
  if (job.not_finite == "skip") options.not_finite = NotFinitePolicy::kSkip;
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Open(options));
  return std::make_unique<EngineServer>(std::move(engine));
}

}  // namespace cairn
