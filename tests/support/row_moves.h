// Moves rows between the servers of a test.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/next_map.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "worker/client/moves/row_mover.h"

namespace cairn::test {

// Calls the engines of this process directly.
class EngineMoves final : public MoveServers {
 public:
  explicit EngineMoves(EngineCluster& cluster) : cluster_(cluster) {}

  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override {
    wire::MoveReply reply;
    RETURN_IF_ERROR(Call(server, [&](auto& service) { service.move(reply, request); }));
    return reply;
  }
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override {
    return Call(server, [&](auto& service) {
      wire::ServerState state;
      wire::Caller caller;
      caller.job = job;
      service.create_variables(state, caller, {ToWire(spec)});
    });
  }

 private:
  template <typename Body>
  absl::Status Call(int32_t server, Body body) {
    try {
      body(cluster_.service(server));
    } catch (const wire::ServerError& error) {
      return FromServerError(error);
    }
    return absl::OkStatus();
  }

  EngineCluster& cluster_;
};

inline absl::StatusOr<RowMoveOutcome> MoveSome(const VariableSpec& now, int32_t source,
                                               int32_t target, size_t pieces, int32_t servers,
                                               MoveServers& calls) {
  const RowMove move{.job = "job",
                     .now = now,
                     .next = NextMap(now, source, target, pieces),
                     .source = source,
                     .target = target,
                     .servers = FirstServers(servers)};
  return MoveRows(move, {.busy_fraction = 1}, calls, Deadline::In(absl::Seconds(60)));
}

}  // namespace cairn::test
