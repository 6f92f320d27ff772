// Servers that come and go while the client lives (ps_server/MEMBERS.md).
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "common/variable_map.h"
#include "thrift/ParameterServer.h"
#include "worker/client/client_impl.h"

namespace cairn {

absl::Status PsClientImpl::RefreshMembers(Deadline deadline) {
  wire::Members members;
  RETURN_IF_ERROR(
      CallOne(0, "members", options_.rpc_timeout, deadline,
              [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                members = {};
                service.members(members, caller);
              }));
  return TakeMembers(members, /*greet=*/true, deadline);
}

absl::Status PsClientImpl::TakeMembers(const wire::Members& members, bool greet,
                                       Deadline deadline) {
  absl::MutexLock lock(&members_mutex_);
  if (members.version <= members_version_.load()) return absl::OkStatus();
  most_servers_.store(members.server_count);
  last_words_.resize(static_cast<size_t>(std::max(members.server_count, 0)));
  std::vector<ServerSession*> gone;
  std::vector<int32_t> staying = sessions_.Live();
  for (const wire::Member& member : members.members) {
    if (member.index < 0 || member.index >= members.server_count) continue;
    const auto index = static_cast<size_t>(member.index);
    last_words_[index] = member.applied;
    if (index >= sessions_.size()) {
      RETURN_IF_ERROR(Greet(member, greet, deadline));
      continue;
    }
    if (!member.left) sessions_[index].SetJoined();
    if (member.left && !sessions_[index].left()) {
      // It had taken this worker for gone, and its rows went without what was to be sent again.
      if (greet && member.incarnation > incarnation_) fenced_.store(true);
      gone.push_back(&sessions_[index]);
      std::erase(staying, member.index);
    }
  }
  // The maps, before the rows of those that have gone are looked for in vain.
  if (!gone.empty() && greet) {
    ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs, DescribeOn(staying, deadline));
    for (const VariableSpec& spec : specs) {
      if (!KnowsServersOf(spec)) {
        return absl::UnavailableError(absl::StrCat(
            "\"", spec.name, "\" has rows on servers that have come since ", sessions_[0].name(),
            " said who there is: the next heartbeat asks it again"));
      }
      variables_.Insert(spec);
    }
  }
  for (ServerSession* session : gone) {
    session->SetLeft();
    LOG(INFO) << session->name() << " has left the cluster";
  }
  members_version_.store(members.version);
  return absl::OkStatus();
}

absl::Status PsClientImpl::Greet(const wire::Member& member, bool greet, Deadline deadline) {
  if (static_cast<size_t>(member.index) > sessions_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ps:", member.index, " is a server, and the cluster file of this program has ",
                     sessions_.size(), ": give it the file that ", sessions_[0].name(), " has"));
  }
  absl::StatusOr<Reached> reached = reach_(member.index, member.address);
  if (!reached.ok()) return reached.status();
  auto session = std::make_unique<ServerSession>(member.index, std::move(reached->name),
                                                 std::move(reached->link), &identity_);
  if (member.left) {
    session->SetLeft();
  } else {
    session->SetJoined();
  }
  if (greet && !session->left()) {
    wire::HelloReply reply;
    RETURN_IF_ERROR(HelloTo(*session, incarnation_, deadline, &reply, /*joins=*/true));
    if (session->left()) {
      last_words_[static_cast<size_t>(member.index)] = reply.state.durable;
    } else {
      CAIRN_CRASH_POINT("worker: a new server is greeted");
      session->Begin(reply, incarnation_, /*last_part=*/0, /*through=*/0);
      LOG(INFO) << session->name() << " has joined the cluster";
    }
  }
  const bool live = !session->left();
  ServerSession& joined = *session;
  sessions_.Put(std::move(session));
  if (live && greet) StartHeartbeat(joined);
  return absl::OkStatus();
}

bool PsClientImpl::HasLeftUnheard(ServerSession& session, Deadline deadline,
                                  wire::HelloReply* reply) {
  if (session.index() == 0) return false;
  wire::HelloReply first;
  const Deadline soon = Deadline::Earlier(deadline, Deadline::In(options_.rpc_timeout));
  const Outcome asked = sessions_[0].Hello(incarnation_, soon, &first, /*joins=*/true);
  if (!asked.status.ok() || !first.__isset.members) return false;
  for (const wire::Member& member : first.members.members) {
    if (member.index != session.index() || !member.left) continue;
    session.SetLeft();
    *reply = {};
    reply->state.durable = member.applied;
    LOG(INFO) << session.name() << " has left the cluster";
    return true;
  }
  return false;
}

bool PsClientImpl::KnowsServersOf(const VariableSpec& spec, int32_t* unknown) const {
  for (const int32_t server : PlacesOf(spec)) {
    const auto index = static_cast<size_t>(server);
    if (index < sessions_.size() && !sessions_[index].left()) continue;
    if (unknown != nullptr) *unknown = server;
    return false;
  }
  return true;
}

absl::Status PsClientImpl::KnowServersOf(const VariableSpec& spec, Deadline deadline) {
  if (KnowsServersOf(spec)) return absl::OkStatus();
  RETURN_IF_ERROR(RefreshMembers(deadline));
  int32_t unknown = 0;
  if (KnowsServersOf(spec, &unknown)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("\"", spec.name, "\" has rows on ps:", unknown, ", which ", sessions_[0].name(),
                   " does not know: give servers and workers the same cluster file"));
}

bool PsClientImpl::MembersChanged(Deadline deadline) {
  const int64_t known = members_version_.load();
  return RefreshMembers(deadline).ok() && members_version_.load() != known;
}

int64_t PsClientImpl::LastWord(size_t server) {
  absl::MutexLock lock(&members_mutex_);
  return server < last_words_.size() ? last_words_[server] : 0;
}

}  // namespace cairn
