#include "worker/coordinator/coordinator_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/strategy/context.h"
#include "worker/strategy/context_stack.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

// A function that loses this many workers probably causes the losses.
constexpr int kMaxLosses = 100;

constexpr absl::string_view kNotRun =
    "the function was not run because another one failed first or the coordinator ended; schedule "
    "it again";
constexpr absl::string_view kStopped =
    "the function was cancelled while it ran because another one failed or the coordinator ended; "
    "schedule it again";

// The core whose functions this thread calls.
thread_local const void* core_of_this_thread = nullptr;

}  // namespace

ClusterCoordinator::Core::Core(CoordinatorOptions options, const ParameterServerStrategy& strategy)
    : options_(std::move(options)),
      strategy_(strategy.handle()),
      running_(static_cast<size_t>(strategy.worker_count())),
      threads_left_(strategy.worker_count()),
      workers_left_(strategy.worker_count()) {}

void ClusterCoordinator::Core::Work(int32_t worker) {
  core_of_this_thread = this;
  CallFunctions(worker);
  absl::MutexLock lock(&mutex_);
  --threads_left_;
  moved_.SignalAll();
}

void ClusterCoordinator::Core::CallFunctions(int32_t worker) {
  while (const Call call = Take(worker)) {
    const WorkerScope scope(worker, call->token());
    absl::StatusOr<Value> result = Value();
    // The scope ends with the function, without a look at the strategy: a function that was left to
    // its thread may outlive it.
    OutsideEveryScope([&] {
      EnterStrategy();
      result = call->Call();
      return absl::OkStatus();
    }).IgnoreError();
    if (!IsWorkerLost(result.status())) {
      Finish(worker, call, std::move(result));
    } else if (!Recover(worker, call, result.status())) {
      return;
    }
  }
}

void ClusterCoordinator::Core::EnterStrategy() {
  // The strategy outlives End, which cannot begin here; after End it may be gone.
  absl::MutexLock lock(&mutex_);
  if (ending_) return;
  if (Strategy* const strategy = strategy_.get()) ContextStack::OfThisThread().Enter(*strategy);
}

void ClusterCoordinator::Core::LoseThread(int32_t worker, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    --threads_left_;
  }
  Lose(worker, why);
}

void ClusterCoordinator::Core::Lose(int32_t worker, const absl::Status& why) {
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  LOG(ERROR) << "worker " << worker << " is no longer used: " << why;
  if (--workers_left_ > 0) return;
  dropped = Fail(
      Unavailable("every worker is lost; the last one was worker ", worker, ": ", why.message()));
}

absl::Status ClusterCoordinator::Core::Add(Call call) {
  const Deadline deadline = Deadline::In(options_.schedule_wait);
  absl::MutexLock lock(&mutex_);
  const bool in_time = Await(deadline, &Core::HasRoom);
  RETURN_IF_ERROR(TakeError());
  if (!in_time) {
    return DeadlineExceeded("schedule: ", queue_.size(),
                            " functions have been waiting for a worker for ",
                            absl::FormatDuration(options_.schedule_wait), ", at most ",
                            options_.queue_limit, " may; join first");
  }
  if (workers_left_ == 0) {
    return absl::UnavailableError("schedule: every worker is lost; make a new coordinator");
  }
  queue_.push_back(std::move(call));
  queued_.SignalAll();
  return absl::OkStatus();
}

absl::Status ClusterCoordinator::Core::Join(Deadline deadline) {
  if (core_of_this_thread == this) {
    return absl::FailedPreconditionError(
        "join: called in a scheduled function, which it would wait for; call it in the program's "
        "own thread");
  }
  absl::MutexLock lock(&mutex_);
  const bool in_time = Await(deadline, &Core::Idle);
  RETURN_IF_ERROR(TakeError());
  if (in_time) return absl::OkStatus();
  return DeadlineExceeded("join: ", Running(), " functions still run and ", queue_.size(),
                          " wait for a worker");
}

absl::StatusOr<bool> ClusterCoordinator::Core::Done() {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(TakeError());
  return Idle();
}

absl::StatusOr<std::shared_ptr<PerWorkerDataset>> ClusterCoordinator::Core::MakeDataset(
    DatasetFactory factory) {
  if (factory == nullptr) {
    return absl::InvalidArgumentError(
        "CreatePerWorkerDataset: found no function; give one that can be called");
  }
  const auto workers = static_cast<int32_t>(running_.size());
  const auto dataset = std::make_shared<PerWorkerDataset>(std::move(factory), workers);
  for (int32_t worker = 0; worker < workers; ++worker) RETURN_IF_ERROR(dataset->Make(worker));
  absl::MutexLock lock(&mutex_);
  std::erase_if(datasets_, [](const auto& earlier) { return earlier.expired(); });
  datasets_.push_back(dataset);
  return dataset;
}

int32_t ClusterCoordinator::Core::End() {
  const int32_t own = core_of_this_thread == this ? 1 : 0;
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  dropped = CancelAll();
  queued_.SignalAll();
  while (threads_left_ > own && !stop_deadline_.Expired()) {
    moved_.WaitUntil(&mutex_, stop_deadline_);
  }
  return threads_left_ - own;
}

ClusterCoordinator::Core::Call ClusterCoordinator::Core::Take(int32_t worker) {
  absl::MutexLock lock(&mutex_);
  // An idle worker waits as long as its coordinator lives.
  while (!ending_ && queue_.empty()) queued_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
  if (ending_) return nullptr;
  Call call = std::move(queue_.front());
  queue_.pop_front();
  running_[static_cast<size_t>(worker)] = call;
  moved_.SignalAll();
  return call;
}

bool ClusterCoordinator::Core::Return(int32_t worker, const Call& call) {
  moved_.SignalAll();
  Call& running = running_[static_cast<size_t>(worker)];
  if (running == call) {
    running = nullptr;
    return true;
  }
  --stopping_;
  return false;
}

void ClusterCoordinator::Core::Finish(int32_t worker, const Call& call,
                                      absl::StatusOr<Value> result) {
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  if (!Return(worker, call)) return;
  const absl::Status status = result.status();
  call->Finish(std::move(result));
  if (!status.ok()) dropped = Fail(status);
}

bool ClusterCoordinator::Core::Recover(int32_t worker, const Call& call, const absl::Status& loss) {
  LOG(WARNING) << "worker " << worker << " is lost (" << loss.message()
               << "); its function is scheduled again";
  if (++call->losses >= kMaxLosses) {
    // Without WorkerLost's mark: a function that returns this error has not lost its own worker.
    Finish(worker, call,
           absl::Status(loss.code(), absl::StrCat("a function lost ", call->losses,
                                                  " workers: ", loss.message())));
  } else {
    absl::MutexLock lock(&mutex_);
    if (Return(worker, call)) {
      queue_.push_front(call);
      queued_.SignalAll();
    }
  }
  if (options_.wait_for_worker) {
    const absl::Status ready =
        CatchExceptions("wait_for_worker", [&] { return options_.wait_for_worker(worker); });
    if (!ready.ok()) {
      Lose(worker, ready);
      return false;
    }
  }
  absl::Status made = RemakeDatasets(worker);
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  if (!made.ok()) dropped = Fail(std::move(made));
  return true;
}

absl::Status ClusterCoordinator::Core::RemakeDatasets(int32_t worker) {
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

ClusterCoordinator::Core::Dropped ClusterCoordinator::Core::CancelAll() {
  for (const Call& call : queue_) call->Cancel(kNotRun);
  Dropped dropped = std::move(queue_);
  queue_.clear();
  for (Call& call : running_) {
    if (call == nullptr) continue;
    call->Cancel(kStopped);
    dropped.push_back(std::move(call));
    call = nullptr;
    ++stopping_;
  }
  stop_deadline_ = Deadline::In(options_.cancel_wait);
  moved_.SignalAll();
  return dropped;
}

ClusterCoordinator::Core::Dropped ClusterCoordinator::Core::Fail(absl::Status error) {
  if (error_.ok()) error_ = std::move(error);
  return CancelAll();
}

absl::Status ClusterCoordinator::Core::TakeError() {
  const absl::Status error = std::exchange(error_, absl::OkStatus());
  if (error.ok() || stopping_ == 0) return error;
  absl::Status told(error.code(),
                    absl::StrCat(error.message(), " (", stopping_,
                                 " cancelled functions still run: they should return once "
                                 "CurrentCancellation() is cancelled)"));
  error.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) {
    told.SetPayload(type, payload);
  });
  return told;
}

int64_t ClusterCoordinator::Core::Running() const {
  return std::ranges::count_if(running_, [](const Call& call) { return call != nullptr; });
}

bool ClusterCoordinator::Core::Await(Deadline deadline, bool (Core::*ready)() const) {
  while (true) {
    const bool failed = !error_.ok();
    if (failed ? stopping_ == 0 : (this->*ready)()) return true;
    const Deadline until = failed ? Deadline::Earlier(deadline, stop_deadline_) : deadline;
    if (until.Expired()) return false;
    moved_.WaitUntil(&mutex_, until);
  }
}

}  // namespace cairn
