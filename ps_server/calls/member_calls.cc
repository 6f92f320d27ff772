#include "ps_server/calls/member_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/cluster_config.h"
#include "common/crash_point.h"
#include "common/log.h"
#include "common/status.h"
#include "common/variables/variable_map.h"

namespace cairn {
namespace {

absl::Status CheckIsFirst(const ServerCore& core) {
  if (core.options.server_index == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(core.name, " does not know which servers there are: ask ps:0"));
}

absl::Status CheckEmpty(const ServerCore& core) {
  std::vector<std::string> held;
  for (const std::shared_ptr<Job>& job : core.registry.jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) {
      if (PiecesOn(variable->spec(), core.options.server_index) == 0) continue;
      held.push_back(absl::StrCat(name, " of job ", job->name()));
    }
  }
  if (held.empty()) return absl::OkStatus();
  constexpr size_t kShown = 5;
  const size_t count = held.size();
  held.resize(std::min(count, kShown));
  return absl::FailedPreconditionError(
      absl::StrCat(core.name, " has rows of ", count, " variables (", absl::StrJoin(held, ", "),
                   count > kShown ? ", …" : "",
                   "): move them first, cairnctl rebalance --job JOB --empty ", core.name));
}

// Rows that have arrived by a move that has not ended are this server's as soon as their source
// gives them away, which nobody here hears of.
absl::Status CloseArrivals(ServerCore& core) {
  std::string job, variable;
  if (core.moves.CloseArrivals(&job, &variable)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rows of ", variable, " of job ", job, " are on their way to ", core.name,
                   ", or were when their mover ended: cairnctl rebalance --job ", job, " --empty ",
                   core.name, " brings that to an end"));
}

absl::Status Close(ServerCore& core, std::vector<wire::LastWord>& words) {
  if (core.options.server_index == 0) {
    return absl::InvalidArgumentError("ps:0 cannot leave: it is the one that knows who is there");
  }
  // Variables are made, and rows taken, in turn with this.
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeCreateSlot(core, "the server leaves"));
  RETURN_IF_ERROR(CloseArrivals(core));
  absl::Cleanup stays = [&core] { core.moves.OpenArrivals(); };
  RETURN_IF_ERROR(CheckEmpty(core));
  CAIRN_CRASH_POINT("members: before a server leaves");
  RETURN_IF_ERROR(core.members.Leave(*core.store));
  std::move(stays).Cancel();
  CAIRN_CRASH_POINT("members: a server has left");
  for (const std::shared_ptr<Job>& job : core.registry.jobs()) {
    for (const auto& session : job->sessions()) {
      wire::LastWord& word = words.emplace_back();
      word.job = job->name();
      word.worker = session->worker();
      word.applied = session->applied();
      word.incarnation = session->incarnation();
    }
  }
  LOG(INFO) << core.name << " leaves the cluster: it takes no rows any more";
  return absl::OkStatus();
}

absl::Status Add(ServerCore& core, const wire::ChangeMembersRequest& request) {
  RETURN_IF_ERROR(CheckIsFirst(core));
  const auto address = ParseHostPort(request.address);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("address: ", address.status().message()));
  }
  RETURN_IF_ERROR(core.members.Add(request.index, request.address, *core.store));
  LOG(INFO) << core.name << ": ps:" << request.index << " is at " << request.address
            << "; servers are those of version " << core.members.version();
  return absl::OkStatus();
}

absl::Status Remove(ServerCore& core, const wire::ChangeMembersRequest& request) {
  RETURN_IF_ERROR(CheckIsFirst(core));
  RETURN_IF_ERROR(core.members.Remove(request.index, request.last_words, *core.store));
  LOG(INFO) << core.name << ": ps:" << request.index << " has left; servers are those of version "
            << core.members.version();
  return absl::OkStatus();
}

}  // namespace

absl::Status TellMembers(ServerCore& core, const wire::Caller& caller, wire::Members& reply) {
  RETURN_IF_ERROR(core.members.CheckStays());
  reply = core.members.Tell(caller.job, caller.worker);
  return absl::OkStatus();
}

absl::Status ChangeMembers(ServerCore& core, const wire::ChangeMembersRequest& request,
                           wire::ChangeMembersReply& reply) {
  switch (request.action) {
    case wire::MembersAction::ADD: RETURN_IF_ERROR(Add(core, request)); break;
    case wire::MembersAction::REMOVE:
      RETURN_IF_ERROR(Remove(core, request));
      reply.last_words = core.members.LastWords(request.index);
      break;
    case wire::MembersAction::CLOSE:
      if (request.index != core.options.server_index) {
        return absl::InvalidArgumentError(
            absl::StrCat("this is ", core.name, ", and ps:", request.index, " was to leave"));
      }
      return Close(core, reply.last_words);
  }
  reply.members = core.members.Tell(request.caller.job, request.caller.worker);
  return absl::OkStatus();
}

}  // namespace cairn
