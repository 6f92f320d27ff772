#include "worker/coordinator/cluster_coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/coordinator/coordinator_core.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

// Payload that marks a status made by WorkerLost.
constexpr absl::string_view kLostWorker = "cairn/lost_worker";

}  // namespace

absl::Status WorkerLost(absl::string_view why) {
  const std::string worker = absl::StrCat("/job:worker/task:", CurrentWorker().value_or(-1));
  absl::Status status = Unavailable(worker, ": ", why);
  status.SetPayload(kLostWorker, absl::Cord(worker));
  return status;
}

bool IsWorkerLost(const absl::Status& status) { return status.GetPayload(kLostWorker).has_value(); }

RemoteValue::State RemoteValue::state() const {
  const std::optional<absl::StatusOr<Value>> result = call_->result();
  if (!result) return State::kNotReady;
  return result->ok() ? State::kReady : State::kAborted;
}

absl::StatusOr<Value> RemoteValue::Fetch(Deadline deadline) const {
  if (!call_->WaitUntilFinished(deadline)) {
    return absl::DeadlineExceededError("fetch: the scheduled function has not ended yet");
  }
  return *call_->result();
}

std::shared_ptr<ClusterCoordinator> ClusterCoordinator::Of(ParameterServerStrategy& strategy,
                                                           CoordinatorOptions options) {
  absl::MutexLock lock(&strategy.mutex_);
  std::shared_ptr<ClusterCoordinator> coordinator = strategy.coordinator_.lock();
  if (coordinator == nullptr) {
    coordinator.reset(new ClusterCoordinator(strategy, std::move(options)));
    strategy.coordinator_ = coordinator;
  }
  return coordinator;
}

ClusterCoordinator::ClusterCoordinator(ParameterServerStrategy& strategy,
                                       CoordinatorOptions options)
    : strategy_(strategy), core_(std::make_shared<Core>(std::move(options), strategy)) {
  for (int32_t worker = 0; worker < strategy.worker_count(); ++worker) {
    const absl::Status started = CallCatching("the thread of a worker", [this, worker] {
      threads_.emplace_back([core = core_, worker] { core->Work(worker); });
    });
    if (!started.ok()) core_->LoseThread(worker, started);
  }
}

ClusterCoordinator::~ClusterCoordinator() {
  const int32_t running = core_->End();
  LOG_IF(WARNING, running > 0) << "coordinator: " << running
                               << " workers still run a function that was asked to stop "
                                  "(CurrentCancellation); their threads "
                                  "are left running";
  for (std::thread& thread : threads_) {
    if (running > 0 || thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

absl::StatusOr<RemoteValue> ClusterCoordinator::Schedule(ScheduledCall::Function function,
                                                         std::vector<Value> args) {
  if (function == nullptr) {
    return absl::InvalidArgumentError("schedule: found no function; give one that can be called");
  }
  auto call = std::make_shared<ScheduledCall>(std::move(function), std::move(args));
  RETURN_IF_ERROR(core_->Add(call));
  return RemoteValue(std::move(call));
}

absl::Status ClusterCoordinator::Join(Deadline deadline) { return core_->Join(deadline); }

absl::StatusOr<bool> ClusterCoordinator::Done() { return core_->Done(); }

absl::StatusOr<std::vector<Value>> ClusterCoordinator::Fetch(absl::Span<const RemoteValue> values,
                                                             Deadline deadline) const {
  std::vector<Value> fetched;
  for (const RemoteValue& value : values) {
    ASSIGN_OR_RETURN(fetched.emplace_back(), value.Fetch(deadline));
  }
  return fetched;
}

absl::StatusOr<std::shared_ptr<PerWorkerDataset>> ClusterCoordinator::CreatePerWorkerDataset(
    DatasetFactory factory) {
  return core_->MakeDataset(std::move(factory));
}

}  // namespace cairn
