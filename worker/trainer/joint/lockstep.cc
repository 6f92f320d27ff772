#include "worker/trainer/joint/lockstep.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "common/exit_status.h"
#include "common/monotonic_cond_var.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "worker/input/row_source.h"

namespace cairn {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Minutes(1);

// The words of a worker's header for its next step, in this order, followed by the number of rows
// of each variable for which it will have a gradient.
enum Word : size_t { kHas, kStops, kRows, kEpoch, kNextRow, kLossOfLast, kFixedWords };

// Empties the batch but keeps its buffers.
void Clear(Batch* batch) {
  ClearBatch(batch);
  batch->epoch_share = 1;
}

absl::Status Advised(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "; restart every worker: they continue from the newest state "
                                   "among them"));
}

}  // namespace

Lockstep::Lockstep(CollectiveGroup& group, const Model& model,
                   const CommunicationOptions& communication, StopRequested stop_requested)
    : group_(group),
      model_(model),
      timeout_(communication.timeout.value_or(kDefaultTimeout)),
      stop_requested_(std::move(stop_requested)),
      exchange_(group, model.variables(), communication) {}

std::string Lockstep::PeerText(int rank) const {
  return absl::StrCat("worker ", rank, " (", group_.peer(rank), ")");
}

absl::Span<const int64_t> Lockstep::HeaderOf(size_t worker) const {
  return absl::MakeConstSpan(headers_).subspan(worker * own_header_.size(), own_header_.size());
}

absl::Status Lockstep::Exchange(bool has, const Step& step) {
  const size_t variables = model_.variables().size();
  own_header_.assign(kFixedWords + variables, 0);
  own_header_[kHas] = has ? 1 : 0;
  own_header_[kStops] = stop_requested_() ? 1 : 0;
  own_header_[kLossOfLast] = absl::bit_cast<int64_t>(own_loss_);
  if (has) {
    own_header_[kRows] = step.batch.rows;
    own_header_[kEpoch] = step.batch.epoch;
    own_header_[kNextRow] = step.batch.next_row;
    for (size_t v = 0; v < variables; ++v) {
      const VariableUse& use = step.state.uses[v];
      own_header_[kFixedWords + v] =
          use.part == Part::kWhole ? JointStep::kWhole : static_cast<int64_t>(use.ids.size());
    }
  }
  const auto words = static_cast<int64_t>(own_header_.size());
  headers_.resize(own_header_.size() * static_cast<size_t>(group_.size()));
  return Advised(group_.AllGather({DType::kInt64, own_header_.data(), words},
                                  {DType::kInt64, headers_.data(), words * group_.size()},
                                  Limit()));
}

absl::Status Lockstep::TakeNone(Step* step) {
  Clear(&step->batch);
  return model_.Plan(step->batch, &step->state);
}

absl::StatusOr<bool> Lockstep::ReadOwn(bool wanted, Reader& reader, Step* step) {
  bool has = holds_ && wanted;
  if (has) {
    std::swap(step->batch, held_);
    holds_ = false;
  } else if (wanted && !ended_) {
    ASSIGN_OR_RETURN(has, reader.Next(&step->batch));
    ended_ = !has;
  }
  if (has) RETURN_IF_ERROR(model_.Plan(step->batch, &step->state));
  return has;
}

absl::StatusOr<bool> Lockstep::Load(bool wanted, Reader& reader, Step* step) {
  const absl::StatusOr<bool> read = ReadOwn(wanted, reader, step);
  if (!read.ok()) return AsBadInput(Annotate(read.status(), "data.train"));
  const bool has = *read;
  RETURN_IF_ERROR(Exchange(has, *step));

  const auto workers = static_cast<size_t>(group_.size());
  bool any = false;
  int64_t epoch = 0;
  loss_sum_ = 0;
  own_loss_ = 0;
  for (size_t worker = 0; worker < workers; ++worker) {
    const absl::Span<const int64_t> header = HeaderOf(worker);
    loss_sum_ += absl::bit_cast<double>(header[kLossOfLast]);
    if (header[kStops] != 0 && stopped_by_ < 0) stopped_by_ = static_cast<int>(worker);
    if (header[kHas] == 0) continue;
    epoch = any ? std::min(epoch, header[kEpoch]) : header[kEpoch];
    any = true;
  }
  if (!any) return false;

  JointStep& joint = step->joint;
  joint.rows = 0;
  joint.worker_rows.assign(workers, 0);
  joint.worker_ids.clear();
  int64_t next_row = 0;
  for (size_t worker = 0; worker < workers; ++worker) {
    const absl::Span<const int64_t> header = HeaderOf(worker);
    const bool takes_part = header[kHas] != 0 && header[kEpoch] == epoch;
    for (const int64_t ids : header.subspan(kFixedWords)) {
      joint.worker_ids.push_back(takes_part ? ids : 0);
    }
    if (!takes_part) continue;
    joint.worker_rows[worker] = header[kRows];
    joint.rows += header[kRows];
    next_row = std::max(next_row, header[kNextRow]);
  }
  if (joint.worker_rows[static_cast<size_t>(group_.rank())] == 0) {
    holds_ = holds_ || has;
    if (has) std::swap(step->batch, held_);
    RETURN_IF_ERROR(TakeNone(step));
  }
  step->state.joint_rows = joint.rows;
  step->batch.epoch = epoch;
  step->batch.next_row = next_row;
  return true;
}

absl::Status Lockstep::Reduce(Step* step) {
  return Advised(exchange_.Reduce(step->joint, &step->state, timeout_));
}

absl::Status Lockstep::Advise(const absl::Status& status) const {
  return group_.usable().ok() ? status : Advised(status);
}

absl::Status Lockstep::Meanwhile(absl::FunctionRef<absl::Status()> work) {
  // The interval at which a busy worker shows the others that it is still running.
  const absl::Duration longest = std::min(absl::Milliseconds(200), timeout_ / 4);
  absl::Status own, others;
  StopFlag done;
  absl::StatusOr<std::thread> thread = StartThread([&] {
    own = work();
    done.Stop();
  });
  if (!thread.ok()) {
    own = thread.status();
    done.Stop();
  }
  absl::Duration interval = absl::Milliseconds(1);
  for (int64_t busy = 1; busy > 0;) {
    busy = done.WaitFor(interval) ? 0 : 1;
    if (busy == 0 && !own.ok()) break;
    others = group_.AllReduce(ReduceOp::kSum, MutableBuffer{DType::kInt64, &busy, 1}, Limit());
    lost_ = !others.ok();
    if (lost()) break;
    interval = std::min(2 * interval, longest);
  }
  if (thread.ok()) thread->join();
  if (!others.ok()) return Advised(others);
  group_.Abort(own);
  return own;
}

absl::Status Lockstep::Leave() { return Advised(group_.Barrier(Limit())); }

}  // namespace cairn
