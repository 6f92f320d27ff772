// Moves of rows over connections of one's own, for tools.
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

// Where a variable's rows lie.
struct VariablePlaces {
  VariableSpec newest;   // of the maps that servers are by
  bool all_know = true;  // no server that has the variable is by an older one
  // By server: of memory, and of rows that are on disk alone.
  std::vector<int64_t> bytes, cold_bytes;
  // By bucket or shard: rows that pulls and pushes have named, since its server has it or was
  // started.
  std::vector<int64_t> uses;
};

// Thread safety: none.
class RemoteMoves final : public MoveServers {
 public:
  // A connection to a server.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<WireClient>>(int32_t server)>;
  // `servers`: the indices of all there are. `patience`: of one call.
  RemoteMoves(std::vector<int32_t> servers, absl::Duration patience, Connect connect);

  const std::vector<int32_t>& servers() const { return servers_; }

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override;
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override;
  // Of every variable of the job, by name. All servers must answer.
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
