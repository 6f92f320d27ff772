#include "ps_server/engine/engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/core/statistics.h"
#include "ps_server/engine/server_load.h"
#include "ps_server/persistence/untracked_memory.h"
#include "storage/checkpoint_note.h"
#include "storage/directory.h"

namespace cairn {
namespace {

// A corrupt store is not treated as an empty one: the error says how an operator starts with an
// empty one or from a checkpoint.
absl::Status WithRestoreAdvice(const absl::Status& status, const std::string& directory) {
  if (!absl::IsDataLoss(status)) return status;
  return DataLoss(status.message(), "; or ", RestoreAdvice(directory));
}

absl::Status CheckLimit(absl::string_view flag, int32_t value, int32_t highest) {
  if (value >= 1 && value <= highest) return absl::OkStatus();
  return InvalidArgument("--", flag, " is ", value, "; 1 to ", highest, " are allowed");
}

absl::Status CheckOptions(const EngineOptions& options) {
  if (options.server_count < 1 || options.server_index < 0 ||
      options.server_index >= options.server_count) {
    return InvalidArgument("server index ", options.server_index, " is outside [0, ",
                           options.server_count, ")");
  }
  if (options.snapshot_interval <= absl::ZeroDuration() || options.lease <= absl::ZeroDuration() ||
      options.memory_wait < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "snapshot interval and lease must be more than 0 seconds, the memory wait 0 or more");
  }
  if (options.logged_snapshot_bytes < 0) {
    return InvalidArgument("--logged_snapshot_bytes is ", options.logged_snapshot_bytes,
                           "; 0 or more are allowed");
  }
  RETURN_IF_ERROR(CheckLimit("max_jobs", options.max_jobs, kMaxJobsLimit));
  RETURN_IF_ERROR(CheckLimit("max_workers", options.max_workers, kMaxWorkersLimit));
  const int64_t store_bytes = StoreMemoryOf(options.memory_budget_bytes).total_bytes;
  if (options.memory_budget_bytes > store_bytes) return absl::OkStatus();
  return InvalidArgument("a memory budget of ", options.memory_budget_bytes,
                         " bytes is too small: the store alone takes ", store_bytes);
}

class ServingEngine final : public Engine {
 public:
  ServingEngine(const EngineOptions& options, std::unique_ptr<StripeStore> store)
      : core_(options, std::move(store)), service_(core_) {}
  ~ServingEngine() override { Close().IgnoreError(); }

  absl::Status Load();

  wire::ParameterServerIf& service() override { return service_; }
  absl::Status AcquireMessage(int64_t bytes) override {
    return core_.budget.Acquire(bytes, absl::StrCat("a message to ", core_.info.name));
  }
  void ReleaseMessage(int64_t bytes) override { core_.budget.Release(bytes); }
  EngineStatistics ReadStatistics(StatisticsDetail detail) const override {
    return core_.statistics.Read(detail);
  }
  absl::Status failure() const override { return core_.flusher.failure(); }
  int32_t live_workers() const override;
  absl::Status KeepRowRules() override { return core_.row_expirer.RunOnce(); }
  void CancelLongCalls() override { service_.CancelLongCalls(); }
  bool AnswersDrain() const override { return service_.AnswersDrain(); }
  absl::Status Close() override;

 private:
  ServerCore core_;
  Service service_;
  absl::Mutex close_mutex_;
  bool closed_ = false;  // guarded by close_mutex_, as is close_status_
  absl::Status close_status_;
};

absl::Status ServingEngine::Load() {
  const absl::Duration begin = MonotonicNow();
  const StoreMemory memory = StoreMemoryOf(core_.info.options.memory_budget_bytes);
  RETURN_IF_ERROR(core_.budget.Acquire(memory.total_bytes, "the store"));
  if (const absl::Status members = core_.members.Load(*core_.store); !members.ok()) {
    return Annotate(members, absl::StrCat("open ", core_.info.options.directory));
  }
  core_.evictor.ExpectLoad();
  const absl::StatusOr<int64_t> variables = LoadServer(core_.catalog, core_.moves, core_.budget);
  if (!variables.ok()) {
    return Annotate(variables.status(), absl::StrCat("open ", core_.info.options.directory));
  }
  LOG(INFO) << core_.info.name << " opened " << core_.info.options.directory << " (start "
            << core_.store->boot_count() << "): " << *variables << " variables, "
            << core_.budget.used_bytes() << " of " << core_.budget.limit_bytes()
            << " bytes of memory, in " << absl::FormatDuration(MonotonicNow() - begin);
  if (core_.info.applied_is_durable()) {
    LOG(WARNING) << core_.info.name
                 << " runs with durability off: pushes are kept in memory only and "
                 << "written at a clean exit";
  }
  if (core_.info.options.own_process &&
      core_.budget.limit_bytes() < UntrackedMemory::kMinBudgetBytes) {
    LOG(WARNING) << core_.info.name << " has a memory budget of " << core_.budget.limit_bytes()
                 << " bytes: below " << UntrackedMemory::kMinBudgetBytes
                 << " the program alone takes so much of it that more may be resident";
  }
  CAIRN_CRASH_POINT("start: loaded");
  RETURN_IF_ERROR(core_.flusher.Start());
  RETURN_IF_ERROR(core_.evictor.Start());
  return core_.row_expirer.Start();
}

int32_t ServingEngine::live_workers() const {
  int32_t live = 0;
  for (const auto& job : core_.registry.jobs()) {
    for (const auto& session : job->sessions()) live += session->leased() && !session->left();
  }
  return live;
}

absl::Status ServingEngine::Close() {
  absl::MutexLock lock(&close_mutex_);
  if (closed_) return close_status_;
  closed_ = true;
  CancelLongCalls();
  service_.Shut();
  CAIRN_CRASH_POINT("end: before the last epoch");
  core_.flusher.Stop();
  core_.row_expirer.Stop();
  core_.evictor.Stop();
  close_status_ = core_.flusher.Flush(Flusher::Reach::kSynced);
  if (close_status_.ok() && core_.info.applied_is_durable()) {
    close_status_ = core_.store->SetUnfinished(false);
  }
  const absl::Status closed = core_.store->Close();
  if (close_status_.ok()) close_status_ = closed;
  return close_status_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  const StoreMemory memory = StoreMemoryOf(options.memory_budget_bytes);
  absl::StatusOr<std::unique_ptr<StripeStore>> store = StripeStore::Open(
      {.directory = options.directory,
       .server_index = options.server_index,
       .block_cache_bytes = memory.block_cache_bytes,
       .write_buffer_bytes = memory.write_buffer_bytes,
       .logged_snapshot_bytes = static_cast<size_t>(options.logged_snapshot_bytes)});
  if (!store.ok()) return WithRestoreAdvice(store.status(), options.directory);
  auto engine = std::make_unique<ServingEngine>(options, *std::move(store));
  if (const absl::Status loaded = engine->Load(); !loaded.ok()) {
    return WithRestoreAdvice(loaded, options.directory);
  }
  return engine;
}

bool Engine::IsOpen(const std::string& directory) { return IsLocked(directory); }

}  // namespace cairn
