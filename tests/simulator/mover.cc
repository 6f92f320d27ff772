#include "tests/simulator/mover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"
#include "thrift/limits.h"

namespace cairn::simulator {
namespace {

// The limits that `cairnctl` uses.
constexpr absl::Duration kCallPatience = absl::Seconds(60);
constexpr absl::Duration kMoveTime = absl::Seconds(60);

int32_t AnotherThan(int32_t server, const std::vector<int32_t>& servers, Random& random) {
  const auto count = static_cast<int64_t>(servers.size());
  const int64_t at = std::find(servers.begin(), servers.end(), server) - servers.begin();
  return servers[(at + 1 + random.Below(count - 1)) % count];
}

}  // namespace

Mover::Mover(Network* network, std::shared_ptr<Process> process)
    : network_(*network), process_(std::move(process)) {
  next_index_ = network_.options().servers;
  for (int32_t s = 0; s < next_index_; ++s) servers_.push_back(s);
}

absl::Status Mover::Call(int32_t server, absl::string_view method,
                         absl::FunctionRef<void(wire::ParameterServerIf&)> body) {
  const Deadline deadline = Deadline::In(kCallPatience);
  std::unique_ptr<ServerLink>& link = links_[server];
  if (link == nullptr) {
    link = SimulatedLink(&network_, process_, static_cast<size_t>(server), servers_.size(), server);
  }
  Channel* channel = nullptr;
  Outcome outcome = link->Take(deadline, &channel);
  if (channel == nullptr) return outcome.status;
  outcome = channel->Call(method, body, deadline);
  if (outcome.progress == Progress::kAnswered) {
    link->Release(channel);
  } else {
    link->Discard(channel);
  }
  return outcome.status;
}

absl::StatusOr<wire::MoveReply> Mover::Move(int32_t server, const wire::MoveRequest& request) {
  wire::MoveReply reply;
  RETURN_IF_ERROR(Call(server, "move",
                       [&](wire::ParameterServerIf& service) { service.move(reply, request); }));
  return reply;
}

absl::Status Mover::Create(int32_t server, const std::string& job, const VariableSpec& spec) {
  return Call(server, "create_variables", [&](wire::ParameterServerIf& service) {
    wire::ServerState state;
    wire::Caller caller;
    caller.job = job;
    service.create_variables(state, caller, {ToWire(spec)});
  });
}

absl::StatusOr<VariableSpec> Mover::Newest(bool* all_know) {
  VariableSpec newest;
  newest.map_version = 0;
  *all_know = true;
  for (const int32_t server : servers_) {
    wire::DescribeReply reply;
    RETURN_IF_ERROR(Call(server, "describe", [&](wire::ParameterServerIf& service) {
      wire::DescribeRequest request;
      request.caller.job = kJob;
      service.describe(reply, request);
    }));
    for (const wire::VariableInfo& info : reply.variables) {
      ASSIGN_OR_RETURN(VariableSpec spec, FromWire(info.spec, server, kMaxServers));
      if (newest.map_version != 0 && spec.map_version != newest.map_version) *all_know = false;
      if (spec.map_version > newest.map_version) newest = std::move(spec);
    }
  }
  return newest;
}

absl::Status Mover::Finish() {
  bool all_know = true;
  ASSIGN_OR_RETURN(const VariableSpec newest, Newest(&all_know));
  return all_know ? absl::OkStatus() : FinishMove(kJob, newest, servers_, *this);
}

RowMove Mover::Draw(const VariableSpec& now, Random& random) const {
  RowMove move{.job = kJob, .now = now, .next = now, .servers = servers_};
  std::vector<int32_t>& places = move.next.bucket_ps;
  move.source = places[random.Below(static_cast<int64_t>(places.size()))];
  move.target = AnotherThan(move.source, servers_, random);
  const bool all = random.Chance(0.2);
  const int64_t one = random.Below(static_cast<int64_t>(places.size()));
  bool any = false;
  for (size_t i = 0; i < 2 * places.size(); ++i) {
    int32_t& place = places[(one + i) % places.size()];
    if (place != move.source || (any && !all && !random.Chance(0.4))) continue;
    place = move.target;
    any = true;
  }
  ++move.next.map_version;
  return move;
}

absl::Status Mover::Carry(const RowMove& move, Random& random) {
  RowMoveOptions options;
  options.piece_bytes = int64_t{64} << random.Below(8);
  options.last_pass_bytes = int64_t{64} << random.Below(6);
  options.hold = random.Chance(0.3) ? absl::Milliseconds(300) : absl::Seconds(5);
  const int64_t batches = 1 + random.Below(3);
  options.batch_bytes = 1;
  return MoveRowsInBatches(move, batches, options, *this, Deadline::In(kMoveTime)).status();
}

absl::Status Mover::MoveSome(Random& random) {
  RETURN_IF_ERROR(Learn());
  if (servers_.size() < 2) return absl::OkStatus();
  bool all_know = true;
  ASSIGN_OR_RETURN(const VariableSpec newest, Newest(&all_know));
  if (!all_know) RETURN_IF_ERROR(FinishMove(kJob, newest, servers_, *this));
  return Carry(Draw(newest, random), random);
}

absl::Status Mover::Learn() {
  if (network_.options().members.tools == 0) return absl::OkStatus();
  wire::Members members;
  wire::Caller caller;
  caller.job = kJob;
  RETURN_IF_ERROR(Call(
      0, "members", [&](wire::ParameterServerIf& service) { service.members(members, caller); }));
  next_index_ = members.server_count;
  servers_.clear();
  for (int32_t s = 0; s < members.server_count; ++s) {
    const bool left =
        std::any_of(members.members.begin(), members.members.end(),
                    [s](const wire::Member& member) { return member.index == s && member.left; });
    if (!left) servers_.push_back(s);
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::ChangeMembersReply> Mover::Change(int32_t server,
                                                       wire::ChangeMembersRequest request) {
  request.caller.job = kJob;
  wire::ChangeMembersReply reply;
  RETURN_IF_ERROR(Call(server, "change_members", [&](wire::ParameterServerIf& service) {
    service.change_members(reply, request);
  }));
  return reply;
}

absl::Status Mover::Add(int32_t server, Random& random) {
  RETURN_IF_ERROR(Call(server, "members", [&](wire::ParameterServerIf& service) {
    wire::Members members;
    wire::Caller caller;
    caller.job = kJob;
    service.members(members, caller);
  }));
  wire::ChangeMembersRequest request;
  request.action = wire::MembersAction::ADD;
  request.index = server;
  request.address = absl::StrCat("10.0.0.", server + 1, ":7000");
  RETURN_IF_ERROR(Change(0, request).status());
  ++network_.observer().joins;
  RETURN_IF_ERROR(Learn());
  bool all_know = true;
  ASSIGN_OR_RETURN(const VariableSpec newest, Newest(&all_know));
  if (!all_know) RETURN_IF_ERROR(FinishMove(kJob, newest, servers_, *this));
  RowMove move = Draw(newest, random);
  for (size_t b = 0; b < newest.bucket_ps.size(); ++b) {
    if (move.next.bucket_ps[b] == move.target && newest.bucket_ps[b] == move.source) {
      move.next.bucket_ps[b] = server;
    }
  }
  move.target = server;
  return move.source == server ? absl::OkStatus() : Carry(move, random);
}

absl::Status Mover::Empty(int32_t server, Random& random) {
  bool all_know = true;
  ASSIGN_OR_RETURN(const VariableSpec newest, Newest(&all_know));
  if (!all_know) RETURN_IF_ERROR(FinishMove(kJob, newest, servers_, *this));
  RowMove move{.job = kJob, .now = newest, .next = newest, .servers = servers_};
  move.source = server;
  move.target = AnotherThan(server, servers_, random);
  bool any = false;
  for (int32_t& place : move.next.bucket_ps) {
    if (place != server) continue;
    place = move.target;
    any = true;
  }
  ++move.next.map_version;
  return any ? Carry(move, random) : GiveUpMoves(kJob, newest, servers_, *this);
}

absl::Status Mover::Close(int32_t server) {
  wire::ChangeMembersRequest request;
  request.index = server;
  request.action = wire::MembersAction::CLOSE;
  ASSIGN_OR_RETURN(const wire::ChangeMembersReply closed, Change(server, request));
  RETURN_IF_ERROR(Finish());
  request.action = wire::MembersAction::REMOVE;
  request.last_words = closed.last_words;
  RETURN_IF_ERROR(Change(0, request).status());
  ++network_.observer().leaves;
  return absl::OkStatus();
}

absl::Status Mover::Remove(int32_t server, Random& random) {
  RETURN_IF_ERROR(Empty(server, random));
  return Close(server);
}

absl::Status Mover::RemoveClosed() {
  for (const int32_t server : std::vector<int32_t>(servers_)) {
    const absl::Status stays = Call(server, "members", [&](wire::ParameterServerIf& service) {
      wire::Members members;
      wire::Caller caller;
      caller.job = kJob;
      service.members(members, caller);
    });
    if (!absl::IsFailedPrecondition(stays)) {
      RETURN_IF_ERROR(stays);
      continue;
    }
    RETURN_IF_ERROR(Close(server));
  }
  return Learn();
}

}  // namespace cairn::simulator
