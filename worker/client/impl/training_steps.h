// Training steps: what the client tells the servers of them, and asks (ps_server/CONSISTENCY.md,
// ps_server/SYNC.md).
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/impl/data_calls.h"

namespace cairn {

// Thread safety: of Step, EndStep and EndSteps one thread calls one at a time; the others as
// PsClient.
class TrainingSteps {
 public:
  // What it uses; all outlive this.
  struct Uses {
    const ClientIdentity& identity;
    const ServerTable& sessions;
    ClientGate& gate;
    PushOrder& order;
    FanOut& fan_out;
    ServerCalls& calls;
    CallPlanner& planner;
    PlanPool& plans;
    Deliverer& deliverer;
    MapFollower& maps;
    Membership& membership;
    StalenessCounter& staleness;
    DataCalls& data;
  };
  explicit TrainingSteps(const Uses& uses) : uses_(uses) {}

  // Under sync, a new start: what its pushes after `point` are. `replies`: by server.
  void Resume(const ResumePoint& point, absl::Span<const wire::HelloReply> replies);

  // PsClient's.
  absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, Deadline deadline, int64_t rows);
  absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                       int64_t rows, Deadline deadline);
  absl::Status EndSteps(Deadline deadline);
  absl::StatusOr<int64_t> LargestGap(Deadline deadline);

  // Contributions whose step closed without them.
  int64_t pushes_late() const { return pushes_late_.load(std::memory_order_relaxed); }

 private:
  // Whether its next push is one that counts, or is void, already.
  absl::StatusOr<bool> Recomputes(Deadline deadline);
  // Under sync: Step.
  absl::Status Contribute(absl::Span<const PushSource> sources, absl::string_view position,
                          int64_t rows, absl::Span<const PullTarget> targets, Deadline deadline);
  // Pushes a contribution to `step`. `again`: an earlier start may have pushed it.
  absl::Status PushContribution(absl::Span<const PushSource> sources, absl::string_view position,
                                int64_t rows, int64_t step, bool again, Deadline deadline);
  // Announces `step`, waits for others and pulls; the open step is in the book then.
  absl::Status PullStep(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline);
  // *moved: rows have, and nothing is known of `targets`.
  absl::Status PullStepOnce(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline,
                            bool* moved);
  // *moved: rows have, and OK is returned.
  absl::Status RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                            Deadline deadline, bool* moved);
  absl::Status StepPulled(DataPlan& plan, Exchange& exchange);

  const Uses uses_;
  // Under sync. True until this start has pushed again what there is up to recompute_through_.
  std::atomic<bool> recomputes_{false};
  int64_t recompute_through_ = 0;
  std::atomic<int64_t> pushes_late_{0};
};

}  // namespace cairn
