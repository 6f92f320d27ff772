// A client's membership in its job: says hello and resumes, makes its pushes durable, leaves the
// job or drops it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/deadline.h"
#include "worker/client/impl/heartbeats.h"
#include "worker/client/impl/training_steps.h"
#include "worker/client/impl/variable_catalog.h"

namespace cairn {

// Thread safety: Flush may be called from several threads at once; the other methods only while no
// other call runs.
class Lifecycle {
 public:
  // The client's parts that this needs. All outlive this.
  struct Dependencies {
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
  explicit Lifecycle(const Dependencies& deps) : deps_(deps) {}

  // Says hello to every server, resumes after the last push that all servers have, and starts the
  // heartbeats.
  absl::Status Start(Deadline deadline);
  // PsClient::position.
  const std::string& position() const { return position_; }
  // Implement PsClient.
  absl::Status Flush(Deadline deadline);
  absl::Status Leave(Deadline deadline);
  absl::Status DropJob(Deadline deadline);

 private:
  // `dropped`: this client has just dropped the job. *lease: the worker's; 0: none.
  absl::Status SayHello(Deadline deadline, bool dropped, absl::Duration* lease);
  // kDataLoss: the servers do not all hold the same timeline of the job. Does not wait for a server
  // that leaves in the meantime: its entry in `replies` (by server) then holds the last sequence
  // that it had of this worker.
  absl::Status CheckHoldings(Deadline deadline, std::vector<wire::HelloReply>& replies);
  // Leaves every server and closes the gate.
  absl::Status LeaveServers(Deadline deadline);
  // Resumes at the point that follows from the replies.
  void Resume(std::vector<wire::HelloReply>& replies);

  const Dependencies deps_;
  std::string position_;
};

}  // namespace cairn
