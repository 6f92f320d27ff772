#include "worker/client/moves/remote_moves.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/variables/row_layout.h"
#include "common/variables/variable_map.h"
#include "thrift/convert.h"
#include "worker/client/job_holdings.h"

namespace cairn {
namespace {

// Bytes of values, slots, key and metadata of the rows that are only on disk.
int64_t ColdBytes(const VariableSpec& spec, const wire::VariableInfo& info,
                  const wire::ShardInfo& shard) {
  constexpr int64_t kBesideNumbers = sizeof(int64_t) + sizeof(uint32_t);
  if (spec.kind != VariableKind::kEmbedding || shard.rows_in_memory < 0) return 0;
  const RowLayout row(static_cast<size_t>(spec.shape[0]), info.slots.size(), spec.row_storage);
  const int64_t row_bytes = static_cast<int64_t>(row.bytes()) + kBesideNumbers;
  return (shard.rows - shard.rows_in_memory) * row_bytes;
}

void AddUses(const VariableSpec& spec, const wire::ShardInfo& shard, std::vector<int64_t>& uses) {
  uses.resize(std::max(spec.bucket_ps.size(), spec.shards.size()));
  const size_t first =
      spec.kind == VariableKind::kEmbedding ? 0 : static_cast<size_t>(std::max(shard.shard, 0));
  for (size_t i = 0; i < shard.uses.size() && first + i < uses.size(); ++i) {
    uses[first + i] += shard.uses[i];
  }
}

}  // namespace

RemoteMoves::RemoteMoves(std::vector<int32_t> servers, absl::Duration patience, Connect connect)
    : servers_(std::move(servers)),
      patience_(patience),
      connect_(std::move(connect)),
      clients_(static_cast<size_t>(*std::ranges::max_element(servers_)) + 1) {}

absl::Status RemoteMoves::Call(int32_t server, absl::string_view method,
                               absl::FunctionRef<void(WireClient::Stub&)> call) {
  std::unique_ptr<WireClient>& client = clients_[static_cast<size_t>(server)];
  // The server may have closed an idle connection by restarting.
  if (client == nullptr || !client->usable() || client->PeerClosed()) {
    ASSIGN_OR_RETURN(client, connect_(server));
  }
  return client->Call(method, Deadline::In(patience_), call);
}

absl::StatusOr<wire::MoveReply> RemoteMoves::Move(int32_t server,
                                                  const wire::MoveRequest& request) {
  wire::MoveReply reply;
  RETURN_IF_ERROR(Call(server, "move", [&](WireClient::Stub& stub) { stub.move(reply, request); }));
  return reply;
}

absl::Status RemoteMoves::Create(int32_t server, const std::string& job, const VariableSpec& spec) {
  return Call(server, "create_variables", [&](WireClient::Stub& stub) {
    wire::ServerState state;
    wire::Caller caller;
    caller.job = job;
    stub.create_variables(state, caller, {ToWire(spec)});
  });
}

absl::StatusOr<std::vector<VariablePlaces>> RemoteMoves::Describe(const std::string& job) {
  const auto count = static_cast<int32_t>(clients_.size());
  std::map<std::string, VariablePlaces> by_name;
  std::vector<wire::DescribeReply> replies(servers_.size());
  std::vector<DescribedServer> described;
  for (const int32_t server : servers_) {
    wire::DescribeReply& reply = replies[described.size()];
    described.push_back({server, absl::StrCat("ps:", server), &reply});
    wire::DescribeRequest request;
    request.caller.job = job;
    request.with_uses = true;
    RETURN_IF_ERROR(
        Call(server, "describe", [&](WireClient::Stub& stub) { stub.describe(reply, request); }));
    for (const wire::VariableInfo& info : reply.variables) {
      absl::StatusOr<VariableSpec> spec = FromWire(info.spec, server, count);
      if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("describe to ps:", server));
      const auto [at, is_new] = by_name.try_emplace(spec->name, VariablePlaces{.newest = *spec});
      VariablePlaces& places = at->second;
      places.bytes.resize(clients_.size());
      places.cold_bytes.resize(clients_.size());
      if (!SameButPlaces(places.newest, *spec)) {
        return FailedPrecondition("ps:", server, " has \"", spec->name, "\" as ", SpecText(*spec),
                                  ", a server before it as ", SpecText(places.newest));
      }
      if (spec->map_version != places.newest.map_version) places.all_know = false;
      if (spec->map_version > places.newest.map_version) places.newest = *spec;
      for (const wire::ShardInfo& shard : info.shards) {
        places.bytes[static_cast<size_t>(server)] += shard.memory_bytes;
        places.cold_bytes[static_cast<size_t>(server)] += ColdBytes(*spec, info, shard);
        AddUses(*spec, shard, places.uses);
      }
    }
  }
  ASSIGN_OR_RETURN(const JobHoldings holdings, CombineHoldings(job, described, count));
  RETURN_IF_ERROR(CheckAgreement(holdings));
  std::vector<VariablePlaces> all;
  for (auto& [name, places] : by_name) all.push_back(std::move(places));
  return all;
}

}  // namespace cairn
