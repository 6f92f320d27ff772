// Calls that move rows between servers, for tools. Opens its own connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/variables/variable_spec.h"
#include "thrift/client/wire_client.h"
#include "worker/client/moves/row_mover.h"

namespace cairn {

// The placement and size of a variable.
struct VariablePlaces {
  VariableSpec newest;   // the newest map that any server has
  bool all_know = true;  // every server that has the variable has that map
  // By server: bytes in memory, and bytes of rows that are only on disk.
  std::vector<int64_t> bytes, cold_bytes;
  // By bucket or shard: row accesses by pulls and pushes since the server got it or started.
  std::vector<int64_t> uses;
};

// Thread safety: none.
class RemoteMoves final : public MoveServers {
 public:
  // Opens a connection to a server.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<WireClient>>(int32_t server)>;
  // `servers`: the indices of all servers. `patience`: the limit of one call.
  RemoteMoves(std::vector<int32_t> servers, absl::Duration patience, Connect connect);

  const std::vector<int32_t>& servers() const { return servers_; }

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override;
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override;
  // Describes every variable of the job, sorted by name. Fails unless all servers answer.
  absl::StatusOr<std::vector<VariablePlaces>> Describe(const std::string& job);

 private:
  absl::Status Call(int32_t server, absl::string_view method,
                    absl::FunctionRef<void(WireClient::Stub&)> call);

  const std::vector<int32_t> servers_;
  const absl::Duration patience_;
  const Connect connect_;
  std::vector<std::unique_ptr<WireClient>> clients_;  // by index
};

}  // namespace cairn
