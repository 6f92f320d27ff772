// A client's life in its job: says hello and resumes, makes its pushes durable, leaves, drops the
// job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/deadline.h"
#include "worker/client/impl/heartbeats.h"
#include "worker/client/impl/training_steps.h"
#include "worker/client/impl/variable_catalog.h"

namespace cairn {

// Thread safety: Flush may be called from several threads at once; the others while no other call
// is made.
class Lifecycle {
 public:
  // What it uses; all outlive this.
  struct Uses {
    const ClientIdentity& identity;
    ServerTable& sessions;
    ClientGate& gate;
    PushOrder& order;
    ServerCalls& calls;
    PlanLimits& plan_limits;
    ClientVariableMap& variables;
    Membership& membership;
    RetentionGate& retention_gate;
    Deliverer& deliverer;
    TrainingSteps& steps;
    VariableCatalog& catalog;
    Heartbeats& heartbeats;
  };
  explicit Lifecycle(const Uses& uses) : uses_(uses) {}

  // Says hello to every server, resumes where earlier starts of the worker have come to, and sends
  // heartbeats from then on.
  absl::Status Start(Deadline deadline);
  // Where it has resumed: PsClient::position.
  const std::string& position() const { return position_; }
  // PsClient's.
  absl::Status Flush(Deadline deadline);
  absl::Status Leave(Deadline deadline);
  absl::Status DropJob(Deadline deadline);

 private:
  // `dropped`: the job, by this client, just before. *lease: of the worker; 0: none.
  absl::Status SayHello(Deadline deadline, bool dropped, absl::Duration* lease);
  // kDataLoss where the servers do not hold one life of the job. A server that leaves meanwhile is
  // not waited for: `replies`, by server, say how far this worker was there.
  absl::Status CheckHoldings(Deadline deadline, std::vector<wire::HelloReply>& replies);
  // Goes on where the replies say that the earlier start has come to.
  void Resume(std::vector<wire::HelloReply>& replies);

  const Uses uses_;
  std::string position_;
};

}  // namespace cairn
