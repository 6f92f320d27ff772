// Sends the calls of a plan: numbers its updates, keeps them until they are durable, and follows
// rows that move meanwhile (EXACTLY_ONCE.md; the client's part of ps_server/MOVES.md).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/retention_gate.h"
#include "worker/client/delivery/staleness.h"
#include "worker/client/moves/map_follower.h"
#include "worker/client/moves/update_replanner.h"
#include "worker/client/plan/data_plan.h"

namespace cairn {

// Thread safety: every method but Begin may be called from several threads at once; numbered plans
// take turns.
class Deliverer {
 public:
  // What it uses; all outlive this.
  struct Uses {
    const ClientIdentity& identity;
    const ServerTable& sessions;
    PushOrder& order;
    FanOut& fan_out;
    MapFollower& maps;
    UpdateReplanner& replanner;
    ClientGate& gate;
    RetentionGate& retention_gate;
    StalenessCounter& staleness;
  };
  explicit Deliverer(const Uses& uses) : uses_(uses) {}

  // A new start goes on at `point`, and its sessions have begun. Before the first turn, or in one.
  void Begin(const ResumePoint& point);

  // Makes all calls of `plan`; what they answer has landed.
  //   updates   the plan has pushes or assigns
  //   position  of a push; nullptr: of assigns, or of none
  //   *moved    the updates are in all the same, and the pulls are to be planned anew: rows have
  //             moved, or no call could wait for other workers
  absl::Status Deliver(DataPlan& plan, bool updates, const absl::string_view* position,
                       Deadline deadline, bool* moved);
  // Pulls of one wave. *moved: they are to be planned anew.
  absl::Status Pull(DataPlan& plan, size_t wave, Deadline deadline, bool* moved);

 private:
  // In the order that keeps its number from being taken for everybody's too early.
  absl::Status DeliverNumbered(DataPlan& plan, const absl::string_view* position, Deadline deadline,
                               bool* moved);
  // Those that name no worker: repeated only where that does no harm.
  absl::Status DeliverUnnumbered(DataPlan& plan, bool updates, Deadline deadline, bool* moved);
  // A number that some server has of an earlier start.
  absl::Status SendKnown(DataPlan& plan, Deadline deadline, bool* moved);
  bool IsUnasked(int32_t server, int64_t number) const;
  // Sends it as a late part what `exchange` will send again.
  absl::Status SendAhead(Exchange& exchange, Deadline deadline);
  // One attempt, then what has moved.
  absl::Status SendParts(DataPlan& plan, absl::Span<Exchange* const> exchanges, bool numbered,
                         Deadline deadline, bool* moved);
  absl::Status Attempt(DataPlan& plan, absl::Span<Exchange* const> exchanges, bool numbered,
                       Deadline deadline);
  // After an attempt in which updates met rows that have moved: sends every server what is its own.
  // `exchanges` have ended then as if none had.
  absl::Status SendMoved(absl::Span<Exchange* const> exchanges, bool numbered, Deadline deadline);
  absl::Status ContributeAnew(absl::Span<Exchange* const> exchanges, Deadline deadline);
  absl::Status SendRest(Exchange& exchange, bool numbered, Deadline deadline);
  template <typename Item>
  absl::Status SendRestOf(Exchange& exchange, std::vector<Item>& items, bool numbered,
                          Deadline deadline);
  // `late` and what becomes of them, until all are where they belong.
  template <typename Item>
  absl::Status SendLate(std::vector<Exchange> late, bool numbered, Deadline deadline);
  absl::Status RunLate(Exchange& late, Deadline deadline);
  absl::Status RunAgain(Exchange& exchange, bool numbered, Deadline deadline);

  const Uses uses_;
  int64_t known_through_ = 0;  // up to which some server had pushes of an earlier start
  std::vector<std::vector<SequenceRange>> unasked_;  // ResumePoint::unasked
};

}  // namespace cairn
