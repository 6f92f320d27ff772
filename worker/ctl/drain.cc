#include "worker/ctl/cluster_commands.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/run_in_threads.h"
#include "common/status.h"
#include "thrift/errors.h"
#include "worker/ctl/human_text.h"

namespace cairn {
namespace {

constexpr absl::Duration kGonePollInterval = absl::Milliseconds(20);

struct Drained {
  size_t server = 0;
  absl::Status status;
  absl::Duration took;
};

absl::StatusOr<std::vector<size_t>> ServersOf(const DrainOptions& options, const Target& target) {
  std::vector<size_t> servers;
  if (options.all != options.tasks.empty()) {
    return absl::InvalidArgumentError("name servers, as in ps:0 ps:1, or give --all; not both");
  }
  if (options.all) {
    for (const int32_t server : target.members.Live()) {
      servers.push_back(static_cast<size_t>(server));
    }
    return servers;
  }
  for (const std::string& task : options.tasks) {
    ASSIGN_OR_RETURN(const int32_t index, ServerIndex(task, target.members.addresses.size()));
    const auto server = static_cast<size_t>(index);
    if (std::ranges::find(servers, server) == servers.end()) {
      servers.push_back(server);
    }
  }
  return servers;
}

// Waits until the server's port refuses connections.
absl::Status AwaitEnd(const Target& target, size_t server, Deadline deadline) {
  while (!deadline.Expired()) {
    const absl::Status there =
        target.Connect(server, Deadline::Earlier(deadline, Deadline::In(target.timeout))).status();
    if (absl::IsUnavailable(there)) return absl::OkStatus();
    absl::SleepFor(kGonePollInterval);
  }
  return DeadlineExceeded(
      target.ServerName(server),
      " has written everything but still listens: its log (stderr) says why, or "
      "something has started it again");
}

// A server that ends for another reason closes its port first and its connections next, and only
// then writes everything. So it cannot say whether it has.
absl::Status Unanswered(const absl::Status& cause, absl::string_view found) {
  return Unavailable(cause.message(), found,
                     "; if it was ending already (a signal, another drain), it writes everything "
                     "before it exits: exit status 0 means that it has; otherwise its log (stderr) "
                     "says why not");
}

absl::Status Drain(const Target& target, size_t server, Deadline deadline) {
  const absl::StatusOr<std::unique_ptr<WireClient>> client =
      target.Connect(server, Deadline::In(target.timeout));
  if (absl::IsUnavailable(client.status())) return Unanswered(client.status(), "");
  RETURN_IF_ERROR(client.status());
  const absl::Status drained = (*client)->Call("drain", deadline, [](WireClient::Stub& stub) {
    wire::ServerState state;
    wire::Caller caller;
    // The server's log shows this name. The command concerns all jobs.
    caller.job = JobOfCommand("drain");
    stub.drain(state, caller);
  });
  if (drained.ok()) return AwaitEnd(target, server, deadline);
  const bool broke = absl::IsUnavailable(drained) && ReasonOf(drained) == wire::ErrorReason::NONE;
  const Deadline soon = Deadline::Earlier(deadline, Deadline::In(target.timeout));
  if (!broke || !AwaitEnd(target, server, soon).ok()) return drained;
  return Unanswered(drained, ", and it no longer listens");
}

std::vector<Drained> DrainAll(const Target& target, const std::vector<size_t>& servers,
                              absl::Duration timeout) {
  std::vector<Drained> drained(servers.size());
  const std::vector<absl::Status> results = CallAtOnce(servers.size(), [&](size_t i) {
    const absl::Duration begin = MonotonicNow();
    absl::Status status = Drain(target, servers[i], Deadline::In(timeout));
    drained[i].took = MonotonicNow() - begin;
    return status;
  });
  for (size_t i = 0; i < servers.size(); ++i) {
    drained[i].server = servers[i];
    drained[i].status = results[i];
  }
  return drained;
}

}  // namespace

absl::StatusOr<Answer> RunDrain(const DrainOptions& options) {
  ASSIGN_OR_RETURN(Target target, ResolveServers(options.target));
  target.LearnMembers().IgnoreError();  // ps:0 may have ended already
  if (options.wait_seconds <= 0) {
    return AsBadInput(absl::InvalidArgumentError("--wait_seconds is a number above 0"));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> servers, AsBadInput(ServersOf(options, target)));
  Answer answer;
  answer.json = {{"servers", nlohmann::ordered_json::array()}};
  std::string failed;
  for (const Drained& one : DrainAll(target, servers, absl::Seconds(options.wait_seconds))) {
    const double seconds = absl::ToDoubleSeconds(one.took);
    nlohmann::ordered_json json = {{"server", absl::StrCat("ps:", one.server)},
                                   {"address", target.members.addresses[one.server]},
                                   {"drained", one.status.ok()},
                                   {"seconds", seconds}};
    if (one.status.ok()) {
      absl::StrAppend(&answer.text, target.ServerName(one.server),
                      " has written everything and "
                      "ended, in ",
                      SecondsText(seconds), "\n");
    } else {
      json["error"] = std::string(one.status.message());
      absl::StrAppend(&failed, failed.empty() ? "" : "; ", target.ServerName(one.server),
                      " did not drain: ", one.status.message());
    }
    answer.json["servers"].push_back(std::move(json));
  }
  if (!failed.empty()) answer.problem = absl::UnavailableError(failed);
  return answer;
}

}  // namespace cairn
