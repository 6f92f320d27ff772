#include "worker/trainer/run/train_loop.h"

#include <algorithm>
#include <limits>

#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/trainer/steps/gradient_clipper.h"

namespace cairn {

TrainLoop::TrainLoop(const TrainLoopParts& parts, const RunStart& start)
    : parts_(parts),
      position_(start.position),
      end_epoch_(start.end_epoch),
      max_loads_(parts.job.data.max_steps == 0
                     ? std::numeric_limits<int64_t>::max()
                     : parts.job.data.max_steps - start.position.run_steps),
      pipeline_(&parts.client, &parts.model, &parts.formats, parts.job.strategy.pull_ahead_steps,
                parts.call_timeout, parts.meter),
      guard_(parts.job, parts.task),
      bar_(parts.task) {}

absl::Status TrainLoop::Run() {
  started_ = last_step_end_ = MonotonicNow();
  if (!bar_.enabled()) {
    lines_.emplace(parts_.task, absl::Seconds(parts_.job.output.progress_seconds), started_);
  }
  const absl::Status trained = DoSteps();
  RETURN_IF_ERROR(parts_.resident == nullptr ? trained : EndResident(trained));
  seconds_ = absl::ToDoubleSeconds(MonotonicNow() - started_ - paused_);
  CAIRN_CRASH_POINT("run: last step pushed");
  // EndSteps first: the others must not wait for a step of this worker while it announces the end
  // of its run.
  if (parts_.synchronous) {
    RETURN_IF_ERROR(parts_.client.EndSteps(Deadline::In(parts_.call_timeout)));
  }
  CAIRN_CRASH_POINT("run: steps ended");
  // The last push announces the end of the run; a worker without a row has no push, and announces
  // it separately.
  const bool told = steps_done_ > 0 && !parts_.synchronous && parts_.resident == nullptr;
  if (!stopping_ && !told) {
    position_.finished = true;
    position_.at_max_steps = loaded_ >= max_loads_;
    RETURN_IF_ERROR(AnnounceEnd());
  }
  CAIRN_CRASH_POINT("run: end announced");
  return absl::OkStatus();
}

absl::Status TrainLoop::DoSteps() {
  for (int64_t number = 0; number < pipeline_.lookahead(); ++number) {
    RETURN_IF_ERROR(Load(number));
    if (number < loaded_ && parts_.resident == nullptr) RETURN_IF_ERROR(pipeline_.Pull(number));
  }
  for (int64_t number = 0; number < loaded_ && !stopping_; ++number) {
    RETURN_IF_ERROR(DoStep(number));
    if (stored_ || parts_.resident != nullptr) continue;
    RETURN_IF_ERROR(pipeline_.WaitPushed(number));
    NoteStored();
  }
  return pipeline_.WaitPushed(steps_done_ - 1);
}

void TrainLoop::NoteStored() {
  if (!stored_ && parts_.stored_first != nullptr) parts_.stored_first();
  stored_ = true;
}

absl::Status TrainLoop::WriteBack(bool wait) {
  std::string position;
  position_.EncodeTo(&position);
  RETURN_IF_ERROR(parts_.resident->WriteBack(position, wait));
  if (wait) NoteStored();
  return absl::OkStatus();
}

absl::Status TrainLoop::EndResident(const absl::Status& trained) {
  if (parts_.resident->failed() || steps_done_ == 0) return trained;
  const absl::Status written = WriteBack(/*wait=*/true);
  if (trained.ok()) return written;
  if (!written.ok()) LOG(WARNING) << "after the last step: " << written.message();
  return trained;
}

absl::Status TrainLoop::AnnounceEnd() {
  std::string position;
  position_.EncodeTo(&position);
  RosterGradient gradient;
  return parts_.client.Push({parts_.roster_entry.Source(MonotonicNow(), 1, &gradient)}, position,
                            Deadline::In(parts_.call_timeout));
}

absl::StatusOr<bool> TrainLoop::Read(int64_t number) {
  Step& step = pipeline_.step(number);
  if (parts_.resident != nullptr) step.state.resident = &parts_.resident->variables();
  if (parts_.lockstep != nullptr) {
    return parts_.lockstep->Load(number < max_loads_, parts_.reader, &step);
  }
  if (input_ended_ || number >= max_loads_) return false;
  const absl::StatusOr<bool> more = parts_.reader.Next(&step.batch);
  if (!more.ok()) return AsBadInput(Annotate(more.status(), "data.train"));
  if (!*more) return false;
  const absl::Status planned = parts_.model.Plan(step.batch, &step.state);
  if (!planned.ok()) return AsBadInput(Annotate(planned, "data.train"));
  return true;
}

absl::Status TrainLoop::Load(int64_t number) {
  const absl::StatusOr<bool> more = Read(number);
  if (!more.ok()) return more.status();
  input_ended_ |= !*more;
  if (*more) loaded_ = number + 1;
  return absl::OkStatus();
}

bool TrainLoop::IsOfOthers(const absl::Status& status) const {
  return parts_.lockstep != nullptr && (absl::IsAborted(status) || absl::IsUnavailable(status));
}

absl::Status TrainLoop::DoStep(int64_t number) {
  RETURN_IF_ERROR(pipeline_.WaitPulled(number));
  Step& step = pipeline_.step(number);
  const absl::StatusOr<double> trained = parts_.model.Train(step.batch, &step.state);
  if (!trained.ok() && parts_.resident != nullptr && !IsOfOthers(trained.status())) {
    parts_.resident->NoteFailure();
  }
  if (!trained.ok() && parts_.lockstep != nullptr) return parts_.lockstep->Advise(trained.status());
  RETURN_IF_ERROR(trained.status());
  double loss = *trained;
  if (parts_.lockstep != nullptr) {
    parts_.lockstep->Trained(loss, step.batch.rows);
    RETURN_IF_ERROR(parts_.lockstep->Reduce(&step));
  }
  ClipGradients(parts_.job, &step.state);
  const int64_t next_pull = number + pipeline_.lookahead();
  RETURN_IF_ERROR(Load(next_pull));
  int64_t rows = step.batch.rows;
  if (parts_.lockstep != nullptr) {
    rows = step.joint.rows;
    loss = parts_.lockstep->loss_sum() / static_cast<double>(rows);
  }

  const bool finishes = number + 1 == loaded_;
  RETURN_IF_ERROR(guard_.Check(position_.total_steps + 1, loss, finishes));
  stopping_ = !finishes && parts_.stop_requested();
  if (parts_.resident != nullptr) {
    RETURN_IF_ERROR(parts_.resident->Update(step.state));
    Advance(number);
    RETURN_IF_ERROR(Record(number, loss, rows, finishes || stopping_));
    return finishes ? absl::OkStatus() : DoWhatIsDue(number);
  }
  PreparePush(number, finishes);
  // Earlier pushes may be dropped as well.
  if (finishes) RETURN_IF_ERROR(pipeline_.WaitPushed(number - 1));
  const int64_t dropped = finishes ? parts_.client.counters().pushes_dropped : 0;
  const bool pulls = !stopping_ && next_pull < loaded_;
  RETURN_IF_ERROR(pipeline_.Exchange(number, pulls ? next_pull : -1));
  RETURN_IF_ERROR(Record(number, loss, rows, finishes || stopping_));
  if (!finishes) return DoWhatIsDue(number);
  RETURN_IF_ERROR(pipeline_.WaitPushed(number));
  if (parts_.synchronous) return absl::OkStatus();
  // If the last push held NaN, it was dropped, and the announced end with it.
  const bool was_dropped = parts_.client.counters().pushes_dropped > dropped;
  return was_dropped ? AnnounceEnd() : absl::OkStatus();
}

void TrainLoop::Advance(int64_t number) {
  const Batch& batch = pipeline_.step(number).batch;
  position_.epoch = batch.epoch;
  position_.row = batch.next_row;
  ++position_.run_steps;
  ++position_.total_steps;
}

void TrainLoop::PreparePush(int64_t number, bool finishes) {
  Step& step = pipeline_.step(number);
  Advance(number);
  position_.finished = finishes && !parts_.synchronous;
  position_.at_max_steps = position_.finished && loaded_ >= max_loads_;
  position_.EncodeTo(&step.position);
  ListSources(parts_.model, step.state, &step.sources);
  parts_.formats.SetSources(absl::MakeSpan(step.sources));
  if (parts_.synchronous || !finishes) return;
  step.sources.push_back(parts_.roster_entry.Source(MonotonicNow(), 1, &step.roster_gradient));
}

absl::Status TrainLoop::Record(int64_t number, double loss, int64_t rows, bool last) {
  const Batch& batch = pipeline_.step(number).batch;
  ++steps_done_;
  examples_ += batch.rows;
  recent_loss_.Add(loss);
  const absl::Duration now = MonotonicNow();
  const bool finishes = last && !stopping_;
  const Progress progress = estimate_.Update(finishes ? 1 : RunShare(batch), now);
  if (parts_.meter != nullptr) {
    parts_.meter->StepDone(batch.rows, recent_loss_.mean(), now - last_step_end_, progress);
    last_step_end_ = now;
  }
  const double seconds = absl::ToDoubleSeconds(now - started_ - paused_);
  RETURN_IF_ERROR(parts_.output.StepDone({position_.total_steps, loss, rows, seconds}, last,
                                         [this] { return parts_.client.staleness(); }));
  ShowProgress(loss, progress, now);
  return absl::OkStatus();
}

void TrainLoop::ShowProgress(double loss, const Progress& progress, absl::Duration now) {
  if (bar_.Due(now)) {
    bar_.Draw({.step = position_.total_steps,
               .rows = examples_,
               .loss = loss,
               .staleness_mean = parts_.client.staleness().mean,
               .progress = progress},
              now);
  }
  if (!lines_.has_value() || !lines_->Due(now)) return;
  LOG(INFO) << lines_->Next({.step = position_.total_steps,
                             .rows = examples_,
                             .loss = recent_loss_.mean().value_or(loss),
                             .progress = progress},
                            now);
}

double TrainLoop::RunShare(const Batch& batch) const {
  const double epochs =
      static_cast<double>(batch.epoch - position_.first_epoch) + batch.epoch_share;
  double share = epochs / static_cast<double>(end_epoch_ - position_.first_epoch);
  if (parts_.job.data.max_steps > 0) {
    share = std::max(share, static_cast<double>(position_.run_steps) /
                                static_cast<double>(parts_.job.data.max_steps));
  }
  return std::min(share, 1.0);
}

bool TrainLoop::CheckpointDue() const {
  const int64_t every = parts_.job.checkpoint.every_steps;
  return every > 0 && position_.total_steps % every == 0;
}

bool TrainLoop::EvaluationDue() const {
  const int64_t every = parts_.job.evaluation.every_steps;
  return every > 0 && position_.total_steps % every == 0;
}

absl::Status TrainLoop::DoWhatIsDue(int64_t number) {
  const bool due = CheckpointDue() || EvaluationDue();
  if (parts_.resident != nullptr && (due || parts_.resident->Due(MonotonicNow()))) {
    RETURN_IF_ERROR(WriteBack(/*wait=*/due));
  }
  if (!due) return absl::OkStatus();
  const bool together = parts_.lockstep != nullptr;
  const bool evaluates = parts_.evaluator != nullptr && EvaluationDue() && !stopping_;
  const absl::Duration start = MonotonicNow();
  if (evaluates || together) RETURN_IF_ERROR(pipeline_.WaitPushed(number));
  const auto work = [&]() -> absl::Status {
    if (parts_.checkpointer != nullptr && CheckpointDue()) {
      parts_.checkpointer->Begin(position_.total_steps);
    }
    return evaluates ? Evaluate() : absl::OkStatus();
  };
  RETURN_IF_ERROR(together ? parts_.lockstep->Meanwhile(work) : work());
  if (EvaluationDue()) paused_ += MonotonicNow() - start;
  return absl::OkStatus();
}

absl::Status TrainLoop::Evaluate() {
  const absl::StatusOr<Evaluation> evaluated = parts_.evaluator->Evaluate();
  const bool together = parts_.lockstep != nullptr;
  if (absl::IsCancelled(evaluated.status()) && !(together && parts_.lockstep->lost())) {
    // Workers that train as one learn of the stop in their next step.
    stopping_ = !together;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Evaluation evaluation, evaluated);
  LOG(INFO) << "step " << position_.total_steps << ": " << EvaluationText(evaluation);
  return parts_.output.Evaluated(position_.total_steps, evaluation);
}

}  // namespace cairn
