// Workers that train as one: the same step at the same time, each with rows of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/collective_group.h"
#include "worker/collective/communication_options.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/trainer/steps/gradient_exchange.h"
#include "worker/trainer/steps/step_pipeline.h"
#include "worker/trainer/steps/wait_for_workers.h"

namespace cairn {

// One worker's end. Every worker makes the same calls in the same order, each from one thread.
// Errors of every call, besides its own: kUnavailable, kDeadlineExceeded: a worker is gone or did
// not come within the timeout; kAborted: it gave up, and why. They name its rank and address.
// Nothing goes on after an error.
class Lockstep {
 public:
  // `communication.timeout` bounds each wait for the others. `group` and `model` outlive it.
  Lockstep(CollectiveGroup& group, const Model& model, const CommunicationOptions& communication,
           StopRequested stop_requested);

  CollectiveGroup& group() { return group_; }
  bool first() const { return group_.rank() == 0; }
  std::string PeerText(int rank) const;  // "worker 1 (10.0.0.2:7101)"

  // Reads and plans this worker's rows of the next step, if `wanted`: as all workers, or none, want
  // it. Workers go through epochs together: who has no more rows in this one takes none until all
  // others are at its end. The batch has the position of all after the step: the epoch, and the
  // rows that the furthest has read in it, which no other has more of. One small collective; what
  // Trained and the stop signal have to say travels in it. False: no worker has a row.
  absl::StatusOr<bool> Load(bool wanted, Reader& reader, Step* step);
  // Of a step that was computed: the mean loss over this worker's `rows`.
  void Trained(double loss, int64_t rows) { own_loss_ = loss * static_cast<double>(rows); }
  // Of the last step told by Trained before the last Load: the sum over the rows of all workers.
  double loss_sum() const { return loss_sum_; }
  // A worker was asked to stop, as of the last Load: the same on all. Its rank, or -1.
  int stopped_by() const { return stopped_by_; }

  // gradient_exchange.h.
  absl::Status Reduce(Step* step);

  // Runs `work` on every worker, in a thread of its own, and returns when all have done it, however
  // long that takes. An error of one is everybody's; work that can be cut short asks lost().
  absl::Status Meanwhile(absl::FunctionRef<absl::Status()> work);
  // Another worker is gone or has given up. From any thread.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  // Before this worker ends: until all others know the last result.
  absl::Status Leave();

 private:
  Deadline Limit() const { return Deadline::In(timeout_); }
  absl::Status Exchange(bool has, const Step& step);
  absl::StatusOr<bool> ReadOwn(bool wanted, Reader& reader, Step* step);
  absl::Status TakeNone(Step* step);
  absl::Span<const int64_t> HeaderOf(size_t worker) const;

  CollectiveGroup& group_;
  const Model& model_;
  const absl::Duration timeout_;
  const StopRequested stop_requested_;
  GradientExchange exchange_;

  std::atomic<bool> lost_ = false;
  bool ended_ = false;  // the reader has
  bool holds_ = false;  // held_ is of the next epoch
  Batch held_;
  double own_loss_ = 0;
  double loss_sum_ = 0;
  int stopped_by_ = -1;
  std::vector<int64_t> own_header_;
  std::vector<int64_t> headers_;  // of all workers, one after the other
};

}  // namespace cairn
