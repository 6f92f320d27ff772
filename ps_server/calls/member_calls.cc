#include "ps_server/calls/calls.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/cluster_config.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/variables/variable_map.h"

namespace cairn {
namespace {

absl::Status CheckIsFirst(const ServerInfo& info) {
  if (info.index() == 0) return absl::OkStatus();
  return FailedPrecondition(info.name, " does not keep the list of servers: ask ps:0");
}

absl::Status CheckEmpty(JobCatalog& catalog) {
  const ServerInfo& info = catalog.info();
  std::vector<std::string> held;
  for (const std::shared_ptr<Job>& job : catalog.registry().jobs()) {
    const auto variables = job->variables();
    for (const auto& [name, variable] : *variables) {
      if (PiecesOn(variable->spec(), info.index()) == 0) continue;
      held.push_back(absl::StrCat(name, " of job ", job->name()));
    }
  }
  if (held.empty()) return absl::OkStatus();
  constexpr size_t kShown = 5;
  const size_t count = held.size();
  held.resize(std::min(count, kShown));
  return FailedPrecondition(info.name, " has rows of ", count, " variables (",
                            absl::StrJoin(held, ", "), count > kShown ? ", …" : "",
                            "): move them first, cairnctl rebalance --job JOB --empty ", info.name);
}

// From now on, no rows arrive. Fails if rows have arrived by a move that has not ended: they belong
// to this server as soon as their source hands them over, and this server is not notified of that.
absl::Status CloseArrivals(const std::string& server, Moves& moves) {
  std::string job, variable;
  if (moves.CloseArrivals(&job, &variable)) return absl::OkStatus();
  return FailedPrecondition("rows of ", variable, " of job ", job, " are moving to ", server,
                            ", or their mover ended early: cairnctl rebalance --job ", job,
                            " --empty ", server, " finishes the move");
}

absl::Status Close(JobCatalog& catalog, Moves& moves, Members& members,
                   std::vector<wire::LastWord>& words) {
  const ServerInfo& info = catalog.info();
  if (info.index() == 0) {
    return absl::InvalidArgumentError("ps:0 cannot leave: it keeps the list of servers");
  }
  // While this call holds the slot, no variable is created and no arrived rows are installed.
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, catalog.TakeSlot("the server leaves"));
  RETURN_IF_ERROR(CloseArrivals(info.name, moves));
  absl::Cleanup stays = [&moves] { moves.OpenArrivals(); };
  RETURN_IF_ERROR(CheckEmpty(catalog));
  CAIRN_CRASH_POINT("members: before a server leaves");
  RETURN_IF_ERROR(members.Leave(catalog.store()));
  std::move(stays).Cancel();
  CAIRN_CRASH_POINT("members: a server has left");
  for (const std::shared_ptr<Job>& job : catalog.registry().jobs()) {
    for (const auto& session : job->sessions()) {
      wire::LastWord& word = words.emplace_back();
      word.job = job->name();
      word.worker = session->worker();
      word.applied = session->applied();
      word.incarnation = session->incarnation();
    }
  }
  LOG(INFO) << info.name << " leaves the cluster: it takes no rows any more";
  return absl::OkStatus();
}

absl::Status Add(JobCatalog& catalog, Members& members, const wire::ChangeMembersRequest& request) {
  RETURN_IF_ERROR(CheckIsFirst(catalog.info()));
  const auto address = ParseHostPort(request.address);
  if (!address.ok()) return InvalidArgument("address: ", address.status().message());
  RETURN_IF_ERROR(members.Add(request.index, request.address, catalog.store()));
  LOG(INFO) << catalog.info().name << ": ps:" << request.index << " is at " << request.address
            << "; servers are those of version " << members.version();
  return absl::OkStatus();
}

absl::Status Remove(JobCatalog& catalog, Members& members,
                    const wire::ChangeMembersRequest& request) {
  RETURN_IF_ERROR(CheckIsFirst(catalog.info()));
  RETURN_IF_ERROR(members.Remove(request.index, request.last_words, catalog.store()));
  LOG(INFO) << catalog.info().name << ": ps:" << request.index
            << " has left; servers are those of version " << members.version();
  return absl::OkStatus();
}

}  // namespace

absl::Status TellMembers(const Members& members, const wire::Caller& caller, wire::Members& reply) {
  RETURN_IF_ERROR(members.CheckStays());
  reply = members.Tell(caller.job, caller.worker);
  return absl::OkStatus();
}

absl::Status ChangeMembers(JobCatalog& catalog, Moves& moves, Members& members,
                           const wire::ChangeMembersRequest& request,
                           wire::ChangeMembersReply& reply) {
  switch (request.action) {
    case wire::MembersAction::ADD: RETURN_IF_ERROR(Add(catalog, members, request)); break;
    case wire::MembersAction::REMOVE:
      RETURN_IF_ERROR(Remove(catalog, members, request));
      reply.last_words = members.LastWords(request.index);
      break;
    case wire::MembersAction::CLOSE:
      if (request.index != catalog.info().index()) {
        return InvalidArgument("this is ", catalog.info().name, ", and ps:", request.index,
                               " was to leave");
      }
      return Close(catalog, moves, members, reply.last_words);
  }
  reply.members = members.Tell(request.caller.job, request.caller.worker);
  return absl::OkStatus();
}

}  // namespace cairn
