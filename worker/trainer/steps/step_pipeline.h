// The pipeline of a training run's steps to and from the servers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/client/ps_client.h"
#include "worker/input/batch.h"
#include "worker/models/model.h"
#include "worker/trainer/reports/run_meter.h"
#include "worker/trainer/steps/gradient_exchange.h"
#include "worker/trainer/steps/roster.h"
#include "worker/trainer/steps/wire_formats.h"

namespace cairn {

// One step: its rows, and the model's inputs and outputs for them.
struct Step {
  Batch batch;
  StepState state;
  std::vector<PullTarget> targets;  // the pull's targets: values in `state`
  std::vector<HeldValues> held;     // by variable: the values that `state` has from an earlier pull
  std::vector<PushSource> sources;  // the push's sources: gradients in `state`, and the trainer's
                                    // additions
  RosterGradient roster_gradient;
  std::string position;
  JointStep joint;  // for workers that train as one
};

// Lists the values of `state`, as planned for `model`, as targets of a pull.
void ListTargets(const Model& model, StepState* state, std::vector<PullTarget>* targets);
// Lists the gradients of `state` as sources of a push.
void ListSources(const Model& model, const StepState& state, std::vector<PushSource>* sources);

// Pushes step t's gradients, begins step t + 1 and pulls the values of step t + 1 + pull_ahead in
// one round trip, which waits for other workers as the job's consistency requires (PsClient::Step).
// With pull_ahead 0 the round trip runs in the caller's thread, and a step sees the pushes of all
// steps before it. Otherwise it runs in the pipeline's thread, in parallel with the computation of
// the steps between; if the system refuses the thread, in the caller's. Thread safety: none; one
// thread calls.
class StepPipeline {
 public:
  // `call_timeout` bounds each round trip. `client`, `model`, `formats` and `meter` outlive the
  // pipeline; `meter` may be null.
  StepPipeline(PsClient* client, const Model* model, const WireFormats* formats, int64_t pull_ahead,
               absl::Duration call_timeout, RunMeter* meter);
  ~StepPipeline();

  // How many steps are pulled before the first push.
  int64_t lookahead() const { return pull_ahead_ + 1; }
  // The storage of step `number` (0, 1, …). Step `number` + lookahead() may be loaded after the
  // wait for step `number`.
  Step& step(int64_t number) { return steps_[static_cast<size_t>(number) % steps_.size()]; }

  // Pulls step `number` without a push; step 0 begins the worker's first step.
  absl::Status Pull(int64_t number);
  // Pushes step `push`, whose sources are filled, and pulls step `pull`; -1: pulls nothing. Returns
  // an earlier error of the thread, if any.
  absl::Status Exchange(int64_t push, int64_t pull);
  // Waits until step `number` has its values.
  absl::Status WaitPulled(int64_t number) { return WaitPushed(number - lookahead()); }
  // Waits until every exchange up to that of step `push` is done.
  absl::Status WaitPushed(int64_t push);

 private:
  struct Work {
    int64_t push;
    int64_t pull;
  };
  absl::Status Do(const Work& work);
  // Sets the values that `next` holds of each variable. For variables of delta_pulls it takes over
  // the values of `done` (null: none), which are newer than its own and not needed there any more.
  void SetHeld(Step* done, Step* next) const;
  absl::Status CallServers(const Work& work);
  void Run();

  PsClient* const client_;
  const Model* const model_;
  const WireFormats* const formats_;
  const int64_t pull_ahead_;
  const absl::Duration call_timeout_;
  RunMeter* const meter_;
  std::vector<Step> steps_;

  absl::Mutex mutex_;
  absl::CondVar work_;  // queue_ is not empty, or stop_ is set
  absl::CondVar done_;  // pushed_ or status_ has changed
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t pushed_ ABSL_GUARDED_BY(mutex_) = -1;  // the last step whose exchange is done
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // none with pull_ahead 0, or if the system refuses it
};

}  // namespace cairn
