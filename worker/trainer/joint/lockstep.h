// Workers that train as one: the same step at the same time, each with its own rows.
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
// Every call may return, besides its own errors: kUnavailable, kDeadlineExceeded: a worker is gone
// or did not call within the timeout; kAborted: a worker gave up, and why. They name its rank and
// address. After an error the object is unusable.
class Lockstep {
 public:
  // `communication.timeout` bounds each wait for the others. `group` and `model` outlive it.
  Lockstep(CollectiveGroup& group, const Model& model, const CommunicationOptions& communication,
           StopRequested stop_requested);

  CollectiveGroup& group() { return group_; }
  bool first() const { return group_.rank() == 0; }
  std::string PeerText(int rank) const;  // "worker 1 (10.0.0.2:7101)"

  // Reads and plans this worker's rows of the next step, if `wanted`, which must be the same on all
  // workers. Workers go through epochs together: a worker that has read all its rows of an epoch
  // takes none until all others have reached its end. The batch gets the position of all workers
  // after the step: the epoch, and the highest row that a worker has read in it. It costs one small
  // collective, which also carries Trained's loss and the stop signal. False: no worker has a row.
  absl::StatusOr<bool> Load(bool wanted, Reader& reader, Step* step);
  // Reports a computed step: the mean loss over this worker's `rows`.
  void Trained(double loss, int64_t rows) { own_loss_ = loss * static_cast<double>(rows); }
  // For the last step reported by Trained before the last Load: the sum of losses over the rows of
  // all workers.
  double loss_sum() const { return loss_sum_; }
  // The rank of a worker that was asked to stop, or -1, as of the last Load; the same on all
  // workers.
  int stopped_by() const { return stopped_by_; }

  // See gradient_exchange.h.
  absl::Status Reduce(Step* step);
  // An error of a step, with the advice of this class' errors if a worker is gone or has given up.
  absl::Status Advise(const absl::Status& status) const;

  // Runs `work` on every worker, in a separate thread, and returns when all have finished it,
  // however long that takes. Every worker returns an error of any of them; interruptible work
  // checks lost().
  absl::Status Meanwhile(absl::FunctionRef<absl::Status()> work);
  // Another worker is gone or has given up. May be called from any thread.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  // Call before this worker ends: waits until all others know the last result.
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
  bool ended_ = false;  // the reader is at its end
  bool holds_ = false;  // held_ belongs to the next epoch
  Batch held_;
  double own_loss_ = 0;
  double loss_sum_ = 0;
  int stopped_by_ = -1;
  std::vector<int64_t> own_header_;
  std::vector<int64_t> headers_;  // all workers' headers, concatenated
};

}  // namespace cairn
