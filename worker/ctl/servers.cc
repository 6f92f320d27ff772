#include "worker/ctl/cluster_commands.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/cairn_constants.h"
#include "thrift/client/wire_client.h"
#include "thrift/limits.h"
#include "worker/client/moves/remote_moves.h"
#include "worker/ctl/human_text.h"

namespace cairn {
namespace {

// The timeout of a call that writes to a disk.
constexpr absl::Duration kChangeTimeout = absl::Seconds(60);

absl::StatusOr<wire::ChangeMembersReply> Change(WireClient& client,
                                                wire::ChangeMembersRequest request) {
  wire::ChangeMembersReply reply;
  request.caller.job = JobOfCommand("servers");
  RETURN_IF_ERROR(
      client.Call("change_members", Deadline::In(kChangeTimeout),
                  [&](WireClient::Stub& stub) { stub.change_members(reply, request); }));
  return reply;
}

// Checks that the server answers, has the index that it was given, and has not left.
absl::Status CheckNewcomer(const Target& target, int32_t index) {
  const auto server = static_cast<size_t>(index);
  const Deadline deadline = Deadline::In(target.timeout);
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> client, target.Connect(server, deadline));
  wire::HelloReply hello;
  RETURN_IF_ERROR(client->Call("hello", deadline, [&](WireClient::Stub& stub) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = JobOfCommand("servers");
    request.task_type = "cairnctl";
    stub.hello(hello, request);
  }));
  if (hello.server_index != index) {
    return FailedPrecondition(target.ServerName(server), " says that it is ps:", hello.server_index,
                              ": start it with --task_index ", index);
  }
  return client->Call("members", deadline, [&](WireClient::Stub& stub) {
    wire::Members members;
    wire::Caller caller;
    caller.job = JobOfCommand("servers");
    stub.members(members, caller);
  });
}

// Finishes moves that only the leaving server knows: a mover may have died after it gave the rows
// away but before it installed the new map elsewhere.
absl::Status TellMaps(const Target& target, WireClient& leaving) {
  wire::DescribeReply described;
  RETURN_IF_ERROR(leaving.Call("describe", Deadline::In(kChangeTimeout), [&](auto& stub) {
    wire::DescribeRequest request;
    request.caller.job = JobOfCommand("servers");
    request.with_server = true;
    stub.describe(described, request);
  }));
  RemoteMoves servers(target.members.Live(), kChangeTimeout, [&](int32_t server) {
    return target.Connect(static_cast<size_t>(server), Deadline::In(target.timeout));
  });
  for (const std::string& job : described.jobs) {
    ASSIGN_OR_RETURN(const std::vector<VariablePlaces> variables, servers.Describe(job));
    for (const VariablePlaces& places : variables) {
      if (places.all_know) continue;
      RETURN_IF_ERROR(FinishMove(job, places.newest, servers.servers(), servers));
    }
  }
  return absl::OkStatus();
}

Answer AnswerOf(const Target& target) {
  Answer answer;
  answer.json = {{"version", target.members.version}, {"servers", nlohmann::ordered_json::array()}};
  TextTable table({"server", "address", "state"});
  for (size_t i = 0; i < target.members.addresses.size(); ++i) {
    const char* const state = target.members.HasLeft(i) ? "left" : "member";
    const std::string name = absl::StrCat("ps:", i);
    table.Add({name, target.members.addresses[i], state});
    answer.json["servers"].push_back(
        {{"server", name}, {"address", target.members.addresses[i]}, {"state", state}});
  }
  answer.text = table.Text();
  return answer;
}

}  // namespace

absl::StatusOr<Answer> RunServersList(const ServersOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveServers(options.target));
  const absl::Status learned = target.LearnMembers();
  Answer answer = AnswerOf(target);
  answer.problem = learned;
  return answer;
}

absl::StatusOr<Answer> RunServersAdd(const ServersOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveServers(options.target));
  ASSIGN_OR_RETURN(const int32_t index, AsBadInput(ServerIndex(options.task, kMaxServers)));
  const auto server = static_cast<size_t>(index);
  std::string address = options.address;
  if (address.empty() && server < target.members.addresses.size()) {
    address = target.members.addresses[server];
  }
  if (address.empty()) {
    return AsBadInput(
        InvalidArgument("ps:", index, " is not in the cluster file: give its --address HOST:PORT"));
  }
  RETURN_IF_ERROR(target.LearnMembers());
  if (server >= target.members.addresses.size()) target.members.addresses.resize(server + 1);
  target.members.addresses[server] = address;
  RETURN_IF_ERROR(Annotate(CheckNewcomer(target, index), target.ServerName(server)));
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> first,
                   target.Connect(0, Deadline::In(target.timeout)));
  wire::ChangeMembersRequest request;
  request.action = wire::MembersAction::ADD;
  request.index = index;
  request.address = address;
  ASSIGN_OR_RETURN(const wire::ChangeMembersReply changed, Change(*first, request));
  target.members.Take(changed.members);
  Answer answer = AnswerOf(target);
  absl::StrAppend(&answer.text, target.ServerName(server),
                  " is a server; cairnctl rebalance --job JOB gives it rows\n");
  return answer;
}

absl::StatusOr<Answer> RunServersRemove(const ServersOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveServers(options.target));
  ASSIGN_OR_RETURN(const int32_t index, AsBadInput(ServerIndex(options.task, kMaxServers)));
  const auto server = static_cast<size_t>(index);
  RETURN_IF_ERROR(target.LearnMembers());
  if (server >= target.members.addresses.size()) {
    return AsBadInput(NotFound("there is no ps:", index, ": the cluster has ",
                               target.members.addresses.size(), " servers"));
  }
  if (target.members.HasLeft(server)) return AnswerOf(target);
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> leaving,
                   target.Connect(server, Deadline::In(target.timeout)));
  wire::ChangeMembersRequest request;
  request.index = index;
  request.action = wire::MembersAction::CLOSE;
  ASSIGN_OR_RETURN(wire::ChangeMembersReply closed, Change(*leaving, request));
  RETURN_IF_ERROR(TellMaps(target, *leaving));
  ASSIGN_OR_RETURN(const std::unique_ptr<WireClient> first,
                   target.Connect(0, Deadline::In(target.timeout)));
  request.action = wire::MembersAction::REMOVE;
  request.last_words = std::move(closed.last_words);
  ASSIGN_OR_RETURN(const wire::ChangeMembersReply changed, Change(*first, request));
  target.members.Take(changed.members);
  Answer answer = AnswerOf(target);
  absl::StrAppend(&answer.text, target.ServerName(server),
                  " has left; it runs until you end it, and its --data_dir is no longer needed\n");
  return answer;
}

}  // namespace cairn
