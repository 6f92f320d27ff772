#include "worker/client/impl/data_calls.h"

#include "common/status.h"
#include "thrift/errors.h"
#include "worker/client/delivery/position.h"

namespace cairn {

absl::Status DataCalls::Pull(absl::Span<const PullTarget> targets, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("pull", deadline));
  return PullAll(targets, 0, deadline);
}

void DataCalls::BeginStep(int64_t step, DataPlan& plan) const {
  if (step > 0) plan.BeginStep(step, deps_.options.consistency.mode == ConsistencyMode::kSsp);
}

absl::Status DataCalls::PullAll(absl::Span<const PullTarget> targets, int64_t step,
                                Deadline deadline) {
  while (true) {
    PlanPool::Lease plan(&deps_.plans);
    RETURN_IF_ERROR(deps_.planner.Pull(targets, &*plan));
    BeginStep(step, *plan);
    bool moved = false;
    const int64_t timeline = deps_.membership.described_timeline();
    const absl::Status status = Deliver(*plan, /*updates=*/false, nullptr, deadline, &moved);
    const bool again = ReasonOf(status) == wire::ErrorReason::TIMELINE_ENDED
                           ? deps_.membership.described_timeline() != timeline
                           : absl::IsUnavailable(status) && deps_.membership.Changed(deadline);
    if (!again) RETURN_IF_ERROR(status);
    if (!moved && !again) return absl::OkStatus();
    RETURN_IF_ERROR(deps_.gate.Check("pull", deadline, ClientGate::kRowsMove));
  }
}

absl::Status DataCalls::Push(absl::Span<const PushSource> sources, absl::string_view position,
                             absl::Span<const PullTarget> targets, bool begins_step,
                             Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("push", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  PlanPool::Lease plan(&deps_.plans);
  bool skip = false;
  RETURN_IF_ERROR(deps_.planner.Push(sources, &*plan, &skip));
  RETURN_IF_ERROR(deps_.planner.Pull(targets, &*plan));
  const int64_t step = begins_step ? deps_.clock.Next() : 0;
  BeginStep(step, *plan);
  bool moved = false;
  const bool updates = !skip && !sources.empty();
  RETURN_IF_ERROR(Deliver(*plan, updates, &position, deadline, &moved));
  if (!moved) return absl::OkStatus();
  const absl::Status pulled = PullAll(targets, step, deadline);
  return updates ? AfterUpdate(pulled) : pulled;
}

absl::Status DataCalls::Assign(absl::Span<const PushSource> sources, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("assign", deadline));
  PlanPool::Lease plan(&deps_.plans);
  RETURN_IF_ERROR(deps_.planner.Assign(sources, &*plan));
  bool moved = false;
  return Deliver(*plan, /*updates=*/true, nullptr, deadline, &moved);
}

absl::Status DataCalls::AssignTogether(absl::Span<const PushSource> sources,
                                       absl::string_view position, Deadline deadline) {
  RETURN_IF_ERROR(deps_.gate.Check("assign", deadline));
  RETURN_IF_ERROR(CheckUserPosition(position));
  PlanPool::Lease plan(&deps_.plans);
  RETURN_IF_ERROR(deps_.planner.Assign(sources, &*plan));
  (*plan).AssignTogether();
  bool moved = false;
  return Deliver(*plan, /*updates=*/true, &position, deadline, &moved);
}

absl::Status DataCalls::Deliver(DataPlan& plan, bool updates, const absl::string_view* position,
                                Deadline deadline, bool* moved) {
  const absl::Status status = deps_.deliverer.Deliver(plan, updates, position, deadline, moved);
  if (ReasonOf(status) == wire::ErrorReason::TIMELINE_ENDED) {
    deps_.membership.Describe(deadline).IgnoreError();  // so that a later call has current maps
  }
  RETURN_IF_ERROR(status);
  if (!*moved) plan.CopyRepeats();
  Count(plan);
  return absl::OkStatus();
}

void DataCalls::Count(const DataPlan& plan) {
  bytes_pushed_.fetch_add(plan.bytes_out(), std::memory_order_relaxed);
  bytes_pulled_.fetch_add(plan.bytes_in(), std::memory_order_relaxed);
}

}  // namespace cairn
