#include "worker/coordinator/cluster_coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

// Marks a status as WorkerLost's.
constexpr absl::string_view kLostWorker = "cairn/lost_worker";
// A function whose workers are lost this often takes them down itself.
constexpr int kMaxLosses = 100;

bool IsLoss(const absl::Status& status) { return status.GetPayload(kLostWorker).has_value(); }

}  // namespace

absl::Status WorkerLost(absl::string_view why) {
  const std::string worker = absl::StrCat("/job:worker/task:", CurrentWorker().value_or(-1));
  absl::Status status = absl::UnavailableError(absl::StrCat(worker, ": ", why));
  status.SetPayload(kLostWorker, absl::Cord(worker));
  return status;
}

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
    : strategy_(strategy), options_(std::move(options)), workers_left_(strategy.worker_count()) {
  for (int32_t worker = 0; worker < strategy.worker_count(); ++worker) {
    threads_.emplace_back([this, worker] { Work(worker); });
  }
}

ClusterCoordinator::~ClusterCoordinator() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    CancelQueued();
    queued_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<RemoteValue> ClusterCoordinator::Schedule(ScheduledCall::Function function,
                                                         std::vector<Value> args) {
  if (function == nullptr) {
    return absl::InvalidArgumentError("schedule: found no function; give one that can be called");
  }
  auto call = std::make_shared<ScheduledCall>(std::move(function), std::move(args));
  const Deadline deadline = Deadline::In(options_.schedule_wait);
  absl::MutexLock lock(&mutex_);
  while (!HasRoomOrError() && !deadline.Expired()) moved_.WaitUntil(&mutex_, deadline);
  const bool in_time = HasRoomOrError();
  RETURN_IF_ERROR(TakeError());
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("schedule: ", queue_.size(), " functions have been waiting for a worker for ",
                     absl::FormatDuration(options_.schedule_wait), ", at most ",
                     options_.queue_limit, " may; join first"));
  }
  if (workers_left_ == 0) {
    return absl::UnavailableError("schedule: every worker is lost; make a new coordinator");
  }
  queue_.push_back(call);
  queued_.SignalAll();
  return RemoteValue(std::move(call));
}

absl::Status ClusterCoordinator::Join(Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  while (!Idle() && !deadline.Expired()) moved_.WaitUntil(&mutex_, deadline);
  const bool in_time = Idle();
  RETURN_IF_ERROR(TakeError());
  if (in_time) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("join: ", running_, " functions still run and ",
                                                  queue_.size(), " wait for a worker"));
}

absl::StatusOr<bool> ClusterCoordinator::Done() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(TakeError());
  return Idle();
}

absl::StatusOr<std::vector<Value>> ClusterCoordinator::Fetch(absl::Span<const RemoteValue> values,
                                                             Deadline deadline) const {
  std::vector<Value> fetched;
  for (const RemoteValue& value : values) {
    ASSIGN_OR_RETURN(Value one, value.Fetch(deadline));
    fetched.push_back(std::move(one));
  }
  return fetched;
}

absl::StatusOr<std::shared_ptr<PerWorkerDataset>> ClusterCoordinator::CreatePerWorkerDataset(
    DatasetFactory factory) {
  const auto dataset =
      std::make_shared<PerWorkerDataset>(std::move(factory), strategy_.worker_count());
  for (int32_t worker = 0; worker < strategy_.worker_count(); ++worker) {
    RETURN_IF_ERROR(dataset->Make(worker));
  }
  absl::MutexLock lock(&mutex_);
  datasets_.push_back(dataset);
  return dataset;
}

void ClusterCoordinator::Work(int32_t worker) {
  const WorkerScope scope(worker);
  std::shared_ptr<ScheduledCall> call;
  while (Take(&call)) {
    absl::StatusOr<Value> result = call->Call();
    if (!result.ok() && IsLoss(result.status())) {
      if (!Recover(worker, call, result.status())) return;
      continue;
    }
    Finish(call, std::move(result));
  }
}

bool ClusterCoordinator::Take(std::shared_ptr<ScheduledCall>* call) {
  absl::MutexLock lock(&mutex_);
  // An idle worker waits for work as long as its coordinator lives.
  while (!ending_ && queue_.empty()) queued_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
  if (ending_) return false;
  *call = std::move(queue_.front());
  queue_.pop_front();
  ++running_;
  moved_.SignalAll();
  return true;
}

void ClusterCoordinator::Finish(const std::shared_ptr<ScheduledCall>& call,
                                absl::StatusOr<Value> result) {
  const absl::Status status = result.status();
  call->Finish(std::move(result));
  absl::MutexLock lock(&mutex_);
  --running_;
  if (!status.ok()) Fail(status);
  moved_.SignalAll();
}

bool ClusterCoordinator::Recover(int32_t worker, const std::shared_ptr<ScheduledCall>& call,
                                 const absl::Status& loss) {
  LOG(WARNING) << "worker " << worker << " is lost (" << loss.message()
               << "); its function is scheduled again";
  if (++call->losses >= kMaxLosses) {
    Finish(call, Annotate(loss, absl::StrCat("a function lost ", call->losses, " workers")));
  } else {
    absl::MutexLock lock(&mutex_);
    --running_;
    if (ending_ || !error_.ok()) {
      call->Finish(absl::CancelledError("the worker was lost, and another function failed"));
    } else {
      queue_.push_front(call);
      queued_.SignalAll();
    }
    moved_.SignalAll();
  }
  absl::Status ready;
  if (options_.wait_for_worker) ready = options_.wait_for_worker(worker);
  if (ready.ok()) {
    const absl::Status made = MakeDatasets(worker);
    if (made.ok()) return true;
    absl::MutexLock lock(&mutex_);
    Fail(made);
    return true;
  }
  absl::MutexLock lock(&mutex_);
  LOG(ERROR) << "worker " << worker << " does not come back: " << ready;
  if (--workers_left_ == 0) {
    Fail(absl::UnavailableError(absl::StrCat("every worker is lost; the last to go was worker ",
                                             worker, ": ", ready.message())));
  }
  return false;
}

absl::Status ClusterCoordinator::MakeDatasets(int32_t worker) {
  std::vector<std::shared_ptr<PerWorkerDataset>> datasets;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::weak_ptr<PerWorkerDataset>& dataset : datasets_) {
      if (auto live = dataset.lock()) datasets.push_back(std::move(live));
    }
  }
  for (const auto& dataset : datasets) RETURN_IF_ERROR(dataset->Make(worker));
  return absl::OkStatus();
}

void ClusterCoordinator::CancelQueued() {
  for (const std::shared_ptr<ScheduledCall>& call : queue_) {
    call->Finish(absl::CancelledError(
        "the function was not run, for another one failed first or the coordinator ended; "
        "schedule it again"));
  }
  queue_.clear();
  moved_.SignalAll();
}

void ClusterCoordinator::Fail(absl::Status error) {
  CancelQueued();
  if (error_.ok()) error_ = std::move(error);
}

absl::Status ClusterCoordinator::TakeError() {
  absl::Status error = std::move(error_);
  error_ = absl::OkStatus();
  return error;
}

}  // namespace cairn
