// Pulls, pushes and assigns: plans a call, delivers the plan, and writes replies to the caller's
// memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/moves/deliverer.h"
#include "worker/client/moves/membership.h"
#include "worker/client/plan/call_planner.h"
#include "worker/client/plan/plan_pool.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class DataCalls {
 public:
  // The client's parts that data calls need. All outlive this.
  struct Dependencies {
    const ClientOptions& options;
    ClientGate& gate;
    StepClock& clock;
    CallPlanner& planner;
    PlanPool& plans;
    Deliverer& deliverer;
    Membership& membership;
  };
  explicit DataCalls(const Dependencies& deps) : deps_(deps) {}

  absl::Status Pull(absl::Span<const PullTarget> targets, Deadline deadline);
  // PsClient::PushPull, or PsClient::Step with `begins_step`.
  absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, bool begins_step, Deadline deadline);
  absl::Status Assign(absl::Span<const PushSource> sources, Deadline deadline);
  absl::Status AssignTogether(absl::Span<const PushSource> sources, absl::string_view position,
                              Deadline deadline);
  // Deliverer::Deliver; adds the plan's bytes to the counters.
  absl::Status Deliver(DataPlan& plan, bool updates, const absl::string_view* position,
                       Deadline deadline, bool* moved);
  void Count(const DataPlan& plan);

  int64_t bytes_pushed() const { return bytes_pushed_.load(std::memory_order_relaxed); }
  int64_t bytes_pulled() const { return bytes_pulled_.load(std::memory_order_relaxed); }

 private:
  // Repeats the pull until no rows move during it. `step` above 0 begins that step.
  absl::Status PullAll(absl::Span<const PullTarget> targets, int64_t step, Deadline deadline);
  void BeginStep(int64_t step, DataPlan& plan) const;

  const Dependencies deps_;
  std::atomic<int64_t> bytes_pushed_{0};
  std::atomic<int64_t> bytes_pulled_{0};
};

}  // namespace cairn
