// Delivers the calls of a plan to the servers: numbers its updates, retains them until they are
// durable, and follows rows that move to other servers in the meantime (EXACTLY_ONCE.md;
// ps_server/MOVES.md describes the servers' part).
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

// The error of a pull that followed an applied push in one call; OK stays OK.
absl::Status AfterUpdate(const absl::Status& pulled);

// Thread safety: every method except Begin may be called from several threads at once. Numbered
// plans are delivered one at a time.
class Deliverer {
 public:
  // The client's parts that delivery needs. All outlive the deliverer.
  struct Dependencies {
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
  explicit Deliverer(const Dependencies& deps) : deps_(deps) {}

  // Resumes at `point` after a new start of the worker, once every session has begun. Call it
  // before the first numbered plan, or while holding the push order.
  void Begin(const ResumePoint& point);

  // Makes every call of `plan`; the replies are written to the caller's memory.
  //   updates   whether the plan has pushes or assigns
  //   position  the resume position of a push; nullptr for assigns and for plans without updates
  //   *moved    set where the updates are applied but the pulls must be planned again, because rows
  //             have moved or because the calls could not wait for other workers
  absl::Status Deliver(DataPlan& plan, bool updates, const absl::string_view* position,
                       Deadline deadline, bool* moved);
  // Makes the pulls of one wave. Sets *moved where they must be planned again.
  absl::Status Pull(DataPlan& plan, size_t wave, Deadline deadline, bool* moved);

 private:
  // Sends the updates under the worker's next sequence, in an order in which no later start of this
  // worker can mistake an incomplete sequence for a complete one.
  absl::Status DeliverNumbered(DataPlan& plan, const absl::string_view* position, Deadline deadline,
                               bool* moved);
  absl::Status DeliverInOrder(DataPlan& plan, const absl::string_view* position, Deadline deadline,
                              bool* moved);
  // Sends updates of a client that has no worker number. Retries only the calls that may be
  // repeated.
  absl::Status DeliverUnnumbered(DataPlan& plan, bool updates, Deadline deadline, bool* moved);
  // Sends a sequence that some servers already have from an earlier start of this worker.
  absl::Status SendKnown(DataPlan& plan, Deadline deadline, bool* moved);
  bool IsAssumedComplete(int32_t server, int64_t number) const;
  // Sends the items of `exchange` to its server as a late part, before the exchange itself.
  absl::Status SendAhead(Exchange& exchange, Deadline deadline);
  // Makes one attempt, then sends the items whose rows have moved to their new servers.
  absl::Status SendParts(DataPlan& plan, absl::Span<Exchange* const> exchanges, bool numbered,
                         Deadline deadline, bool* moved);
  absl::Status Attempt(DataPlan& plan, absl::Span<Exchange* const> exchanges, bool numbered,
                       Deadline deadline);
  // Sends each server the items that it owns, after servers refused an attempt because rows had
  // moved. Afterwards the outcomes of `exchanges` are those of an attempt without moves.
  absl::Status SendMoved(absl::Span<Exchange* const> exchanges, bool numbered, Deadline deadline);
  absl::Status ResendContribution(absl::Span<Exchange* const> exchanges, Deadline deadline);
  absl::Status ResendMoved(Exchange& exchange, bool numbered, Deadline deadline);
  template <typename Item>
  absl::Status SendMovedItems(Exchange& exchange, std::vector<Item>& items, bool numbered,
                              Deadline deadline);
  // Sends the calls in `late`, and cuts them again as rows move on, until every row is on its
  // server.
  template <typename Item>
  absl::Status SendLate(std::vector<Exchange> late, bool numbered, Deadline deadline);
  absl::Status RunLate(Exchange& late, Deadline deadline);
  absl::Status RunAgain(Exchange& exchange, bool numbered, Deadline deadline);

  const Dependencies deps_;
  int64_t known_through_ = 0;  // highest sequence of an earlier start on any server
  std::vector<std::vector<SequenceRange>> assumed_complete_;  // ResumePoint::assumed_complete
};

}  // namespace cairn
