// One start of a tool that moves rows, or has servers join and leave: the program's own mover, and
// the calls of `cairnctl servers`, over the simulated network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/simulator/network.h"
#include "tests/simulator/random.h"
#include "worker/client/moves/row_mover.h"

namespace cairn::simulator {

// Called in a fiber of its process. Thread safety: none.
class Mover final : public MoveServers {
 public:
  // The network outlives it.
  Mover(Network* network, std::shared_ptr<Process> process);

  // As `cairnctl rebalance`: ends what an earlier one left, then moves some of a server's buckets
  // to another.
  absl::Status MoveSome(Random& random);
  // The first of it alone.
  absl::Status Finish();
  // As `cairnctl servers add`, of a server that runs, and some rows for it.
  absl::Status Add(int32_t server, Random& random);
  // As `cairnctl rebalance --empty` and `cairnctl servers remove`.
  absl::Status Remove(int32_t server, Random& random);
  // Removes those that a tool that was killed has left behind with one foot in the door.
  absl::Status RemoveClosed();
  // Asks ps:0 which servers there are. Until then they are those of the cluster file.
  absl::Status Learn();
  const std::vector<int32_t>& servers() const { return servers_; }
  // The index of the next server that joins.
  int32_t next_index() const { return next_index_; }

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override;
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override;

 private:
  absl::Status Call(int32_t server, absl::string_view method,
                    absl::FunctionRef<void(wire::ParameterServerIf&)> body);
  // The newest map. All servers must answer.
  absl::StatusOr<VariableSpec> Newest(bool* all_know);
  RowMove Draw(const VariableSpec& now, Random& random) const;
  // In batches, as a tool does.
  absl::Status Carry(const RowMove& move, Random& random);
  absl::Status Empty(int32_t server, Random& random);
  absl::StatusOr<wire::ChangeMembersReply> Change(int32_t server,
                                                  wire::ChangeMembersRequest request);
  absl::Status Close(int32_t server);

  Network& network_;
  const std::shared_ptr<Process> process_;
  std::vector<int32_t> servers_;
  int32_t next_index_ = 0;
  std::map<int32_t, std::unique_ptr<ServerLink>> links_;  // by server
};

}  // namespace cairn::simulator
