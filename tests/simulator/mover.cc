#include "tests/simulator/mover.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/convert.h"

namespace cairn::simulator {
namespace {

// `cairnctl`'s own.
constexpr absl::Duration kCallPatience = absl::Seconds(60);
constexpr absl::Duration kMoveTime = absl::Seconds(60);

}  // namespace

Mover::Mover(Network* network, std::shared_ptr<Process> process)
    : network_(*network), process_(std::move(process)) {
  const int32_t count = network_.options().servers;
  for (int32_t s = 0; s < count; ++s) {
    servers_.push_back(s);
    links_.push_back(SimulatedLink(network, process_, s, count, s));
  }
}

absl::Status Mover::Call(int32_t server, absl::string_view method,
                         absl::FunctionRef<void(wire::ParameterServerIf&)> body) {
  const Deadline deadline = Deadline::In(kCallPatience);
  Channel* channel = nullptr;
  Outcome outcome = links_[server]->Take(deadline, &channel);
  if (channel == nullptr) return outcome.status;
  outcome = channel->Call(method, body, deadline);
  if (outcome.progress == Progress::kAnswered) {
    links_[server]->Release(channel);
  } else {
    links_[server]->Discard(channel);
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
      ASSIGN_OR_RETURN(VariableSpec spec,
                       FromWire(info.spec, server, static_cast<int32_t>(servers_.size())));
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
  const auto count = static_cast<int64_t>(servers_.size());
  std::vector<int32_t>& places = move.next.bucket_ps;
  move.source = places[random.Below(static_cast<int64_t>(places.size()))];
  move.target = static_cast<int32_t>((move.source + 1 + random.Below(count - 1)) % count);
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

absl::Status Mover::MoveSome(Random& random) {
  bool all_know = true;
  ASSIGN_OR_RETURN(const VariableSpec newest, Newest(&all_know));
  if (!all_know) RETURN_IF_ERROR(FinishMove(kJob, newest, servers_, *this));
  const RowMove move = Draw(newest, random);
  RowMoveOptions options;
  options.piece_bytes = int64_t{64} << random.Below(8);
  options.last_pass_bytes = int64_t{64} << random.Below(6);
  options.hold = random.Chance(0.3) ? absl::Milliseconds(300) : absl::Seconds(5);
  const int64_t batches = 1 + random.Below(3);
  options.batch_bytes = 1;
  return MoveRowsInBatches(move, batches, options, *this, Deadline::In(kMoveTime)).status();
}

}  // namespace cairn::simulator
