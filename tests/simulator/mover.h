// One start of a tool that moves rows, or adds and removes servers: the real mover and the calls of
// `cairnctl servers`, over the simulated network.
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
  // The network outlives the mover.
  Mover(Network* network, std::shared_ptr<Process> process);

  // Acts like `cairnctl rebalance`: finishes the moves of earlier tools, then moves some buckets of
  // one server to another.
  absl::Status MoveSome(Random& random);
  // Only finishes the moves of earlier tools.
  absl::Status Finish();
  // Acts like `cairnctl servers add` for a running server, and moves some rows to it.
  absl::Status Add(int32_t server, Random& random);
  // Acts like `cairnctl rebalance --empty` and `cairnctl servers remove`.
  absl::Status Remove(int32_t server, Random& random);
  // Removes the servers that killed tools had closed but not removed.
  absl::Status RemoveClosed();
  // Fetches the list of servers from ps:0. Before that it is the cluster file's.
  absl::Status Learn();
  const std::vector<int32_t>& servers() const { return servers_; }
  // The index of the next server that joins.
  int32_t next_index() const { return next_index_; }

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override;
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override;

 private:
  absl::Status Call(int32_t server, absl::string_view method,
                    absl::FunctionRef<void(wire::ParameterServerIf&)> body);
  // The newest map of the table. Fails unless all servers answer.
  absl::StatusOr<VariableSpec> Newest(bool* all_know);
  RowMove Draw(const VariableSpec& now, Random& random) const;
  // Moves in batches, as the tool does.
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
