#include "worker/trainer/steps/step_pipeline.h"

#include <utility>

#include "common/deadline.h"
#include "common/log.h"
#include "common/start_thread.h"

namespace cairn {

void ListTargets(const Model& model, StepState* state, std::vector<PullTarget>* targets) {
  targets->clear();
  for (size_t i = 0; i < state->uses.size(); ++i) {
    VariableUse& use = state->uses[i];
    targets->push_back({.variable = model.variables()[i].name,
                        .part = use.part,
                        .ids = use.ids,
                        .out = AsWritableBytes(absl::MakeSpan(use.values))});
  }
}

void ListSources(const Model& model, const StepState& state, std::vector<PushSource>* sources) {
  sources->clear();
  for (size_t i = 0; i < state.uses.size(); ++i) {
    const VariableUse& use = state.uses[i];
    sources->push_back({.variable = model.variables()[i].name,
                        .part = use.part,
                        .ids = use.ids,
                        .values = AsBytes(absl::MakeConstSpan(use.gradient))});
  }
}

StepPipeline::StepPipeline(PsClient* client, const Model* model, const WireFormats* formats,
                           int64_t pull_ahead, absl::Duration call_timeout, RunMeter* meter)
    : client_(client),
      model_(model),
      formats_(formats),
      pull_ahead_(pull_ahead),
      call_timeout_(call_timeout),
      meter_(meter),
      // While step t computes, the exchanges back to step t - lookahead + 1 may be in flight, and
      // steps up to t + lookahead are loaded.
      steps_(static_cast<size_t>(2 * lookahead() + 1)) {
  if (pull_ahead_ == 0) return;
  absl::StatusOr<std::thread> thread = StartThread([this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    LOG(WARNING) << "steps wait for their own pushes and pulls: " << thread.status().message();
  }
}

StepPipeline::~StepPipeline() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    work_.Signal();
  }
  thread_.join();
}

absl::Status StepPipeline::Do(const Work& work) {
  const absl::Duration begin = MonotonicNow();
  absl::Status status = CallServers(work);
  if (meter_ != nullptr) meter_->ExchangeDone(MonotonicNow() - begin);
  return status;
}

void StepPipeline::SetHeld(Step* done, Step* next) const {
  next->held.resize(next->state.uses.size());
  for (size_t i = 0; i < next->held.size(); ++i) {
    VariableUse& use = next->state.uses[i];
    if (!formats_->delta_pulls(i)) continue;
    if (use.part != Part::kWhole) {
      next->held[i].Clear();
      continue;
    }
    if (done != nullptr && done->state.uses[i].part == Part::kWhole) {
      std::swap(use.values, done->state.uses[i].values);
      std::swap(next->held[i], done->held[i]);
    }
    PullTarget& target = next->targets[i];
    target.out = AsWritableBytes(absl::MakeSpan(use.values));
    target.held = &next->held[i];
  }
}

absl::Status StepPipeline::CallServers(const Work& work) {
  const Deadline deadline = Deadline::In(call_timeout_);
  if (work.pull >= 0) {
    Step& next = step(work.pull);
    ListTargets(*model_, &next.state, &next.targets);
    SetHeld(work.push < 0 ? nullptr : &step(work.push), &next);
    formats_->SetTargets(absl::MakeSpan(next.targets));
    if (work.push < 0) {
      return work.pull == 0 ? client_->Step({}, "", next.targets, deadline)
                            : client_->Pull(next.targets, deadline);
    }
    Step& done = step(work.push);
    return client_->Step(done.sources, done.position, next.targets, deadline, done.batch.rows);
  }
  Step& done = step(work.push);
  return client_->EndStep(done.sources, done.position, done.batch.rows, deadline);
}

absl::Status StepPipeline::Pull(int64_t number) { return Do({-1, number}); }

absl::Status StepPipeline::Exchange(int64_t push, int64_t pull) {
  if (!thread_.joinable()) return Do({push, pull});
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  queue_.push_back({push, pull});
  work_.Signal();
  return absl::OkStatus();
}

absl::Status StepPipeline::WaitPushed(int64_t push) {
  if (!thread_.joinable()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  // This wait ends: round trips of the thread have deadlines, and its first error ends all waits.
  while (pushed_ < push && status_.ok()) done_.Wait(&mutex_);
  return status_;
}

void StepPipeline::Run() {
  for (;;) {
    Work work{};
    {
      absl::MutexLock lock(&mutex_);
      while (queue_.empty() && !stop_) work_.Wait(&mutex_);
      if (stop_) return;
      work = queue_.front();
      queue_.pop_front();
    }
    const absl::Status status = Do(work);
    absl::MutexLock lock(&mutex_);
    done_.Signal();
    status_ = status;
    if (!status.ok()) return;
    pushed_ = work.push;
  }
}

}  // namespace cairn
