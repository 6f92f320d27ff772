// One start of a tool that moves rows: the program's own mover, over the simulated network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/simulator/network.h"
#include "tests/simulator/random.h"
#include "worker/client/row_mover.h"

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

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override;
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override;

 private:
  absl::Status Call(int32_t server, absl::string_view method,
                    absl::FunctionRef<void(wire::ParameterServerIf&)> body);
  // The newest map. All servers must answer.
  absl::StatusOr<VariableSpec> Newest(bool* all_know);
  RowMove Draw(const VariableSpec& now, Random& random) const;

  Network& network_;
  const std::shared_ptr<Process> process_;
  std::vector<int32_t> servers_;
  std::vector<std::unique_ptr<ServerLink>> links_;  // by server
};

}  // namespace cairn::simulator
