// Training steps: announces them to the servers and waits for other workers
// (ps_server/CONSISTENCY.md, ps_server/SYNC.md).
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

// Thread safety: Step, EndStep and EndSteps are called by one thread at a time; the other methods
// as in PsClient.
class TrainingSteps {
 public:
  // The client's parts that steps need. All outlive this.
  struct Dependencies {
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
  explicit TrainingSteps(const Dependencies& deps) : deps_(deps) {}

  // Under sync, after a new start: finds out which pushes after `point` are recomputed ones.
  // `replies`: by server.
  void Resume(const ResumePoint& point, absl::Span<const wire::HelloReply> replies);

  // Implement PsClient.
  absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, Deadline deadline, int64_t rows);
  absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position,
                       int64_t rows, Deadline deadline);
  absl::Status EndSteps(Deadline deadline);
  absl::StatusOr<int64_t> LargestGap(Deadline deadline);

  // Contributions whose step closed without them.
  int64_t pushes_late() const { return pushes_late_.load(std::memory_order_relaxed); }

 private:
  // Under sync: whether the next push recomputes one whose fate is already decided.
  absl::StatusOr<bool> Recomputes(Deadline deadline);
  // PsClient::Step and EndStep under sync.
  absl::Status Contribute(absl::Span<const PushSource> sources, absl::string_view position,
                          int64_t rows, absl::Span<const PullTarget> targets, Deadline deadline);
  // Pushes a contribution to `step`. `again`: an earlier start may have pushed it.
  absl::Status PushContribution(absl::Span<const PushSource> sources, absl::string_view position,
                                int64_t rows, int64_t step, bool again, Deadline deadline);
  // Announces `step`, waits for the other workers and pulls. Afterwards the step book holds the
  // open step.
  absl::Status PullStep(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline);
  // Like PullStep. *moved: rows have moved, and the contents of `targets` are unspecified.
  absl::Status PullStepOnce(int64_t step, absl::Span<const PullTarget> targets, Deadline deadline,
                            bool* moved);
  // Returns OK and sets *moved where rows have moved.
  absl::Status RunStepPulls(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                            Deadline deadline, bool* moved);
  absl::Status StepPulled(DataPlan& plan, Exchange& exchange);

  const Dependencies deps_;
  // Under sync: true until this start has recomputed every push up to recompute_through_.
  std::atomic<bool> recomputes_{false};
  int64_t recompute_through_ = 0;
  std::atomic<int64_t> pushes_late_{0};
};

}  // namespace cairn
