#include "worker/client/moves/membership.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "common/variables/variable_map.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// How long ps:0 has to answer after a call has waited for a server. It may be that server.
constexpr absl::Duration kLook = absl::Seconds(2);

}  // namespace

absl::Status Membership::SayHelloToFirst(Deadline deadline, wire::HelloReply* reply) {
  // Proposes a timeline, which ps:0 begins only if it holds none for the job.
  timeline_ = identity_.sequenced() ? NewTimeline(identity_.server_count, 0) : 0;
  RETURN_IF_ERROR(HelloTo(sessions_[0], 0, deadline, reply, /*joins=*/false));
  incarnation_ = reply->incarnation;
  timeline_ = reply->timeline;
  return reply->__isset.members ? Take(reply->members, /*greet=*/false, deadline)
                                : absl::OkStatus();
}

std::vector<ResumeAnswer> Membership::Answers(absl::Span<const wire::HelloReply> replies) const {
  std::vector<ResumeAnswer> answers;
  answers.reserve(replies.size());
  // Hello made everything durable that the server had applied. Sequences without a part on a server
  // are not in its number.
  for (size_t s = 0; s < replies.size(); ++s) {
    // Under sync the contributions on a server that left moved away together with its rows.
    const bool needs_none = identity_.synchronous() && sessions_[s].departed();
    const int64_t final_sequence =
        needs_none ? std::numeric_limits<int64_t>::max() : FinalSequence(s);
    answers.push_back({std::max(replies[s].state.durable, final_sequence), replies[s].position});
  }
  return answers;
}

absl::Status Membership::HelloTo(ServerSession& session, int64_t incarnation, Deadline deadline,
                                 wire::HelloReply* reply, bool joins) {
  Backoff backoff(identity_.ps_wait, deadline);
  for (;;) {
    // Not bounded by rpc_timeout: the server first makes durable what an earlier start had pushed.
    Outcome outcome = session.Hello(incarnation, timeline_, deadline, reply, joins);
    const RetryDecision decision =
        session.ClassifyOutcome(&outcome, /*repeatable=*/true, 0, deadline);
    if (decision == RetryDecision::kDone || decision == RetryDecision::kFail) return outcome.status;
    if (deadline.Expired() || !backoff.Pause())
      return session.GiveUpError(outcome, deadline.Expired());
    if (AskWhetherLeft(session, deadline, reply)) return absl::OkStatus();
    fan_out_.CountRetry();
  }
}

bool Membership::AskWhetherLeft(ServerSession& session, Deadline deadline,
                                wire::HelloReply* reply) {
  if (session.index() == 0) return false;
  wire::HelloReply first;
  const Deadline soon = Deadline::Earlier(deadline, Deadline::In(calls_.rpc_timeout()));
  const Outcome asked = sessions_[0].Hello(incarnation_, timeline_, soon, &first, /*joins=*/true);
  if (!asked.status.ok() || !first.__isset.members) return false;
  for (const wire::Member& member : first.members.members) {
    if (member.index != session.index() || !member.left) continue;
    session.SetDeparted();
    *reply = {};
    reply->state.durable = member.applied;
    LOG(INFO) << session.name() << " has left the cluster";
    return true;
  }
  return false;
}

absl::Status Membership::Refresh(Deadline deadline) {
  ASSIGN_OR_RETURN(const wire::Members members, calls_.Members(deadline));
  return Take(members, /*greet=*/true, deadline);
}

bool Membership::Changed(Deadline deadline) {
  const int64_t known = version();
  const Deadline soon = Deadline::Earlier(deadline, Deadline::In(kLook));
  const absl::StatusOr<wire::Members> members = calls_.Members(soon);
  return members.ok() && Take(*members, /*greet=*/true, deadline).ok() && version() != known;
}

absl::Status Membership::Take(const wire::Members& members, bool greet, Deadline deadline) {
  RETURN_IF_ERROR(changes_.Acquire("list of servers",
                                   "another thread, which says hello to new servers or learns "
                                   "where the rows of servers that left are",
                                   deadline));
  const absl::Cleanup end = [this] { changes_.Release(); };
  return ApplyExclusively(members, greet, deadline);
}

// The list comes from the network: no index in it may make this client allocate, or leave a table.
absl::Status Membership::CheckMembers(const wire::Members& members) const {
  const auto most = std::max(static_cast<int32_t>(sessions_.size()), kMaxServers);
  for (const wire::Member& member : members.members) {
    if (member.index < 0 || member.index >= members.server_count) continue;
    if (member.index >= most) {
      return FailedPrecondition(sessions_[0].name(), " lists a server ps:", member.index,
                                "; at most ", most, " servers are allowed: restart ps:0 with the ",
                                "release and the data directory of its cluster");
    }
    const bool known = static_cast<size_t>(member.index) < sessions_.size();
    if (!known && member.address.empty()) {
      return FailedPrecondition(sessions_[0].name(), " lists ps:", member.index,
                                " with no address, and this program's cluster file lists ",
                                sessions_.size(), " servers: use the file of ps:0");
    }
  }
  return absl::OkStatus();
}

absl::Status Membership::ApplyExclusively(const wire::Members& members, bool greet,
                                          Deadline deadline) {
  if (members.version <= version()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckMembers(members));
  flags_.most_servers.store(members.server_count);
  std::vector<ServerSession*> leaving;
  std::vector<int32_t> staying = sessions_.Live();
  for (const wire::Member& member : members.members) {
    if (member.index < 0 || member.index >= members.server_count) continue;
    const auto index = static_cast<size_t>(member.index);
    SetFinalSequence(index, member.applied);
    if (index >= sessions_.size()) {
      RETURN_IF_ERROR(Join(member, greet, deadline));
      continue;
    }
    if (!member.left) sessions_[index].SetJoined();
    if (member.left && !sessions_[index].departed()) {
      // The server moved its rows away without this worker's unsent pushes, because it held the
      // worker for lost.
      if (greet && member.incarnation > incarnation_) flags_.fenced.store(true);
      leaving.push_back(&sessions_[index]);
      std::erase(staying, member.index);
    }
  }
  // Learn the maps before the sessions are marked as left, so that calls find the new owners.
  if (!leaving.empty() && greet) RETURN_IF_ERROR(LearnMaps(staying, deadline));
  for (ServerSession* session : leaving) {
    session->SetDeparted();
    LOG(INFO) << session->name() << " has left the cluster";
  }
  version_.store(members.version);
  return absl::OkStatus();
}

absl::Status Membership::LearnMaps(absl::Span<const int32_t> staying, Deadline deadline) {
  ASSIGN_OR_RETURN(const JobHoldings holdings, calls_.Describe(staying, deadline));
  int32_t unknown = 0;
  for (const VariableSpec& spec : holdings.specs) {
    if (!Knows(spec, &unknown)) {
      return Unavailable("\"", spec.name, "\" has rows on servers that joined after ",
                         sessions_[0].name(),
                         " sent its list of servers: the next heartbeat fetches a newer list");
    }
    variables_.Insert(spec);
  }
  return absl::OkStatus();
}

absl::Status Membership::Join(const wire::Member& member, bool greet, Deadline deadline) {
  if (static_cast<size_t>(member.index) > sessions_.size()) {
    return FailedPrecondition("the cluster has a server ps:", member.index,
                              ", but this program's cluster ", "file lists ", sessions_.size(),
                              " servers: use the file of ", sessions_[0].name());
  }
  ASSIGN_OR_RETURN(ReachedServer reached, reach_(member.index, member.address));
  auto session = std::make_unique<ServerSession>(member.index, std::move(reached.name),
                                                 std::move(reached.link), &identity_);
  if (member.left) {
    session->SetDeparted();
  } else {
    session->SetJoined();
  }
  if (greet && !session->departed()) {
    wire::HelloReply reply;
    RETURN_IF_ERROR(HelloTo(*session, incarnation_, deadline, &reply, /*joins=*/true));
    if (session->departed()) {
      SetFinalSequence(static_cast<size_t>(member.index), reply.state.durable);
    } else {
      CAIRN_CRASH_POINT("worker: a new server is greeted");
      plan_limits_.LowerMessageBytes(reply.max_message_bytes);
      session->Begin(reply, incarnation_, /*last_part=*/0, /*through=*/order_.settled());
      LOG(INFO) << session->name() << " has joined the cluster";
    }
  }
  const bool live = !session->departed();
  ServerSession& joined = *session;
  sessions_.Put(std::move(session));
  // Pushes that settled before Put did not reach this session.
  if (live) joined.NoPart(order_.settled());
  return absl::OkStatus();
}

bool Membership::Knows(const VariableSpec& spec, int32_t* unknown) const {
  for (const int32_t server : PlacesOf(spec)) {
    const auto index = static_cast<size_t>(server);
    if (index < sessions_.size() && !sessions_[index].departed()) continue;
    *unknown = server;
    return false;
  }
  return true;
}

absl::Status Membership::EnsureServersKnown(const VariableSpec& spec, Deadline deadline) {
  int32_t unknown = 0;
  if (Knows(spec, &unknown)) return absl::OkStatus();
  RETURN_IF_ERROR(Refresh(deadline));
  if (Knows(spec, &unknown)) return absl::OkStatus();
  if (static_cast<size_t>(unknown) < sessions_.size()) {
    return Unavailable("\"", spec.name, "\" has rows on ",
                       sessions_[static_cast<size_t>(unknown)].name(), " by map version ",
                       spec.map_version, ", but that server has left: a newer map exists");
  }
  return FailedPrecondition("\"", spec.name, "\" has rows on ps:", unknown, ", which ",
                            sessions_[0].name(),
                            " does not know: give servers and workers the same cluster file");
}

absl::StatusOr<JobHoldings> Membership::Describe(Deadline deadline) {
  while (true) {
    const int64_t members = version();
    absl::StatusOr<JobHoldings> holdings = calls_.Describe(sessions_.Live(), deadline);
    absl::Status status = holdings.status();
    for (size_t i = 0; status.ok() && i < holdings->specs.size(); ++i) {
      status = EnsureServersKnown(holdings->specs[i], deadline);
    }
    const bool again = absl::IsUnavailable(status) && (version() != members || Changed(deadline));
    if (again) continue;  // servers came or went in the meantime
    RETURN_IF_ERROR(status);
    if (!identity_.sequenced() && NoteTimeline(*holdings)) {
      variables_.Replace(holdings->specs);
      return holdings;
    }
    for (const VariableSpec& spec : holdings->specs) variables_.Insert(spec);
    return holdings;
  }
}

bool Membership::NoteTimeline(const JobHoldings& holdings) {
  int64_t timeline = 0;
  for (const ServerHolding& server : holdings.servers) {
    const int64_t held = std::abs(server.timeline);
    if (held != 0 && timeline != 0 && held != timeline) return false;  // while a restore runs
    if (held != 0) timeline = held;
  }
  return timeline != 0 && flags_.described_timeline.exchange(timeline) != timeline;
}

void Membership::SetFinalSequence(size_t server, int64_t applied) {
  absl::MutexLock lock(&mutex_);
  if (server >= final_sequences_.size()) final_sequences_.resize(server + 1);
  final_sequences_[server] = applied;
}

int64_t Membership::FinalSequence(size_t server) const {
  absl::MutexLock lock(&mutex_);
  return server < final_sequences_.size() ? final_sequences_[server] : 0;
}

}  // namespace cairn
